"""Streams with a TTL: what was promised to who used one outlives a crash."""

from __future__ import annotations

import asyncio
from random import Random

from headrace.core.stream_rules import Spec
from headrace.core.stream_state import JSON
from support.engine_harness import boot
from support.hostile import HostileDisk, Survival
from support.virtual import VirtualClock, VirtualLoop

TTL_MS = 10_000


def test_a_read_prolongs_a_stream_for_good(loop: VirtualLoop) -> None:
    async def story() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        engine = (await boot(disk, clock)).engine
        await engine.streams.create("s", Spec(content_type=JSON, ttl_ms=TTL_MS), None)
        await asyncio.sleep(9)
        live = engine.streams.find("s")
        await engine.reader.read(live, 0, records_max=1, bytes_max=1)
        engine = (await boot(disk.lose_power(Survival.NOTHING, Random(1)), clock)).engine
        await asyncio.sleep(9.5)
        assert engine.streams.find("s").log.name == "s"

    loop.run(story())


def test_few_reads_of_a_stream_wait_for_the_disk(loop: VirtualLoop) -> None:
    """One in a while: more life is written down than was asked for."""

    async def story() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        engine = (await boot(disk, clock)).engine
        await engine.streams.create("s", Spec(content_type=JSON, ttl_ms=TTL_MS), None)
        live = engine.streams.find("s")
        syncs = engine.journal.stats.syncs
        for _ in range(40):
            await asyncio.sleep(0.05)
            await engine.reader.read(live, 0, records_max=1, bytes_max=1)
        assert 0 < engine.journal.stats.syncs - syncs <= 3

    loop.run(story())
