"""Where the records of a log are: builds, segments and memory, each of them once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest
from hostile import HostileDisk
from librarian import Librarian
from rig import CAPS, boot, small
from virtual import VirtualClock, VirtualLoop

from headrace.core.config import LogConfig
from headrace.core.match import TagEq
from headrace.core.record import draft
from headrace.engine.plans import searchable
from headrace.engine.searching.coverage import Coverage
from headrace.engine.searching.scope import Scope, look
from headrace.engine.start import Started
from headrace.search.query import parse_query
from headrace.storage.objects import LocalObjects
from headrace.storage.vanished import Vanished

SEARCH = {
    "primaryTimestampField": "at",
    "fields": {
        "at": {
            "kind": "date", "column": True,
            "bindings": [{"version": 1, "jsonPointer": "/at"}],
        },
        "n": {
            "kind": "integer", "column": True, "exact": True,
            "bindings": [{"version": 1, "jsonPointer": "/n"}],
        },
    },
}  # fmt: skip


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    with small():
        yield made
    made.close()


class Scene:
    """A topic `a` with a search configuration, and somebody who indexes it."""

    def __init__(self, started: Started, disk: HostileDisk) -> None:
        self.engine, self.upkeep = started.engine, started.upkeep
        self.librarian = Librarian(LocalObjects(HostileDisk(disk.world)))
        self.next = 0

    async def append(self, count: int) -> None:
        for _ in range(count):
            self.next += 1
            await self.engine.appender.append(
                "a",
                draft([b'{"n":%d}' % self.next], tags=[str(self.next)]),
                owner="topics",
                create=LogConfig(),
            )

    async def seal(self) -> None:
        self.upkeep.close_file()
        await self.upkeep.checkpoint()

    async def plan(self) -> None:
        await self.engine.plans.put("a", "topics", msgspec.json.encode(SEARCH))
        await self.upkeep._publication.publish_plans()

    async def take_over(self) -> None:
        await self.upkeep.generations.look()

    def scope(self) -> Scope:
        live = self.engine.live("a")
        return Scope(self.engine, live, searchable(live.log).plan.hash)

    def seen(self, scope: Scope) -> tuple[list[int], list[int]]:
        """What builds say is there, and what else there is."""
        search = searchable(self.engine.live("a").log).search
        cold: list[int] = []
        for part in scope.colds:
            with scope.lookup(part, search) as lookup:
                found = scope.only(part, lookup.find(parse_query("n:>=0", search)))
            cold += found.tolist()
        return cold, [seq for batch in scope.batches() for seq in batch.seqs]


def run(loop: VirtualLoop, story: Callable[[Scene], object], tail_bytes: int = 0) -> None:
    async def play() -> None:
        disk = HostileDisk()
        started = await boot(disk, VirtualClock(loop), caps=CAPS.__class__(tail_bytes=tail_bytes))
        scene = Scene(started, disk)
        await scene.append(4)
        await scene.plan()
        await scene.seal()
        await scene.append(4)
        await scene.seal()
        await scene.append(4)
        await story(scene)  # type: ignore[misc]

    loop.run(play())


@pytest.mark.parametrize("tail_bytes", [0, 1 << 20])
def test_every_record_is_somewhere_once(loop: VirtualLoop, tail_bytes: int) -> None:
    async def story(scene: Scene) -> None:
        assert scene.seen(scene.scope()) == ([], list(range(1, 13)))
        scene.librarian.index([1])
        await scene.take_over()
        assert scene.seen(scene.scope()) == ([1, 2, 3, 4], list(range(5, 13)))
        scene.librarian.index([2])
        await scene.take_over()
        assert scene.seen(scene.scope()) == (list(range(1, 9)), [9, 10, 11, 12])
        scene.librarian.merge(scene.librarian.manifest.builds)
        await scene.take_over()
        assert scene.seen(scene.scope()) == (list(range(1, 9)), [9, 10, 11, 12])

    run(loop, story, tail_bytes)


def test_the_dead_are_left_out(loop: VirtualLoop) -> None:
    async def story(scene: Scene) -> None:
        scene.librarian.index([1])
        await scene.take_over()
        for seq in (2, 6, 11):
            await scene.engine.deleter.delete("a", None, TagEq(str(seq)))
        assert scene.seen(scene.scope()) == ([1, 3, 4], [5, 7, 8, 9, 10, 12])

    run(loop, story)


def test_builds_of_another_plan_say_nothing(loop: VirtualLoop) -> None:
    async def story(scene: Scene) -> None:
        scene.librarian.index()
        await scene.take_over()
        other = msgspec.json.encode({**SEARCH, "aliases": {"m": "n"}})
        await scene.engine.plans.put("a", "topics", other)
        assert scene.seen(scene.scope()) == ([], list(range(1, 13)))
        live = scene.engine.live("a")
        # Keys are indexed whatever the plan.
        assert Scope(scene.engine, live, None).covered == [1, 8]

    run(loop, story)


def test_what_was_not_looked_at_is_counted(loop: VirtualLoop) -> None:
    async def story(scene: Scene) -> None:
        scene.librarian.index([1])
        await scene.take_over()
        await scene.engine.deleter.delete("a", None, TagEq("6"))
        scope = scene.scope()
        coverage = Coverage(scope)
        assert (coverage.missing_events, coverage.visible_through) == (11, 0)
        assert (coverage.missing_sealed, coverage.missing_tail, coverage.missing_segments) == (
            7,
            4,
            2,
        )
        coverage.saw_cold(scope.colds[0])
        assert (coverage.missing, coverage.visible_through) == ([5, 5, 7, 12], 4)
        for batch in scope.batches(rows=2):
            coverage.saw_hot(batch)
        assert coverage.complete
        assert coverage.visible_through == 12
        assert (coverage.indexed, coverage.scanned, coverage.scanned_tail_docs) == ({1}, {2}, 4)

    run(loop, story)


def test_documents_are_fetched_from_wherever_they_are(loop: VirtualLoop) -> None:
    async def story(scene: Scene) -> None:
        scene.librarian.index([1])
        await scene.take_over()
        found = scene.scope().fetch([1, 4, 5, 12, 13])
        assert found == {n: b'{"n":%d}' % n for n in (1, 4, 5, 12)}

    run(loop, story)


def test_a_build_that_vanished_is_looked_for_again(loop: VirtualLoop) -> None:
    async def story(scene: Scene) -> None:
        first = scene.librarian.index()
        await scene.take_over()
        second = scene.librarian.merge(first)
        scene.librarian.forget(first)

        async def take() -> tuple[list[int], list[int]]:
            return scene.seen(scene.scope())

        assert await look(scene.engine, take) == (list(range(1, 9)), [9, 10, 11, 12])
        scene.librarian.forget([second])
        scene.engine.segments.builds.use(scene.upkeep.manifest.__class__())  # nothing is open
        scene.engine.segments.builds.use(scene.upkeep.manifest)
        with pytest.raises(Vanished):
            await look(scene.engine, take)

    run(loop, story)
