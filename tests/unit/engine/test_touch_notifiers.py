"""Boards: changes are noted when they are durable, in order, and wake whom they concern."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from headrace.core.errors import Refused
from headrace.core.limits import TOUCH_IDLE_MS
from headrace.core.record import draft
from headrace.core.stream_rules import Spec
from headrace.core.stream_state import JSON, Write
from headrace.engine.engine import Engine
from headrace.engine.streams.touch_notifier import Interest, TouchNotifier
from headrace.profiles.catalogue import parse_profile
from headrace.profiles.templates import Template, parse_wanted
from headrace.profiles.touchkeys import id_of, table_key, watch_key
from support.engine_harness import boot
from support.hostile import HostileDisk
from support.virtual import VirtualClock, VirtualLoop

TODOS = id_of(table_key("todos"))


def change(entity: str = "todos", **value: Any) -> bytes:
    record = {"type": entity, "key": "1", "value": value, "headers": {"operation": "insert"}}
    return msgspec.json.encode(record)


class Room:
    """An engine with one stream of state."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def open(self, **touch: Any) -> TouchNotifier:
        live, _ = await self.engine.streams.create("s", Spec(content_type=JSON), None)
        await self.adopt(**touch)
        return self.engine.touch_notifiers.notifier(live)

    async def adopt(self, **touch: Any) -> None:
        live = self.engine.streams.find("s")
        profile = parse_profile({"kind": "state-protocol", "touch": {"enabled": True, **touch}})
        await self.engine.ingest.install_profile(live, profile)

    async def write(self, *raws: bytes) -> None:
        await self.engine.streams.write("s", draft(raws), Write(JSON))


async def wait(board: TouchNotifier, *ids: int, wait_ms: int = 60_000) -> bool:
    watch = board.watch(Interest(frozenset(ids), (), False), board.generation, wait_ms)
    with board.waiter(watch, wait_ms) as waiter:
        return await waiter.wait()


def test_nothing_is_touched_before_it_is_durable(loop: VirtualLoop) -> None:
    async def story() -> None:
        slow = 0.0
        started = await boot(HostileDisk(), VirtualClock(loop), delay_s=lambda: slow)
        room = Room(started.engine)
        board = await room.open()
        slow = 2.0
        waiting = asyncio.create_task(wait(board, TODOS))
        writing = asyncio.create_task(room.write(change()))
        await asyncio.sleep(1.0)
        assert not waiting.done()
        assert board.settled
        await writing
        assert await waiting
        assert (board.generation, board.flushed) == (1, 1)

    loop.run(story())


def test_the_first_change_wakes_at_once_and_more_of_them_together(loop: VirtualLoop) -> None:
    async def story() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        room = Room(started.engine)
        board = await room.open()
        await room.write(change())
        await asyncio.sleep(0.01)
        assert board.generation == 1
        for _ in range(5):
            await room.write(change())
        await asyncio.sleep(0.01)
        assert board.generation == 1
        began = loop.time()
        assert await wait(board, TODOS)
        assert loop.time() - began < 0.1
        assert (board.generation, board.flushed) == (2, 6)
        assert not await wait(board, TODOS, wait_ms=120_000)

    loop.run(story())


def test_tables_are_told_at_their_own_interval(loop: VirtualLoop) -> None:
    async def story() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        room = Room(started.engine)
        board = await room.open(coarseIntervalMs=10_000)
        (template,) = board.activate([parse_wanted("todos", [("t", "string")])], None)
        assert isinstance(template, Template)
        mine = id_of(watch_key(template.id, [b"a"]))

        async def took(*ids: int) -> float:
            began = loop.time()
            assert await wait(board, *ids)
            return loop.time() - began

        first = [asyncio.create_task(took(id)) for id in (TODOS, mine)]
        await asyncio.sleep(0)
        await room.write(change(t="a"))
        assert max([await each for each in first]) < 0.1, "nobody was told for long"
        coarse = asyncio.create_task(took(TODOS))
        for _ in range(3):
            fine = asyncio.create_task(took(mine))
            await asyncio.sleep(0)
            await room.write(change(t="a"))
            assert await fine < 0.2
            assert not coarse.done()
            assert not board.settled
        assert 9 < await coarse < 10.5
        assert board.settled
        assert not await wait(board, TODOS, wait_ms=120_000)

    loop.run(story())


def test_who_settles_does_not_wait_for_the_interval_of_tables(loop: VirtualLoop) -> None:
    async def story() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        room = Room(started.engine)
        board = await room.open(coarseIntervalMs=10_000)
        for generation in (1, 2, 3):
            await room.write(change())
            await board.wait_settled(1000)
            assert (board.settled, board.generation, board.flushed) == (
                True,
                generation,
                generation,
            )

    loop.run(story())


def test_a_template_is_not_younger_than_what_was_noted_before(loop: VirtualLoop) -> None:
    async def story() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        room = Room(started.engine)
        board = await room.open(coarseIntervalMs=10_000)
        await room.write(change())
        await asyncio.sleep(0.01)
        cursor = board.generation
        await room.write(change(t="a"))
        await asyncio.sleep(0.2)
        assert not board.settled, "the table is told later"
        (template,) = board.activate([parse_wanted("todos", [("t", "string")])], None)
        assert isinstance(template, Template)
        mine = id_of(watch_key(template.id, [b"a"]))
        watch = board.watch(Interest(frozenset([mine]), (template.id,), False), cursor, 1000)
        assert board.is_touched(watch, cursor)

    loop.run(story())


def test_a_small_filter_remembers_few_keys(loop: VirtualLoop) -> None:
    async def story() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        room = Room(started.engine)
        board = await room.open(memory={"filterPow2": 2, "bucketMs": 1}, touchCoalesceWindowMs=1)
        for entity in "abcdefgh":
            await room.write(change(entity))
            await board.wait_settled(1000)
        assert len(board.touches) <= 4
        untouched = board.watch(Interest(frozenset([1]), (), False), 0, 1000)
        assert board.is_touched(untouched, 0), "so far back nobody knows"
        assert not board.is_touched(untouched, board.generation - 1)

    loop.run(story())


def test_templates_that_nobody_uses_are_not_looked_at_for_long(loop: VirtualLoop) -> None:
    async def story() -> None:
        clock = VirtualClock(loop)
        started = await boot(HostileDisk(), clock)
        room = Room(started.engine)
        board = await room.open(templates={"gcIntervalMs": 5_000})
        board.activate([parse_wanted("todos", [("t", "string")])], 1_000)
        for wait_s, left in ((2, 1), (4, 0)):
            await asyncio.sleep(wait_s)
            await room.write(change(t="a"))
            await asyncio.sleep(0.1)
            assert len(board.templates) == left

    loop.run(story())


def test_what_is_touched_when_the_time_is_up_is_not_missed(loop: VirtualLoop) -> None:
    """The answer carries a cursor behind the change: it must tell of it."""

    async def story() -> None:
        room = Room((await boot(HostileDisk(), VirtualClock(loop))).engine)
        board = await room.open()
        watch = board.watch(Interest(frozenset([TODOS]), (), False), board.generation, 1000)
        with board.waiter(watch, 1000) as waiter:
            waiting = asyncio.create_task(waiter.wait())
            await asyncio.sleep(0)
            waiter.wake(False)
            board.touches.touch(TODOS)
            board.flush()
            assert await waiting
            assert board.cursor.endswith(":1")

    loop.run(story())


def test_a_long_append_is_noted_in_slices_and_lags_meanwhile(loop: VirtualLoop) -> None:
    async def story() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        room = Room(started.engine)
        board = await room.open(
            lagDegradeFineTouchesAtSourceOffsets=50, lagReservedFineTouchBudgetPerBatch=0
        )
        (template,) = board.activate([parse_wanted("todos", [("t", "string")])], None)
        assert isinstance(template, Template)
        mine = id_of(watch_key(template.id, [b"a"]))
        waiting = asyncio.create_task(wait(board, mine + 1))
        await asyncio.sleep(0)
        await room.write(*[change(t="a")] * 200)
        assert await waiting, "everybody is woken by what cannot be told exactly"
        assert board.touches.overflows == 1
        await asyncio.sleep(0.2)
        assert (board.backlog, board.scanned, board.totals.records) == (0, 200, 200)
        await room.write(change(t="b"))
        await asyncio.sleep(0)  # who wrote goes on before who is told of it
        assert not board.lagging
        await asyncio.sleep(0.2)
        assert board.touches.overflows == 1

    loop.run(story())


def test_records_that_left_memory_count_as_changes_of_everything(loop: VirtualLoop) -> None:
    async def story() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        room = Room(started.engine)
        board = await room.open()
        await room.write(change())
        board.settle()
        board.scanned = 0
        board.live.tail.drop_to(1)
        board.settle()
        assert (board.scanned, board.touches.overflows) == (1, 1)
        assert board.touches.is_touched([99], 0)

    loop.run(story())


def test_a_template_lasts_while_somebody_waits_with_it(loop: VirtualLoop) -> None:
    async def story() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        room = Room(started.engine)
        board = await room.open()
        (template,) = board.activate([parse_wanted("todos", [("t", "string")])], 1)
        assert isinstance(template, Template)
        mine = id_of(watch_key(template.id, [b"a"]))
        watch = board.watch(Interest(frozenset([mine]), (template.id,), False), 0, 120_000)
        with board.waiter(watch, 120_000) as waiter:
            await asyncio.sleep(100)
            await room.write(change(t="b"))
            await asyncio.sleep(1)
            assert not waiter.future.done()
            await room.write(change(t="a"))
            assert await waiter.future
        await asyncio.sleep(130)
        assert len(board.templates) == 0

    loop.run(story())


def test_whose_template_makes_room_is_woken(loop: VirtualLoop) -> None:
    async def story() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        room = Room(started.engine)
        board = await room.open(templates={"maxActiveTemplatesPerEntity": 1})
        (template,) = board.activate([parse_wanted("todos", [("t", "string")])], None)
        assert isinstance(template, Template)
        watch = board.watch(Interest(frozenset([5]), (template.id,), False), 0, 1000)
        with board.waiter(watch, 1000) as waiter:
            board.activate([parse_wanted("todos", [("u", "string")])], None)
            assert await waiter.future

    loop.run(story())


def test_a_stream_that_somebody_waits_at_lives(loop: VirtualLoop) -> None:
    async def story() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        engine = started.engine
        spec = Spec(content_type=JSON, ttl_ms=1000)
        live, _ = await engine.streams.create("s", spec, None)
        await Room(engine).adopt()
        board = engine.touch_notifiers.notifier(live)
        waiting = asyncio.create_task(wait(board, TODOS, wait_ms=10_000))
        await asyncio.sleep(5)
        engine.streams.expiry.sweep()
        assert engine.streams.find("s") is live
        assert not await waiting
        await asyncio.sleep(5)
        engine.streams.expiry.sweep()
        with pytest.raises(Refused):
            engine.streams.find("s")
        assert len(engine.touch_notifiers) == 0

    loop.run(story())


def test_what_nobody_asks_for_is_forgotten(loop: VirtualLoop) -> None:
    async def story() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        engine = started.engine
        board = await Room(engine).open()
        await asyncio.sleep(TOUCH_IDLE_MS / 1e3 - 100)
        assert engine.touch_notifiers.notifier(board.live) is board
        await asyncio.sleep(TOUCH_IDLE_MS / 1e3 + 100)
        assert len(engine.touch_notifiers) == 0
        assert engine.touch_notifiers.notifier(board.live).epoch != board.epoch

    loop.run(story())
