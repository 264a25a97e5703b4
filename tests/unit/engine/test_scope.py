"""Where the records of a log are: builds, segments and memory, each of them once."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from headrace.engine.search.coverage import Coverage
from headrace.engine.search.scope import SearchScope
from headrace.engine.search.search_configs import searchable
from headrace.engine.search.time_slices import Deadline
from headrace.search.query import parse_query
from support.fake_indexer import Reading, reading
from support.virtual import VirtualClock, VirtualLoop

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


def docs(count: int, start: int = 1) -> list[bytes]:
    return [b'{"n":%d}' % n for n in range(start, start + count)]


def scope_of(scene: Reading) -> SearchScope:
    return SearchScope(scene.engine, scene.live, searchable(scene.live.log).plan.hash)


def seen(scene: Reading) -> tuple[list[int], list[int]]:
    """What builds say is there, and what else there is."""
    scope = scope_of(scene)
    search = searchable(scene.live.log).search
    cold: list[int] = []
    for part in scope.indexed_spans:
        with scope.lookup(part, search) as lookup:
            found = scope.only(part, lookup.find(parse_query("n:>=0", search)))
        cold += found.tolist()
    return cold, [seq for batch in scope.batches() for seq in batch.seqs]


def run(loop: VirtualLoop, story: Callable[[Reading], object], tail_bytes: int = 0) -> None:
    async def play() -> None:
        scene = await reading(VirtualClock(loop), tail_bytes)
        await scene.append(docs(4))
        await scene.plan(SEARCH)
        await scene.seal()
        await scene.append(docs(4, 5))
        await scene.seal()
        await scene.append(docs(4, 9))
        await story(scene)  # type: ignore[misc]

    loop.run(play())


@pytest.mark.parametrize("tail_bytes", [0, 1 << 20])
def test_every_record_is_somewhere_once(loop: VirtualLoop, tail_bytes: int) -> None:
    async def story(scene: Reading) -> None:
        assert seen(scene) == ([], list(range(1, 13)))
        scene.fake_indexer.index([1])
        await scene.take_over()
        assert seen(scene) == ([1, 2, 3, 4], list(range(5, 13)))
        scene.fake_indexer.index([2])
        await scene.take_over()
        assert seen(scene) == (list(range(1, 9)), [9, 10, 11, 12])
        scene.fake_indexer.merge(scene.fake_indexer.manifest.builds)
        await scene.take_over()
        assert seen(scene) == (list(range(1, 9)), [9, 10, 11, 12])

    run(loop, story, tail_bytes)


def test_the_dead_are_left_out(loop: VirtualLoop) -> None:
    async def story(scene: Reading) -> None:
        scene.fake_indexer.index([1])
        await scene.take_over()
        for seq in (2, 6, 11):
            await scene.delete(seq)
        assert seen(scene) == ([1, 3, 4], [5, 7, 8, 9, 10, 12])

    run(loop, story)


def test_holes_do_not_make_batches_small(loop: VirtualLoop) -> None:
    async def story(scene: Reading) -> None:
        for seq in (2, 4, 6, 10):
            await scene.delete(seq)
        batches = list(scope_of(scene).batches())
        assert [batch.seqs for batch in batches] == [[1, 3, 5, 7, 8], [9, 11, 12]]
        assert [batch.sealed for batch in batches] == [True, False]
        scope = scope_of(scene)
        assert [(low, high) for low, high, _ in scope.pieces(1, 12)] == [(1, 12)]
        assert [batch.seqs for batch in scope.records(3, 9, Deadline())] == [[3, 5, 7, 8], [9]]

    run(loop, story)


def test_builds_of_another_plan_say_nothing(loop: VirtualLoop) -> None:
    async def story(scene: Reading) -> None:
        scene.fake_indexer.index()
        await scene.take_over()
        other = msgspec.json.encode({**SEARCH, "aliases": {"m": "n"}})
        await scene.engine.search_configs.put("a", "topics", other)
        assert seen(scene) == ([], list(range(1, 13)))
        # Keys are indexed whatever the plan.
        assert SearchScope(scene.engine, scene.live, None).covered == [1, 8]

    run(loop, story)


def test_what_was_not_looked_at_is_counted(loop: VirtualLoop) -> None:
    async def story(scene: Reading) -> None:
        scene.fake_indexer.index([1])
        await scene.take_over()
        await scene.delete(6)
        scope = scope_of(scene)
        coverage = Coverage(scope)
        assert (coverage.missing_events, coverage.visible_through) == (11, 0)
        assert (coverage.missing_sealed, coverage.missing_tail, coverage.missing_segments) == (
            7,
            4,
            2,
        )
        coverage.saw_indexed(scope.indexed_spans[0])
        assert (coverage.missing, coverage.visible_through) == ([5, 5, 7, 12], 4)
        for batch in scope.batches(rows=2):
            coverage.saw_scanned(batch)
        assert coverage.complete
        assert coverage.visible_through == 12
        assert (coverage.indexed, coverage.scanned, coverage.scanned_tail_docs) == ({1}, {2}, 4)

    run(loop, story)


def test_documents_are_fetched_from_wherever_they_are(loop: VirtualLoop) -> None:
    async def story(scene: Reading) -> None:
        scene.fake_indexer.index([1])
        await scene.take_over()
        found = scope_of(scene).fetch([1, 4, 5, 12, 13])
        assert found == {n: b'{"n":%d}' % n for n in (1, 4, 5, 12)}

    run(loop, story)


def test_a_build_that_vanished_is_looked_for_again(loop: VirtualLoop) -> None:
    async def story(scene: Reading) -> None:
        first = scene.fake_indexer.index()
        await scene.take_over()
        second = scene.fake_indexer.merge(first)
        scene.fake_indexer.forget(first)

        async def take() -> tuple[list[int], list[int]]:
            return seen(scene)

        assert await scene.engine.fetcher.again(take) == (list(range(1, 9)), [9, 10, 11, 12])
        scene.fake_indexer.forget([second])
        scene.engine.segments.builds.use(scene.upkeep.manifest.__class__())  # nothing is open
        scene.engine.segments.builds.use(scene.upkeep.manifest)
        assert await scene.engine.fetcher.again(take) == ([], list(range(1, 13))), "all is scanned"
        assert scene.upkeep.manifest.builds == ()

    run(loop, story)
