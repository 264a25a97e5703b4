"""Cuts and slices: outputs of about one size, whatever lies where, and each row in one of them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.cuts import Point, count_outputs, cut_points, step_between, weigh
from headrace.pipeline.limits import POINTS_MAX
from headrace.pipeline.rows import groups_in, slice_segment
from support.segment_store import Layout, SegmentStore, payloads


@pytest.fixture
def shelf(tmp_path: Path) -> SegmentStore:
    return SegmentStore(tmp_path)


_POINTS = st.lists(
    st.builds(
        Point, st.sampled_from("abc"), st.integers(1, 2), st.integers(1, 99), st.integers(1, 50)
    ),
    min_size=1,
    max_size=60,
    unique_by=lambda point: (point.log, point.log_id, point.seq),
)


@given(_POINTS, st.integers(1, 9))
def test_outputs_are_of_one_size_but_for_a_point(points: list[Point], outputs: int) -> None:
    cuts = cut_points(points, outputs)
    assert cuts == sorted(set(cuts))
    assert len(cuts) < outputs
    sizes = [0] * (len(cuts) + 1)
    for point in points:
        sizes[sum(cut <= (point.log, point.log_id, point.seq) for cut in cuts)] += point.size_bytes
    largest = max(point.size_bytes for point in points)
    assert min(sizes) > 0
    assert max(sizes) <= sum(sizes) / outputs + largest


def test_points_of_a_segment_weigh_all_of_it(shelf: SegmentStore) -> None:
    segment = shelf.seal({"b": payloads(100), "a": payloads(50)}, group_rows=10)
    for step in (1, 300, 1 << 30):
        points = weigh(shelf.objects, segment, step)
        assert points == sorted(points)
        assert (points[0].log, points[0].seq) == ("a", 1)
        assert sum(point.size_bytes for point in points) == segment.record_bytes
    every = weigh(shelf.objects, segment, 1)
    assert [(p.log, p.seq) for p in every[:6]] == [
        ("a", 1), ("a", 11), ("a", 21), ("a", 31), ("a", 41), ("b", 1)
    ]  # fmt: skip
    assert len(every) == 15


def test_one_log_is_cut_in_the_middle(shelf: SegmentStore) -> None:
    segments = [shelf.seal({"a": payloads(100)}, group_rows=10) for _ in range(3)]
    total = sum(segment.record_bytes for segment in segments)
    outputs = count_outputs(segments, total // 4)
    assert outputs == 5
    points = [point for s in segments for point in weigh(shelf.objects, s, total // 100)]
    cuts = cut_points(points, outputs)
    assert [log for log, _, _ in cuts] == ["a"] * 4
    ends = [0, *(seq - 1 for _, _, seq in cuts), 300]
    assert all(50 <= stop - start <= 70 for start, stop in pairwise(ends))


def test_many_segments_that_begin_alike_make_no_small_output(shelf: SegmentStore) -> None:
    """What a point weighs lies behind it: were there few, all would weigh on the first log."""
    logs = {f"log-{at:02}": payloads(3) for at in range(40)}
    segments = [shelf.seal(logs, group_rows=4) for _ in range(30)]
    size = sum(segment.record_bytes for segment in segments) // 4
    points = [
        point
        for segment in segments
        for point in weigh(shelf.objects, segment, step_between(segment, len(segments), size))
    ]
    cuts = cut_points(points, 4)
    begins = [0, *(int(log[4:]) for log, _, _ in cuts), 40]
    assert all(6 <= stop - start <= 14 for start, stop in pairwise(begins))


def test_a_segment_has_a_bounded_number_of_points(shelf: SegmentStore) -> None:
    segment = msgspec.structs.replace(shelf.seal({"a": payloads(5)}), record_bytes=1 << 40)
    assert segment.record_bytes // step_between(segment, 256, 1) == POINTS_MAX


@given(st.integers(0, 99), st.integers(1, 4000))
def test_slices_have_every_row_group_once(seed: int, size_bytes: int) -> None:
    with TemporaryDirectory() as directory:
        shelf = SegmentStore(Path(directory)).fill(
            Layout(seed=seed, segments=1, rows_max=30, group_rows=3)
        )
        segment = shelf.manifest.segments[0]
        footer = pq.ParquetFile(shelf.objects.open(segment.name)).metadata
        found = [groups_in(footer, one) for one in slice_segment(segment, size_bytes)]
    assert [group for groups in found for group in groups] == list(range(footer.num_row_groups))
