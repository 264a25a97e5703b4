"""Retention: segments in which nothing is live go, and builds of segments that are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipeline.commit import drop_segments
from headrace.pipeline.marks import begin_work
from headrace.pipeline.report import Report
from headrace.pipeline.segment_index import dead_segments
from headrace.pipeline.store_location import StoreLocation
from headrace.pipeline.tasks import describe
from headrace.printing import count, size
from headrace.storage import manifests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def retain(spark: SparkSession, place: StoreLocation) -> Report:
    """Take what is dead out of the manifest, with one commit; the janitor removes the objects."""
    objects = place.open()
    with describe(spark, "retain: find what is dead"), begin_work(spark, place, "retain") as work:
        manifest = manifests.load(objects)
        dead, problems = dead_segments(spark, place, manifest.segments, work.marks)
    after = drop_segments(objects, dead).manifest
    builds = len({b.name for b in manifest.builds} - {b.name for b in after.builds})
    rows: list[tuple[object, ...]] = [(s.number, s.rows, size(s.file_bytes)) for s in dead]
    what = f"{count(len(dead), 'segment')} and {count(builds, 'build')} went"
    if not dead and not builds:
        what = (
            "nothing to drop" if problems else "nothing to drop: no segment is without live records"
        )
    return Report("segment rows bytes", rows, f"{place}: {what}", problems)
