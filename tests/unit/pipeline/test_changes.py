"""What jobs decide, without Spark: runs, groups, deaths."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from headrace.core import ranges
from headrace.formats.manifest import Build, Manifest, Segment
from headrace.formats.marks import ID_MAX, Marks, encode_marks
from headrace.pipeline.compact import Sizes, find_runs
from headrace.pipeline.cuts import count_outputs
from headrace.pipeline.limits import GROUP_OUTPUTS_MAX
from headrace.pipeline.marks import deaths, decode_deaths
from headrace.pipeline.merge import find_groups


def _segment(number: int, record_bytes: int = 10) -> Segment:
    return Segment(
        number=number, name=f"s{number}", index=f"i{number}", tags=None, journal_start=number,
        journal_stop=number + 1, logs=1, rows=1, record_bytes=record_bytes, file_bytes=1,
        checksum="", index_checksum="", tags_checksum=None,
    )  # fmt: skip


def _numbers(runs: list[list[Segment]]) -> list[list[int]]:
    return [[segment.number for segment in run] for run in runs]


def test_runs_are_neighbours_that_are_small() -> None:
    sizes = Sizes(output_bytes=100, run_min=2, run_max=3, run_bytes=1000)
    segments = [_segment(n, 50 if n in (3, 9) else 10) for n in range(1, 10)]
    assert _numbers(find_runs(segments, sizes)) == [[1, 2], [4, 5, 6], [7, 8]]


def test_runs_end_where_they_would_be_too_large() -> None:
    sizes = Sizes(output_bytes=100, run_min=2, run_bytes=80)
    segments = [_segment(n, 40) for n in range(1, 6)]
    assert _numbers(find_runs(segments, sizes)) == [[1, 2], [3, 4]]


def test_a_run_does_not_become_too_many_outputs() -> None:
    sizes = Sizes(output_bytes=100, run_min=2)
    segments = [_segment(n, 49) for n in range(1, 201)]
    runs = find_runs(segments, sizes)
    assert sum(map(len, runs)) == 200
    assert {count_outputs(run, sizes.output_bytes) for run in runs[:-1]} == {GROUP_OUTPUTS_MAX}


def _build(*numbers: int, level: int = 0) -> Build:
    return Build(
        segments=numbers, level=level, name=f"b{numbers}", checksum="", plans=1, rows=1,
        file_bytes=1,
    )  # fmt: skip


def test_eight_neighbours_of_a_level_are_merged() -> None:
    segments = tuple(_segment(n) for n in range(1, 20))
    builds = tuple(_build(n) for n in range(1, 18))
    groups = find_groups(Manifest(segments=segments, builds=builds), [])
    assert [[build.segments for build in group] for group in groups] == [
        [(n,) for n in range(1, 9)],
        [(n,) for n in range(9, 17)],
    ]
    gone = Manifest(segments=segments[1:9], builds=builds)
    assert [[b.segments[0] for b in group] for group in find_groups(gone, [])] == [
        list(range(2, 10))
    ]


_SEQS = st.integers(1, 40)
_RANGES = st.lists(st.tuples(_SEQS, _SEQS), max_size=4)


def _union(pairs: list[tuple[int, int]]) -> list[int]:
    held: list[int] = []
    for first, last in pairs:
        held = ranges.add(held, min(first, last), max(first, last))
    return held


@given(
    st.dictionaries(st.integers(1, 5), _RANGES.map(_union).filter(bool), max_size=3),
    st.lists(st.tuples(st.integers(1, 6), _SEQS), max_size=30),
    st.sets(st.integers(1, 6), max_size=2),
)
def test_deaths_are_what_marks_say(
    dead: dict[int, list[int]], records: list[tuple[int, int]], dropped: set[int]
) -> None:
    live = _union([(n, n) for n in range(1, 7) if n not in dropped])
    marks = Marks(ranges.add(live, 7, ID_MAX), dead)
    logs = np.array([log for log, _ in records], np.int64)
    seqs = np.array([seq for _, seq in records], np.int64)
    found = deaths(marks).dead(logs, seqs)
    assert found.tolist() == [marks.is_dead(log, seq) for log, seq in records]
    stored = decode_deaths(encode_marks(marks), "marks")
    for held, read in zip(astuple(deaths(marks)), astuple(stored), strict=True):
        assert held.tolist() == read.tolist()
    lasts = seqs + np.arange(len(seqs)) % 4
    spans = list(zip(logs.tolist(), seqs.tolist(), lasts.tolist(), strict=True))
    gone = [[marks.is_dead(log, seq) for seq in range(a, b + 1)] for log, a, b in spans]
    assert deaths(marks).covers(logs, seqs, lasts).tolist() == [all(one) for one in gone]
    assert deaths(marks).touches(logs, seqs, lasts).tolist() == [any(one) for one in gone]


def test_the_command_line_needs_no_spark() -> None:
    program = (
        "import sys; from headrace.cli import _parser; _parser();"
        "print([name for name in ('pyspark', 'pandas', 'duckdb') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
