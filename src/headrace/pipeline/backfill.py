"""Backfill: history is indexed as today's plans and formats want it, as much at a time as asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipeline.index import NOTHING_TO_INDEX, Indexed, index, total
from headrace.pipeline.index_backlog import IndexBacklogFinder, Unit, grouped
from headrace.pipeline.report import Progress, Report, no_progress
from headrace.pipeline.store_location import StoreLocation
from headrace.printing import count, size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def choose(units: list[Unit], segments_max: int | None) -> list[Unit]:
    """The oldest units that come to this many segments; one at least."""
    if segments_max is None:
        return units
    return next(grouped(units, segments_max), [])


def backfill(
    spark: SparkSession,
    place: StoreLocation,
    segments_max: int | None = None,
    progress: Progress[list[Unit]] = no_progress,
) -> Report:
    """Index the oldest segments that want it. Started again, it goes on where it ended."""
    work = IndexBacklogFinder(place).look()
    chosen = choose(work.units, segments_max)
    done: list[Indexed] = [
        index(spark, place, work, group) for group in progress(list(grouped(chosen)), "group")
    ]
    whole = total(done)
    left = sum(len(unit.segments) for unit in work.units) - whole.segments
    what = f"{count(whole.segments, 'segment')} indexed, {count(whole.rows, 'record')}, "
    what += f"{size(whole.file_bytes)} of companions; {count(left, 'segment')} left"
    if not work.units:
        what = NOTHING_TO_INDEX
    problems = [f"segment {f.segment} cannot be indexed: {f.problem}" for f in whole.failures]
    return Report("", [], f"{place}: {what}", problems)
