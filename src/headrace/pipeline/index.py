"""Indexing: a build for each segment that waits for one, made by a task, published with others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.core.errors import Corrupt
from headrace.formats.manifest import Build, Named, Segment
from headrace.formats.segment import has_page_checksums
from headrace.pipeline import crash_points
from headrace.pipeline.build_files import (
    BuildStore,
    LostBuild,
    read_descriptor,
    read_descriptors,
    remove_build,
)
from headrace.pipeline.commit import add_builds, drop_builds
from headrace.pipeline.failures import failure, is_lost_task
from headrace.pipeline.groups import run_groups
from headrace.pipeline.index_backlog import (
    IndexBacklog,
    Unit,
    changed_logs,
    grouped,
    logs_in,
    recall_plans,
)
from headrace.pipeline.kernels.build import build, bytes_to_read
from headrace.pipeline.kernels.builds import refresh_build
from headrace.pipeline.limits import ATTEMPTS, MERGE_BYTES_MAX, WHOLE_SHARE
from headrace.pipeline.report import Progress, no_progress
from headrace.pipeline.segment_index import read_index
from headrace.pipeline.store_location import StoreLocation, get_named
from headrace.pipeline.tasks import attempt, describe, run_tasks
from headrace.storage.leases import HeldLease, hold_lease
from headrace.storage.objects import Objects
from headrace.storage.segments import UNREADABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


NOTHING_TO_INDEX = "nothing to index: every segment has the companions that it should have"


class Failure(msgspec.Struct, frozen=True):
    """A segment that could not be indexed."""

    segment: int
    problem: str


class DamagedBuild(msgspec.Struct, frozen=True):
    """A build that is damaged or not there, by the name of what describes it."""

    build: str


class Skipped(msgspec.Struct, frozen=True):
    """Nothing was made: of a segment in which nothing changed, or by plans that are gone."""

    by_newer: bool = False
    """There are newer plans."""


class Indexed(msgspec.Struct):
    """What was done."""

    segments: int = 0
    rows: int = 0
    file_bytes: int = 0
    failures: list[Failure] = msgspec.field(default_factory=list)
    problems: list[str] = msgspec.field(default_factory=list)
    """What befell groups of segments, which wait as before."""

    def lines(self) -> list[str]:
        """What is wrong, each in a line."""
        lost = [f"segment {one.segment} cannot be indexed: {one.problem}" for one in self.failures]
        return lost + self.problems


Answer = Build | Failure | DamagedBuild | Skipped
Item = tuple[Segment, Build | None]
"""A segment, and the build that is to be kept but for what is outdated in it."""
Refresh = tuple[Unit, list[Build]]
"""Segments of such a build, and what was made of them in place of that."""
T = TypeVar("T")


def index(
    spark: SparkSession,
    place: StoreLocation,
    work: IndexBacklog,
    units: Sequence[Unit],
    progress: Progress[list[Unit]] = no_progress,
    note: Callable[[Indexed], None] = lambda done: None,
) -> Indexed:
    """Index these units, one task for each segment, in groups side by side; what a group makes is
    published when it is done, whatever becomes of the others, and noted in its thread.
    """

    def work_on(group: list[Unit]) -> Indexed:
        done = _index_group(spark, place, work, group)
        note(done)
        return done

    done, problems = run_groups(spark, work_on, list(grouped(units)), progress, "group")
    return total([*done, Indexed(problems=problems)])


def _index_group(
    spark: SparkSession, place: StoreLocation, work: IndexBacklog, units: Sequence[Unit]
) -> Indexed:
    objects = place.open()
    numbers = [segment.number for unit in units for segment in unit.segments]
    which = f"index segments {min(numbers)}–{max(numbers)}"
    with describe(spark, which), hold_lease(objects, "index") as lease:
        return GroupIndexer(spark, place, objects, work, lease).run(units)


class GroupIndexer:
    """Indexes a group of units by the plans of one manifest, under one lease."""

    def __init__(
        self,
        spark: SparkSession,
        place: StoreLocation,
        objects: Objects,
        work: IndexBacklog,
        lease: HeldLease,
    ) -> None:
        self._spark = spark
        self._place = place
        self._objects = objects
        self._plans, self._generation = work.manifest.plans, work.generation
        self._lease = lease

    def run(self, units: Sequence[Unit]) -> Indexed:
        """Index units and publish those that are whole."""
        items = [(segment, unit.held) for unit in units for segment in unit.segments]
        answers = self._build(items)
        crash_points.point("built")
        by_number = {s.number: answer for (s, _), answer in zip(items, answers, strict=True)}
        made: list[Build] = []
        kept: list[Refresh] = []
        anew: list[Unit] = []
        """Units whose build is lost, or too large to be joined with others."""
        for unit in units:
            found = [by_number[segment.number] for segment in unit.segments]
            builds = [answer for answer in found if isinstance(answer, Build)]
            if any(isinstance(answer, DamagedBuild) for answer in found):
                anew.append(Unit(unit.segments))
            elif not all(isinstance(answer, Build) or answer == Skipped() for answer in found):
                continue
            elif unit.held is None:
                made += builds
            elif sum(b.file_bytes for b in (unit.held, *builds)) > MERGE_BYTES_MAX:
                anew.append(Unit(unit.segments))
            else:
                kept.append((unit, builds))
        joined = self._refresh(kept)
        made += [answer for answer in joined if isinstance(answer, Build)]
        anew += [
            Unit(unit.segments)
            for (unit, _), answer in zip(kept, joined, strict=True)
            if isinstance(answer, DamagedBuild)
        ]
        told = [*answers, *joined]
        self._publish(made, {answer.build for answer in told if isinstance(answer, DamagedBuild)})
        self._remove(
            [
                answer
                for (_, held), answer in zip(items, answers, strict=True)
                if held is not None and isinstance(answer, Build)
            ]
        )
        done = Indexed(
            sum(len(build.segments) for build in made),
            sum(build.rows for build in made),
            sum(build.file_bytes for build in made),
            [answer for answer in told if isinstance(answer, Failure)],
        )
        return total([done, self.run(anew)]) if anew else done

    def _build(self, items: Sequence[Item]) -> Sequence[Answer]:
        """What is made of each segment."""
        task = partial(build_segment, self._place, self._plans, self._generation, self._lease.token)
        return self._run("build", task, items, [segment.number for segment, _ in items])

    def _refresh(self, kept: Sequence[Refresh]) -> Sequence[Answer]:
        """Builds with what was made anew in place of what they knew of it."""
        items = [(unit.held, builds) for unit, builds in kept]
        task = partial(refresh_segments, self._place, self._lease.token)
        return self._run("join", task, items, [unit.segments[0].number for unit, _ in kept])

    def _run(
        self, step: str, task: Callable[[T], Answer], items: Sequence[T], numbers: Sequence[int]
    ) -> Sequence[Answer]:
        """What tasks answer. One that fails for good takes its job along: so it is tried again in
        halves, until the one is found that does it.
        """
        if not items:
            return []
        try:
            with describe(self._spark, step):
                return run_tasks(self._spark, self._place, task, items, self._lease.token)
        except Exception as error:
            if not is_lost_task(error):
                raise
            if len(items) == 1:
                return [Failure(numbers[0], str(failure(error)))]
            half = len(items) // 2
            return [
                *self._run(step, task, items[:half], numbers[:half]),
                *self._run(step, task, items[half:], numbers[half:]),
            ]

    def _publish(self, made: Sequence[Build], lost: Collection[str]) -> None:
        if lost:
            drop_builds(self._objects, lost)
        if made:
            add_builds(self._objects, made, self._lease)

    def _remove(self, parts: Sequence[Build]) -> None:
        """Remove what was made only to be joined with others."""
        if parts:
            task = partial(remove_part, self._place)
            with describe(self._spark, "remove what was joined"):
                run_tasks(self._spark, self._place, task, parts, sizes=[0] * len(parts))


def build_segment(
    place: StoreLocation, plans: Named | None, generation: int, job: str, item: Item
) -> Answer:
    """The task: read one segment, write its companions, say how they are called."""
    objects, (segment, held) = place.open(), item
    wanted = recall_plans(objects, plans)
    if wanted is None:
        return Skipped(by_newer=True)
    try:
        table, only = read_index(objects, segment), None
        if held is not None:
            only = logs_in(table, changed_logs(wanted, read_descriptor(objects, held)))
            if not only:
                return Skipped()
        crash_points.point("task")
        store = BuildStore(objects, job)
        planned = {plan.log_id for plan in wanted.plans} if only is None else only
        rows = open_checked(
            objects, segment, lambda footer: bytes_to_read(footer, table, planned, only)
        )
        number = segment.number
        return store.finish(
            build(
                rows, table, wanted, store.write, segment=number, generation=generation, only=only
            )
        )
    except LostBuild as lost:
        return DamagedBuild(lost.name)
    except (*UNREADABLE, Corrupt) as error:
        if attempt() < ATTEMPTS - 1 and not isinstance(error, Corrupt):
            raise  # perhaps it goes better next time
        named = str(error) if isinstance(error, Corrupt) else f"{segment.name}: {error}"
        return Failure(segment.number, named)


def open_checked(
    objects: Objects, segment: Segment, needed: Callable[[pq.FileMetaData], int]
) -> pq.ParquetFile:
    """The rows of a segment; whoever reads damaged ones is told.

    Where little of it is needed, that alone is fetched, and each page compared with its checksum.
    Else, or where pages have none, all of it, and compared with the manifest's.
    """
    try:
        rows = pq.ParquetFile(
            objects.open(segment.name), page_checksum_verification=True, pre_buffer=True
        )
        footer = rows.metadata
        sound = has_page_checksums(footer) and footer.num_rows == segment.rows
        if sound and needed(footer) <= WHOLE_SHARE * segment.file_bytes:
            return rows
    except (pa.ArrowException, ValueError):
        pass  # the checksum of the whole says that it is damaged
    return pq.ParquetFile(pa.BufferReader(get_named(objects, segment)))


def refresh_segments(place: StoreLocation, job: str, item: tuple[Build, Sequence[Build]]) -> Answer:
    """The task: one build of another and what was made anew of some logs of its segments."""
    objects, (held, fresh) = place.open(), item
    store = BuildStore(objects, job)
    try:
        old, *new = read_descriptors(objects, [held, *fresh])
        return store.finish(refresh_build(old, new, store.read, store.write))
    except LostBuild as lost:
        return DamagedBuild(lost.name)


def remove_part(place: StoreLocation, build: Build) -> None:
    """The task: remove a build that was joined with another."""
    with suppress(LostBuild):  # removed by an attempt before
        remove_build(place.open(), build)


def total(done: Iterable[Indexed]) -> Indexed:
    """All of it together."""
    parts = list(done)
    return Indexed(
        sum(part.segments for part in parts),
        sum(part.rows for part in parts),
        sum(part.file_bytes for part in parts),
        [failure for part in parts for failure in part.failures],
        [problem for part in parts for problem in part.problems],
    )
