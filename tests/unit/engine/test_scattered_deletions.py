"""What is left of a sealed log between deletions is read once, not once for each piece of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from unittest import mock

from headrace.core.config import LogConfig
from headrace.core.match import TagEq
from headrace.core.record import RECORD_OVERHEAD_BYTES, draft
from headrace.engine.search.scope import SearchScope
from support.fake_indexer import Reading, reading
from support.virtual import VirtualClock, VirtualLoop

RECORDS = 64
SIZE = 1 + RECORD_OVERHEAD_BYTES


def play(loop: VirtualLoop, story: Callable[[Reading], Awaitable[None]]) -> None:
    """A sealed topic of which every second record is deleted, in a few segments."""

    async def run() -> None:
        scene = await reading(VirtualClock(loop))
        half = RECORDS // 2
        for _ in range(2):
            drafts = draft([b"1"] * half, tags=["odd", "even"] * (half // 2))
            await scene.engine.appender.append("a", drafts, owner="topics", create=LogConfig())
            await scene.seal()
        await scene.engine.deleter.delete("a", None, TagEq("even"))
        assert scene.live.tail.start == RECORDS + 1
        await story(scene)

    loop.run(run())


def reads(scene: Reading) -> Any:
    segments = scene.engine.segments
    return mock.patch.object(segments, "read", wraps=segments.read)


def test_deleting_what_is_left_measures_each_segment_once(loop: VirtualLoop) -> None:
    async def story(scene: Reading) -> None:
        segments = len(scene.live.log.extents)
        with reads(scene) as read:
            _, count = await scene.engine.deleter.delete("a", RECORDS - 1, None)
        assert count == RECORDS // 2 - 1
        assert read.call_count <= segments
        assert scene.live.log.size_bytes == SIZE

    play(loop, story)


def test_a_search_without_builds_reads_each_segment_once(loop: VirtualLoop) -> None:
    async def story(scene: Reading) -> None:
        await scene.engine.appender.append("a", draft([b"1"] * 3), owner="topics", create=None)
        segments = len(scene.live.log.extents)
        with reads(scene) as read:
            batches = SearchScope(scene.engine, scene.live, None).batches()
            seqs = [seq for batch in batches for seq in batch.seqs]
        assert seqs == [*range(1, RECORDS, 2), RECORDS + 1, RECORDS + 2, RECORDS + 3]
        assert read.call_count <= segments

    play(loop, story)


def test_what_lies_between_the_ranges_that_are_asked_for_is_left_out(loop: VirtualLoop) -> None:
    async def story(scene: Reading) -> None:
        wanted = ((3, 4), (6, 6), (RECORDS // 2, RECORDS // 2 + 1), (RECORDS, RECORDS + 9))
        parts = scene.engine.segments.parts(scene.live.log, wanted)
        seqs = [part.seq_at(at) for part in parts for at in range(part.count)]
        assert seqs == [3, 4, 6, RECORDS // 2, RECORDS // 2 + 1, RECORDS]

    play(loop, story)
