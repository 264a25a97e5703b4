"""Backfill: history is indexed as today's plans and formats want it, as much at a time as asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipeline.index import NOTHING_TO_INDEX, index
from headrace.pipeline.index_backlog import IndexBacklogFinder, Unit, choose
from headrace.pipeline.report import Progress, Report, no_progress
from headrace.pipeline.store_location import StoreLocation
from headrace.printing import count, size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def backfill(
    spark: SparkSession,
    place: StoreLocation,
    segments_max: int | None = None,
    progress: Progress[list[Unit]] = no_progress,
) -> Report:
    """Index the oldest segments that want it. Started again, it goes on where it ended."""
    work = IndexBacklogFinder(place, spark).look()
    done = index(spark, place, work, choose(work.units, segments_max), progress)
    left = sum(len(unit.segments) for unit in work.units) - done.segments
    what = f"{count(done.segments, 'segment')} indexed, {count(done.rows, 'record')}, "
    what += f"{size(done.file_bytes)} of companions; {count(left, 'segment')} left"
    if not work.units:
        what = NOTHING_TO_INDEX
    return Report("", [], f"{place}: {what}", done.lines())
