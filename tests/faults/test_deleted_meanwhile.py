"""A record whose deletion was acknowledged while a reader was on its way is not shown."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import ParamSpec, TypeVar

from headrace.core.config import Durability, Kind, LogConfig
from headrace.core.match import TagEq
from headrace.core.read import Slice
from headrace.core.record import draft
from headrace.engine.caps import Caps
from headrace.engine.engine import Engine
from headrace.engine.start import Started
from headrace.engine.timings import Timings
from support.engine_harness import boot
from support.hostile import HostileDisk, Survival
from support.inline_ports import Inline
from support.virtual import VirtualClock, VirtualLoop

P = ParamSpec("P")
T = TypeVar("T")


class Meanwhile(Inline):
    """When a read of so many segments is over, something else happens before its reader goes on."""

    reads = 0
    act: Callable[[], Awaitable[object]]

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        result = work(*args, **kwargs)
        self.reads -= 1
        if self.reads == 0:
            await self.act()
        return result


async def append(engine: Engine, tag: str, config: LogConfig) -> None:
    drafts = draft([b"{}"], None, [tag])
    await engine.appender.append("a", drafts, owner="topics", create=config)


async def make(pool: Meanwhile, loop: VirtualLoop, config: LogConfig) -> Started:
    """Four records in a segment each: the first is deleted, the others have the tags 2, 3 and 4."""
    disk, clock = HostileDisk(), VirtualClock(loop)
    started = await boot(disk, clock, pool=pool, caps=Caps(tail_bytes=1))
    for tag in "1234":
        await append(started.engine, tag, config)
        started.upkeep.close_file()
        await started.upkeep.checkpoint()
    await started.engine.deleter.delete("a", None, TagEq("1"))
    return started


def seqs(slices: list[Slice]) -> list[int]:
    return [piece.block.seq_at(at) for piece in slices for at in piece.picks]


def test_deleted_while_a_page_gathers(loop: VirtualLoop) -> None:
    async def work() -> None:
        pool = Meanwhile()
        engine = (await make(pool, loop, LogConfig())).engine
        pool.act = lambda: engine.deleter.delete("a", None, TagEq("2"))
        pool.reads = 3
        page = await engine.reader.read(engine.live("a"), 0, records_max=9, bytes_max=999)
        assert pool.reads <= 0, "nothing happened meanwhile"
        assert seqs(page.slices) == [3, 4]

    loop.run(work())


def test_who_finds_nothing_left_to_delete_waits_for_who_deleted_it(loop: VirtualLoop) -> None:
    """ "All is gone" must be true after a crash, also for the second who asked."""

    async def work() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        engine = (await boot(disk, clock, delay_s=lambda: 1.0)).engine
        await append(engine, "1", LogConfig(durability=Durability.FSYNC))
        first, second = (
            asyncio.ensure_future(engine.deleter.delete("a", None, None)) for _ in range(2)
        )
        await asyncio.sleep(0.5)
        assert not first.done()
        assert not second.done()
        assert [deleted for _, deleted in await asyncio.gather(first, second)] == [1, 0]
        after = (await boot(disk.copy().lose_power(Survival.NOTHING, Random(0)), clock)).engine
        assert after.live("a").log.count == 0

    loop.run(work())


def test_deleted_while_a_page_waits_for_other_deletions(loop: VirtualLoop) -> None:
    async def work() -> None:
        config = LogConfig(durability=Durability.FSYNC)
        engine = (await make(Meanwhile(), loop, config)).engine
        for tag in "56":
            await append(engine, tag, config)
        live = engine.live("a")
        (_, five), page, (_, six) = await asyncio.gather(
            engine.deleter.delete("a", None, TagEq("5")),
            engine.reader.read(live, 4, records_max=9, bytes_max=999),
            engine.deleter.delete("a", None, TagEq("6")),
        )
        assert (five, six) == (1, 1)
        assert seqs(page.slices) == []

    loop.run(work())


def test_deleted_while_a_job_is_read(loop: VirtualLoop) -> None:
    async def work() -> None:
        pool = Meanwhile()
        engine = (await make(pool, loop, LogConfig(kind=Kind.QUEUE))).engine
        pool.act = lambda: engine.deleter.delete("a", None, TagEq("2"))
        pool.reads = 2
        claimed = await engine.queues.claim("a", "node", 9, None, Timings())
        assert pool.reads <= 0, "nothing happened meanwhile"
        assert seqs(claimed.jobs) == [3, 4]

    loop.run(work())
