"""Compaction: runs of small segments with many logs become large ones, in which each log lies
together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from headrace.formats.manifest import Manifest, Segment
from headrace.formats.segment import Piece
from headrace.pipeline import crash
from headrace.pipeline.commit import replace_segments
from headrace.pipeline.errors import Overtaken
from headrace.pipeline.pieces import all_pieces
from headrace.pipeline.place import Place, load
from headrace.pipeline.proof import prove
from headrace.pipeline.report import Progress, Report, no_progress
from headrace.pipeline.rewrite import Span, rewrite
from headrace.pipeline.rows import read
from headrace.printing import count, size
from headrace.storage import manifests
from headrace.storage.leases import hold_lease

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Sizes(msgspec.Struct, frozen=True):
    """What is small, and what is large enough."""

    output_bytes: int = 128 << 20
    """Record bytes of a segment that compaction makes; half of it is small."""
    run_min: int = 4
    """Segments worth the work."""
    run_max: int = 32
    run_bytes: int = 1 << 30
    """What one run may hold: it goes through one shuffle."""


def find_runs(segments: Sequence[Segment], sizes: Sizes) -> list[list[Segment]]:
    """Neighbours that are small, in runs that are worth the work and not too large for one go."""
    runs: list[list[Segment]] = []
    for small, found in groupby(segments, lambda s: s.record_bytes * 2 < sizes.output_bytes):
        if small:
            runs += _split(list(found), sizes)
    return [run for run in runs if len(run) >= sizes.run_min]


def _split(run: Sequence[Segment], sizes: Sizes) -> Iterator[list[Segment]]:
    part: list[Segment] = []
    for segment in run:
        held = sum(s.record_bytes for s in part)
        if part and (len(part) == sizes.run_max or held + segment.record_bytes > sizes.run_bytes):
            yield part
            part = []
        part.append(segment)
    yield part


def plan_spans(pieces: Sequence[Piece], names: Mapping[int, str], output_bytes: int) -> list[Span]:
    """Which seqs of which log go to which output: by name and seq, cut at the size of an output."""
    spans: list[Span] = []
    output = held = 0
    for piece in sorted(pieces, key=lambda p: (names[p.log], p.log, p.first)):
        if held and held + piece.record_bytes > output_bytes:
            output, held = output + 1, 0
        held += piece.record_bytes
        last = spans[-1] if spans else None
        if last is not None and (last.log, last.output) == (piece.log, output):
            spans[-1] = msgspec.structs.replace(last, last=piece.last)
        else:
            spans.append(Span(piece.log, piece.first, piece.last, output))
    return spans


def compact(
    spark: SparkSession,
    place: Place,
    sizes: Sizes = Sizes(),  # noqa: B008
    progress: Progress[list[Segment]] = no_progress,
) -> Report:
    """Compact every run there is, each with a commit of its own."""
    objects = place.open()
    done: list[tuple[object, ...]] = []
    for run in progress(find_runs(manifests.load(objects).segments, sizes), "run"):
        try:
            done.append(_compact(spark, place, run, sizes))
        except Overtaken:
            continue  # the server dropped one of them meanwhile; the next time will see
    before, after = (sum(row[at] for row in done) for at in (1, 2))  # type: ignore[misc]
    summary = f"{count(before, 'segment')} became {after}" if done else "nothing to compact"
    return Report("segments from to rows before after logs", done, f"{place}: {summary}")


def _compact(
    spark: SparkSession, place: Place, run: list[Segment], sizes: Sizes
) -> tuple[object, ...]:
    objects = place.open()
    manifest, marks = load(objects)
    _require(manifest, run)
    found = all_pieces(spark, place, run)
    pieces = [piece for segment in run for piece in found[segment.number]]
    logs = read(spark, place, run).select("log_id", "log").distinct().collect()
    spans = plan_spans(pieces, {row.log_id: row.log for row in logs}, sizes.output_bytes)
    with hold_lease(objects, "compact") as lease:
        outputs = [one.segment for one in rewrite(spark, place, run, marks, lease, spans)]
        prove(spark, place, run, outputs, marks)
        crash.point("proved")
        replace_segments(objects, run, outputs, lease)
    return (
        f"{run[0].number}–{run[-1].number}",
        len(run),
        len(outputs),
        sum(output.rows for output in outputs),
        size(sum(segment.file_bytes for segment in run)),
        size(sum(output.file_bytes for output in outputs)),
        len(logs),
    )


def _require(manifest: Manifest, run: Sequence[Segment]) -> None:
    if not manifest.numbers.issuperset(segment.number for segment in run):
        raise Overtaken("a segment is gone")
