"""While the journal finds no room: who asks is answered, and who waits for a write waits on."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from headrace.engine.upkeep.cycle import UpkeepPace
from support.engine_harness import boot
from support.hostile import HostileDisk
from support.searchworld import NEVER, Meddler, World
from support.virtual import VirtualClock, VirtualLoop

TTL_MS = 5000
ONE = {"records": [{"data": 1}]}


def fill(disk: HostileDisk) -> Callable[[], None]:
    """There is no room for anything that is appended, until told otherwise."""
    full = [True]

    def watch(number: int, called: str, path: str) -> None:
        if called == "append" and full[0]:
            disk.faults[number] = errno.ENOSPC

    disk.before = watch
    return lambda: full.__setitem__(0, False)


async def make(
    loop: VirtualLoop, delay_s: Callable[[], float] = lambda: 0.0
) -> tuple[World, HostileDisk]:
    disk, pool = HostileDisk(), Meddler()
    pace = UpkeepPace(seal_bytes=NEVER)
    started = await boot(disk, VirtualClock(loop), pace=pace, pool=pool, delay_s=delay_s)
    world = World(started, disk, pool, Random(0))
    await world.right("PUT", "/v0/topics/old", {"ttl_ms": TTL_MS})
    await world.right("PUT", "/v0/topics/last", {"cap_records": 1})
    await world.right("PUT", "/v0/topics/safe", {"durability": "fsync"})
    await world.right("PUT", "/v1/stream/s", stream_ttl="60")
    for name in ("old", "last", "safe"):
        await world.right("POST", f"/v0/topics/{name}", ONE)
    await world.right("POST", "/v1/stream/s", [1])
    await started.engine.journal.wait_synced(started.engine.journal.tail)
    return world, disk


ASKED: list[tuple[int, Any]] = [
    (200, ("POST", "/v0/topics/old/diff", {})),  # what is too old is so after a crash, too
    (200, ("GET", "/v0/topics/old")),
    (200, ("POST", "/v0/topics/safe/diff", {})),
    (200, ("GET", "/v1/stream/s")),
    (200, ("HEAD", "/v1/stream/s")),
    (503, ("POST", "/v0/topics/last/diff", {})),  # pushed out by what is not written
    (503, ("GET", "/v0/topics/safe")),  # counts what is not written
    (503, ("GET", "/v0/topics")),  # lists what is not there for certain
    (503, ("GET", "/v0/topics/new")),
    (503, ("GET", "/v0/topics/other")),
    (503, ("GET", "/v1/stream/other")),
    (503, ("GET", "/v0/routers")),
    (503, ("PUT", "/v0/topics/new", {})),
]


def test_who_asks_is_answered(loop: VirtualLoop) -> None:
    async def story() -> None:
        world, disk = await make(loop)
        mend = fill(disk)
        writes = [
            asyncio.create_task(world.ask("PUT", "/v0/topics/new", {})),
            asyncio.create_task(world.ask("POST", "/v0/topics/last", ONE)),
            asyncio.create_task(world.ask("POST", "/v0/topics/safe", ONE)),
        ]
        await asyncio.sleep(2 * TTL_MS / 1000)
        assert world.engine.journal.stall is not None
        for status, request in ASKED:
            async with asyncio.timeout(1):
                reply = await world.ask(*request)
            assert reply.status == status, (request, reply.body)
        assert not any(write.done() for write in writes)
        mend()
        assert [(await write).status for write in writes] == [201, 200, 200]
        for _, request in ASKED:
            assert (await world.ask(*request)).status != 503, request

    loop.run(story())


def test_who_asked_before_is_answered_too(loop: VirtualLoop) -> None:
    async def story() -> None:
        slow_s = 0.0
        world, disk = await make(loop, lambda: slow_s)
        slow_s = 0.5
        first = asyncio.create_task(world.ask("POST", "/v0/topics/safe", ONE))
        await asyncio.sleep(0.1)  # it is being synced
        second = asyncio.create_task(world.ask("POST", "/v0/topics/safe", ONE))
        asked = asyncio.create_task(world.ask("GET", "/v0/topics/safe"))
        await asyncio.sleep(0.1)
        mend = fill(disk)
        assert (await first).status == 200
        async with asyncio.timeout(1):
            assert (await asked).status == 503
        mend()
        assert (await second).status == 200

    loop.run(story())


@pytest.mark.parametrize("delay_s", [0.0, 0.5])
def test_what_is_written_is_synced_although_there_is_no_room_for_more(
    loop: VirtualLoop, delay_s: float
) -> None:
    async def story() -> None:
        world, disk = await make(loop, lambda: delay_s)
        journal = world.engine.journal
        await world.right("POST", "/v0/topics/old", ONE)
        told = journal.written
        assert told > journal.synced
        mend = fill(disk)
        writing = asyncio.create_task(world.ask("POST", "/v0/topics/safe", ONE))
        await asyncio.sleep(2)
        assert journal.stall is not None
        assert journal.synced == told
        assert not writing.done()
        mend()
        assert (await writing).status == 200
        assert journal.stall is None

    loop.run(story())
