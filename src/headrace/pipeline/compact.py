"""Compaction: runs of small segments with many logs become large ones, in which each log lies
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from headrace.core.batching import batches
from headrace.formats.manifest import Manifest, Segment
from headrace.pipeline import crash_points
from headrace.pipeline.commit import replace_segments
from headrace.pipeline.errors import Overtaken
from headrace.pipeline.groups import run_groups
from headrace.pipeline.limits import (
    GROUP_BYTES,
    GROUP_OUTPUTS_MAX,
    GROUP_SEGMENTS_MAX,
    OUTPUT_BYTES,
)
from headrace.pipeline.marks import begin_work
from headrace.pipeline.proof import prove, require_sound
from headrace.pipeline.report import Progress, Report, no_progress
from headrace.pipeline.rewrite import rewrite
from headrace.pipeline.store_location import StoreLocation
from headrace.pipeline.tasks import describe
from headrace.printing import count, size
from headrace.storage import manifests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Sizes(msgspec.Struct, frozen=True):
    """What is small, and what is large enough."""

    output_bytes: int = OUTPUT_BYTES
    """Record bytes of a segment that compaction makes; half of it is small."""
    run_min: int = 4
    """Segments worth the work."""
    run_max: int = GROUP_SEGMENTS_MAX
    run_bytes: int = GROUP_BYTES
    """What one run may hold: it goes through one shuffle."""


def find_runs(segments: Sequence[Segment], sizes: Sizes) -> list[list[Segment]]:
    """Neighbours that are small, in runs that are worth the work and not too large for one go."""
    runs: list[list[Segment]] = []
    run_bytes = min(sizes.run_bytes, GROUP_OUTPUTS_MAX * sizes.output_bytes)
    for small, found in groupby(segments, lambda s: s.record_bytes * 2 < sizes.output_bytes):
        if small:
            runs += batches(found, lambda s: s.record_bytes, run_bytes, sizes.run_max)
    return [run for run in runs if len(run) >= sizes.run_min]


def compact(
    spark: SparkSession,
    place: StoreLocation,
    sizes: Sizes = Sizes(),  # noqa: B008
    progress: Progress[list[Segment]] = no_progress,
) -> Report:
    """Compact every run there is, several at a time, each with a commit of its own."""
    runs = find_runs(manifests.load(place.open()).segments, sizes)
    done, problems = run_groups(
        spark, partial(_compact, spark, place, sizes), runs, progress, "run"
    )
    before, after = sum(row[1] for row in done), sum(row[2] for row in done)
    summary = f"{count(before, 'segment')} became {after}" if done else "nothing to compact"
    titles, rows = "segments from to rows before after", list[tuple[object, ...]](done)
    return Report(titles, rows, f"{place}: {summary}", problems)


def _compact(
    spark: SparkSession, place: StoreLocation, sizes: Sizes, run: list[Segment]
) -> tuple[str, int, int, int, str, str]:
    objects = place.open()
    which = f"{run[0].number}–{run[-1].number}"
    with describe(spark, f"compact segments {which}"), begin_work(spark, place, "compact") as work:
        require_sound(spark, place, run, indexes=True)
        _require(manifests.load(objects), run)
        (outputs,) = rewrite(spark, place, [run], work, sizes.output_bytes)
        prove(spark, place, run, outputs, work)
        crash_points.point("proved")
        replace_segments(objects, [(run, outputs)], work.lease)
    return (
        which,
        len(run),
        len(outputs),
        sum(output.rows for output in outputs),
        size(sum(segment.file_bytes for segment in run)),
        size(sum(output.file_bytes for output in outputs)),
    )


def _require(manifest: Manifest, run: Sequence[Segment]) -> None:
    if not manifest.numbers.issuperset(segment.number for segment in run):
        raise Overtaken("a segment is gone")
