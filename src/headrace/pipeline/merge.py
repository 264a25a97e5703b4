"""Merging builds: eight neighbours of a level become one of the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from headrace.core.batching import batches
from headrace.formats.manifest import Build, Manifest
from headrace.pipeline import crash_points
from headrace.pipeline.build_files import BuildStore, LostBuild, read_descriptors
from headrace.pipeline.commit import add_builds, drop_builds
from headrace.pipeline.groups import run_groups
from headrace.pipeline.index_backlog import IndexBacklogFinder, Unit
from headrace.pipeline.kernels.builds import merge_builds
from headrace.pipeline.limits import INDEX_GROUP, MERGE, MERGE_BYTES_MAX
from headrace.pipeline.report import Report, no_progress
from headrace.pipeline.store_location import StoreLocation
from headrace.pipeline.tasks import describe, run_tasks
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


def merge_all(
    spark: SparkSession, place: StoreLocation, pending: IndexBacklogFinder | None = None
) -> Iterator[tuple[int, list[Build]]]:
    """The same, telling of each level."""
    pending = pending or IndexBacklogFinder(place, spark)
    while True:
        work = pending.look()
        groups = find_groups(work.manifest, work.units)
        if not groups:
            return
        lowest = min(group[0].level for group in groups)
        chosen = [group for group in groups if group[0].level == lowest]
        # What fails is found again, and raised when there is nothing else to do.
        steps, _ = run_groups(
            spark,
            partial(_merge, spark, place),
            list(batches(chosen, len, INDEX_GROUP * MERGE)),
            no_progress,
            "group",
        )
        done = [build for step in steps for build in step.builds]
        if not done and not any(step.lost for step in steps):
            return  # somebody else is at it
        yield lowest + 1, done


class Merged(msgspec.Struct, frozen=True):
    """What became of some groups of builds."""

    builds: list[Build]
    lost: frozenset[str]
    """Builds that were damaged or not there, by the names of what describes them."""


def _merge(spark: SparkSession, place: StoreLocation, groups: Sequence[Sequence[Build]]) -> Merged:
    """Merge some groups, one task for each, and publish what that makes."""
    objects = place.open()
    first, last = groups[0][0].segments[0], groups[-1][-1].segments[-1]
    with (
        describe(spark, f"merge builds of segments {first}–{last}"),
        hold_lease(objects, "merge") as lease,
    ):
        task = partial(merge_group, place, lease.token)
        answers = run_tasks(spark, place, task, groups, lease.token)
        crash_points.point("merged")
        lost = frozenset(answer for answer in answers if isinstance(answer, str))
        new = [answer for answer in answers if isinstance(answer, Build)]
        if lost:
            drop_builds(objects, lost)
        listed = {build.name for build in add_builds(objects, new, lease).manifest.builds}
    return Merged([build for build in new if build.name in listed], lost)


def merge_group(place: StoreLocation, job: str, group: Sequence[Build]) -> Build | str:
    """The task: one build that says what these say; or the name of one that is lost or damaged."""
    objects = place.open()
    store = BuildStore(objects, job)
    try:
        return store.finish(merge_builds(read_descriptors(objects, group), store.read, store.write))
    except LostBuild as lost:
        return lost.name
