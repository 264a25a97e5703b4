"""Merging builds: eight neighbours of a level become one of the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from headrace.formats.companion import File, decode_descriptor
from headrace.formats.manifest import Build, Manifest
from headrace.pipeline import crash_points
from headrace.pipeline.commit import add_builds, drop_builds
from headrace.pipeline.index import BuildStore
from headrace.pipeline.index_backlog import IndexBacklogFinder, Unit
from headrace.pipeline.kernels.builds import merge_builds
from headrace.pipeline.limits import MERGE, MERGE_BYTES_MAX
from headrace.pipeline.report import Report
from headrace.pipeline.store_location import StoreLocation, damage_of
from headrace.pipeline.tasks import run_tasks
from headrace.printing import count, size
from headrace.storage.leases import hold_lease

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def find_groups(manifest: Manifest, stale: Sequence[Unit]) -> list[list[Build]]:
    """Eights of neighbours of one level, all of whose segments are there and up to date."""
    there = manifest.numbers
    outdated = {segment.number for unit in stale for segment in unit.segments}
    order = {segment.number: at for at, segment in enumerate(manifest.segments)}
    builds = [b for b in manifest.builds if there.issuperset(b.segments)]
    builds.sort(key=lambda build: min(order[number] for number in build.segments))
    groups: list[list[Build]] = []
    for (_, usable), found in groupby(builds, lambda b: (b.level, outdated.isdisjoint(b.segments))):
        run = list(found)
        if usable:
            groups += [run[at : at + MERGE] for at in range(0, len(run) - MERGE + 1, MERGE)]
    return [group for group in groups if sum(b.file_bytes for b in group) <= MERGE_BYTES_MAX]


def merge(spark: SparkSession, place: StoreLocation) -> Report:
    """Merge level by level, until no level holds eight."""
    rows: list[tuple[object, ...]] = []
    for level, new in merge_all(spark, place):
        rows += [
            (level, f"{b.segments[0]}–{b.segments[-1]}", b.rows, size(b.file_bytes)) for b in new
        ]
    what = f"{count(len(rows), 'merged build')}" if rows else "nothing to merge"
    return Report("level segments records bytes", rows, f"{place}: {what}")


def merge_all(spark: SparkSession, place: StoreLocation) -> Iterator[tuple[int, list[Build]]]:
    """The same, telling of each step."""
    pending = IndexBacklogFinder(place)
    while True:
        work = pending.look()
        groups = find_groups(work.manifest, work.units)
        if not groups:
            return
        lowest = min(group[0].level for group in groups)
        groups = [group for group in groups if group[0].level == lowest]
        with hold_lease(pending.objects, "merge") as lease:
            task = partial(merge_group, place, lease.token)
            answers = run_tasks(spark, place, task, groups, lease.token)
            crash_points.point("merged")
            lost = {answer for answer in answers if isinstance(answer, str)}
            new = [answer for answer in answers if isinstance(answer, Build)]
            if lost:
                drop_builds(pending.objects, lost)
            listed = {b.name for b in add_builds(pending.objects, new, lease).manifest.builds}
        done = [build for build in new if build.name in listed]
        if not done and not lost:
            return  # somebody else is at it
        yield lowest + 1, done


def merge_group(place: StoreLocation, job: str, group: Sequence[Build]) -> Build | str:
    """The task: one build that says what these say; or the name of one that is lost or damaged."""
    objects = place.open()
    descriptors = []
    for build in group:
        if damage_of(objects, build.name, build.checksum) is not None:
            return build.name
        descriptors.append(decode_descriptor(objects.get(build.name), build.name))
        files = descriptors[-1].files
        if any(damage_of(objects, file.name, file.checksum) is not None for file in files):
            return build.name
    store = BuildStore(objects, job)

    def open_file(file: File) -> pq.ParquetFile:
        return pq.ParquetFile(objects.open(file.name))

    return store.finish(merge_builds(descriptors, open_file, store.write))
