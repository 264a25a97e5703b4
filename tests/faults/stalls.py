"""Jobs of the pipeline that stand still at a step while somebody else acts; without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.formats import layout
from headrace.formats.companion import decode_descriptor
from headrace.formats.manifest import Segment
from headrace.formats.segment import SCHEMA
from headrace.pipeline import commit, compact, crash_points, erase, groups, index, marks, merge
from headrace.pipeline.errors import JobFailed
from headrace.pipeline.index_backlog import IndexBacklogFinder
from headrace.pipeline.janitor import find_objects, owner, remove_unnamed
from headrace.pipeline.marks import Work
from headrace.pipeline.rewrite import write
from headrace.storage import manifests
from headrace.storage.leases import now_ms
from headrace.storage.objects import Listed, LocalObjects, Objects
from support.hostile import HostileDisk, World

HOUR_MS = 3_600_000
Act = Callable[["Store"], None]


class Store(LocalObjects):
    """Objects of a world with a clock that can be moved."""

    def __init__(self, world: World) -> None:
        self.now_ms = HOUR_MS
        self._stamps: dict[str, int] = {}
        self._slow: list[str] | None = None
        self._left: list[str] = []
        super().__init__(HostileDisk(world))

    def put(self, name: str, content: bytes) -> None:
        super().put(name, content)
        self._stamps[name] = self.now_ms

    def put_new(self, name: str, content: bytes) -> bool:
        done = super().put_new(name, content)
        if done:
            self._stamps[name] = self.now_ms
        return done

    def look(self, name: str) -> Listed | None:
        listed = super().look(name)
        if listed is None:
            return None
        return msgspec.structs.replace(listed, modified_ms=self._stamps.get(name, 0))

    def remove(self, name: str) -> None:
        if self._slow is None:
            super().remove(name)
        else:
            self._slow.append(name)

    @contextmanager
    def slow(self) -> Iterator[None]:
        """What is removed here goes at the end of the job only."""
        self._slow = self._left
        yield
        self._slow = None

    def settle_removals(self) -> None:
        while self._left:
            super().remove(self._left.pop())

    def missing(self) -> list[str]:
        """What the newest manifest names and is not there."""
        manifest = manifests.load(self)
        names = commit.named(manifest)
        for build in manifest.builds:
            with suppress(FileNotFoundError):
                descriptor = decode_descriptor(self.get(build.name), build.name)
                names |= {file.name for file in descriptor.files}
        return sorted(name for name in names if self.look(name) is None)

    def left(self) -> list[str]:
        """What holds records, or is made from them, and is named by no manifest."""
        names = commit.named(manifests.load(self))
        return [listed.name for listed in find_objects(self) if owner(listed.name) not in names]


def janitor(store: Store) -> None:
    """One that waits for nobody."""
    remove_unnamed(store, now_ms(store))


def late_janitor(store: Store) -> None:
    """The same, when nobody has heard of the job for hours."""
    store.now_ms += 3 * HOUR_MS
    janitor(store)


def slow_janitor(store: Store) -> None:
    """The same, and what it has decided on it does when the job is over."""
    store.now_ms += 3 * HOUR_MS
    young_ms = now_ms(store)
    with store.slow():
        remove_unnamed(store, young_ms)


def stranger(store: Store) -> None:
    """Somebody who asks nobody: a rule of the bucket, an operator. Takes one file of each job."""
    named = commit.named(manifests.load(store))
    for folder in (layout.COMPANIONS, layout.BUILDS):
        for listed in store.list(folder)[-1:]:
            if layout.is_foreign(listed.name) and layout.build_of(listed.name) not in named:
                store.remove(listed.name)


# --- the jobs, with loops in place of Spark ---


def _run_tasks(
    spark: object,
    place: Any,
    work: Callable[[Any], Any],
    items: Sequence[Any],
    job: str | None = None,
    sizes: Sequence[int] | None = None,
) -> list[Any]:
    return [work(item) for item in items]


def _rewrite(
    spark: object, place: Any, parts: Sequence[Sequence[Segment]], work: Work, output_bytes: int
) -> list[list[Segment]]:
    objects: Objects = place.open()
    made: list[list[Segment]] = [[] for _ in parts]
    for output, part in enumerate(parts):
        tables = [pq.read_table(objects.open(segment.name)) for segment in part]
        rows = pa.concat_tables(tables).cast(SCHEMA)
        rows = rows.sort_by([(name, "ascending") for name in ("log", "log_id", "seq")])
        dead = work.marks.deaths().dead(*(rows.column(n).to_numpy() for n in ("log_id", "seq")))
        rows = pc.filter(rows, pa.array(~dead)).combine_chunks()
        crash_points.point("task")
        if len(rows):
            made[output].append(write(objects, f"{work.lease.token}-t-{output}", [rows]))
    crash_points.point("rewritten")
    return made


def _run_groups(
    spark: object,
    work: Callable[[Any], Any],
    groups: Sequence[Any],
    progress: object,
    unit: str,
) -> tuple[list[Any], list[str]]:
    return [work(group) for group in groups], []


def _find_dead(spark: object, place: Any, logs: object) -> tuple[list[Segment], list[str]]:
    return list(manifests.load(place.open()).segments), []


def _index(place: Any) -> None:
    work = IndexBacklogFinder(place).look()
    index.index(None, place, work, work.units)  # type: ignore[arg-type]


def _merge(place: Any) -> None:
    for _ in merge.merge_all(None, place):  # type: ignore[arg-type]
        pass


def _compact(place: Any) -> None:
    segments = manifests.load(place.open()).segments
    with suppress(compact.Overtaken):
        compact._compact(None, place, compact.Sizes(), list(segments[:3]))  # type: ignore[arg-type]


def _erase(place: Any) -> None:
    erase.erase(None, place, now=True)  # type: ignore[arg-type]


JOBS: dict[str, Callable[[Any], None]] = {
    "index": _index,
    "merge": _merge,
    "compact": _compact,
    "erase": _erase,
}


@contextmanager
def _without_spark() -> Iterator[None]:
    with (
        mock.patch.object(index, "run_groups", _run_groups),
        mock.patch.object(index, "run_tasks", _run_tasks),
        mock.patch.object(merge, "run_groups", _run_groups),
        mock.patch.object(index, "attempt", return_value=9),
        mock.patch.object(merge, "run_tasks", _run_tasks),
        mock.patch.object(marks, "run_tasks", _run_tasks),
        mock.patch.object(groups, "count_slots", return_value=1),
        mock.patch.object(compact, "rewrite", _rewrite),
        mock.patch.object(compact, "prove"),
        mock.patch.object(compact, "require_sound"),
        mock.patch.object(erase, "rewrite", _rewrite),
        mock.patch.object(erase, "prove"),
        mock.patch.object(erase, "find_damages", return_value={}),
        mock.patch.object(erase, "tell_remains", return_value=[]),  # there is no directory
        mock.patch.object(erase, "find_dead", _find_dead),
    ):
        yield


def run(job: str, store: Store, stall_at: int, act: Act) -> tuple[list[str], bool]:
    """The steps a job takes, and whether it came to its end; at one of them somebody acts."""
    steps: list[str] = []

    def point(step: str) -> None:
        steps.append(step)
        if len(steps) - 1 == stall_at:
            with mock.patch.object(crash_points, "point"):
                act(store)

    place = SimpleNamespace(open=lambda: store)
    with _without_spark(), mock.patch.object(crash_points, "point", point):
        try:
            JOBS[job](place)
        except JobFailed:
            return steps, False
        finally:
            store.settle_removals()
    return steps, True
