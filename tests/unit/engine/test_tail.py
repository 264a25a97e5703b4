"""The newest records of a log: what is remembered of them leaves with them."""

from __future__ import annotations

from unittest import mock

from headrace.core.match import TagEq, TagPrefix
from headrace.core.record import Block, block, draft
from headrace.engine.tail import Tail
from support.fake_indexer import reading
from support.virtual import VirtualClock, VirtualLoop


def tagged(first: int, *tags: str | None) -> Block:
    return block(draft([b"{}"] * len(tags), None, list(tags)), first, 0)


def test_tags_of_records_that_left_memory_are_forgotten() -> None:
    tail = Tail(1)
    for seq in range(1, 10_001):
        tail.add(tagged(seq, f"tag-{seq}"))
        tail.drop_to(seq - 10)
    assert tail.tags is not None
    assert len(tail.tags) == 10
    tail.drop_to(10_000)
    assert tail.tags is None


def test_tags_are_found_while_records_come_and_go() -> None:
    tail = Tail(1)
    tail.add(tagged(1, "a", "b", "a", None))
    tail.add(tagged(5, "a", "ab"))
    assert [seq for seq, _ in tail.tagged(TagEq("a"), 100)] == [1, 3, 5]
    assert [seq for seq, _ in tail.tagged(TagPrefix("a"), 6)] == [1, 3, 5]
    tail.drop_to(4)
    assert [seq for seq, _ in tail.tagged(TagEq("a"), 100)] == [5]
    assert [seq for seq, _ in tail.tagged(TagEq("b"), 100)] == []
    assert [seq for seq, _ in tail.tagged(TagPrefix(""), 100)] == [5, 6]
    tail.add(tagged(7, "b"))
    assert [seq for seq, _ in tail.tagged(TagPrefix(""), 100)] == [5, 6, 7]


def test_records_leave_memory_in_steps(loop: VirtualLoop) -> None:
    """A log may have a hundred thousand blocks to let go of: others have turns in between."""

    async def story() -> None:
        scene = await reading(VirtualClock(loop), 1 << 20)
        await scene.append([b"1"] * 5)
        await scene.seal()
        tail, log = scene.live.tail, scene.live.log
        held = [len(tail.blocks)]
        with mock.patch("headrace.engine.upkeep.cycle.FREED_BLOCKS_MAX", 2):
            for _ in scene.upkeep._free([(log.id, 4), (log.id + 1, 9)]):
                held.append(len(tail.blocks))
        assert held == [5, 3, 1]
        assert tail.start == 5
        assert scene.engine.tail_bytes == tail.drop_to(5)

    loop.run(story())
