"""Records with ids: each is stored once, across batches, crashes and sealing, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from uuid import UUID

import pytest

from headrace.core.cap import Cap
from headrace.core.config import Durability, LogConfig
from headrace.core.errors import Code, Refused
from headrace.core.record import Drafts, draft
from headrace.engine.engine import Engine
from headrace.engine.logs.identified_appends import IdentifiedAppend
from headrace.storage.checks.findings import Problem
from headrace.storage.verification import Verification
from support.engine_harness import boot, view
from support.hostile import HostileDisk, Survival
from support.virtual import VirtualClock, VirtualLoop

WINDOW_MS, TTL_MS = 10_000, 60_000
CONFIG = LogConfig(
    durability=Durability.FSYNC,
    ttl_ms=TTL_MS,
    idempotency_window_ms=WINDOW_MS,
    unique_ids=True,
)
LOG = "feed:acme"


async def append(
    engine: Engine, *numbers: int, log: str = LOG, config: LogConfig = CONFIG
) -> IdentifiedAppend:
    uuids = [UUID(int=number) for number in numbers]

    def write(places: Sequence[int], first: int, at_ms: int) -> Drafts:
        return draft(
            [
                b'{"id":"%b","at":%d,"seq":%d}' % (str(uuids[at]).encode(), at_ms, seq)
                for seq, at in enumerate(places, first)
            ]
        )

    return await engine.identified_appender.append(
        log, [uuid.bytes for uuid in uuids], write, owner="feeds", create=config
    )


async def stored(engine: Engine, *numbers: int) -> tuple[list[int], list[bool]]:
    placement = (await append(engine, *numbers)).placement
    return placement.seqs, list(placement.is_duplicate())


def test_ids_are_stored_once_also_in_overlapping_batches(loop: VirtualLoop) -> None:
    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        assert await stored(engine, 1, 2, 1) == ([1, 2, 1], [False, False, True])
        assert await stored(engine, 2, 3) == ([2, 3], [True, False])
        assert await stored(engine, 3, 1) == ([3, 1], [True, True])
        assert list((await view(engine, LOG)).records) == [1, 2, 3]

    loop.run(story())


def test_a_record_knows_its_own_seq_and_time(loop: VirtualLoop) -> None:
    async def story() -> None:
        clock = VirtualClock(loop)
        engine = (await boot(HostileDisk(), clock)).engine
        await append(engine, 1, 2)
        await asyncio.sleep(1)
        await append(engine, 2, 3)
        for seq, record in (await view(engine, LOG)).records.items():
            assert record.data.endswith(b'"at":%d,"seq":%d}' % (record.ts_ms, seq))

    loop.run(story())


def test_batches_of_one_moment_do_not_store_an_id_twice(loop: VirtualLoop) -> None:
    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        done = await asyncio.gather(*(append(engine, 7, number) for number in range(20, 30)))
        assert {each.placement.seqs[0] for each in done} == {1}
        assert sum(0 in each.placement.fresh for each in done) == 1
        assert len((await view(engine, LOG)).records) == 11

    loop.run(story())


@pytest.mark.parametrize("sealed", [False, True])
def test_an_acknowledged_id_is_known_after_a_crash(loop: VirtualLoop, sealed: bool) -> None:
    async def story() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        started = await boot(disk, clock)
        upkeep = asyncio.create_task(started.upkeep.run())
        await append(started.engine, 1, 2)
        if sealed:
            await started.engine.seal()
        await append(started.engine, 3)
        upkeep.cancel()
        disk = disk.lose_power(Survival.NOTHING, Random(0))
        assert not [f for f in Verification(disk.copy().kill()).run() if isinstance(f, Problem)]
        engine = (await boot(disk, clock)).engine
        assert await stored(engine, 1, 2, 3, 4) == ([1, 2, 3, 4], [True, True, True, False])

    loop.run(story())


@pytest.mark.parametrize("restarts", [False, True])
def test_an_id_counts_for_as_long_as_the_window_lasts(loop: VirtualLoop, restarts: bool) -> None:
    async def story() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        engine = (await boot(disk, clock)).engine
        await append(engine, 1)
        await asyncio.sleep(WINDOW_MS / 1000)
        await append(engine, 2)
        assert await stored(engine, 1) == ([1], [True])
        await asyncio.sleep(0.001)
        if restarts:
            engine = (await boot(disk.kill(), clock)).engine
        assert await stored(engine, 1, 2) == ([3, 2], [False, True])
        assert await stored(engine, 1) == ([3], [True]), "the newer of two counts"

    loop.run(story())


def test_what_is_refused_has_no_id(loop: VirtualLoop) -> None:
    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine

        def fail(places: Sequence[int], first: int, at_ms: int) -> Drafts:
            raise Refused(Code.RECORD_TOO_LARGE, "too large")

        for is_there in (False, True):
            with pytest.raises(Refused):
                await engine.identified_appender.append(
                    LOG, [UUID(int=1).bytes], fail, owner="feeds", create=CONFIG
                )
            assert (LOG in engine.state.by_name) is is_there
            await append(engine, 9)
        assert await stored(engine, 1) == ([2], [False])

    loop.run(story())


def test_ids_are_bounded_and_those_that_left_the_window_make_room(loop: VirtualLoop) -> None:
    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        engine.identified_appender._cap = Cap("max_record_ids", 4)
        await append(engine, 1, 2)
        await append(engine, 3, 4, log="feed:other")
        with pytest.raises(Refused) as refused:
            await append(engine, 5)
        assert refused.value.code is Code.THROTTLED
        await asyncio.sleep(WINDOW_MS / 1000 + 1)
        for number in (5, 6, 7, 8):  # each look frees what one log has forgotten
            await append(engine, number)
        await engine.logs.drop(LOG, if_empty=False)
        await append(engine, 1, 2, 3, 4, log="feed:third")

    loop.run(story())


def test_whether_records_have_ids_does_not_change(loop: VirtualLoop) -> None:
    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        await append(engine, 1)
        with pytest.raises(Refused) as refused:
            await engine.logs.put(LOG, "feeds", LogConfig(durability=Durability.FSYNC, ttl_ms=1))
        assert refused.value.code is Code.LOG_INCOMPATIBLE

    loop.run(story())
