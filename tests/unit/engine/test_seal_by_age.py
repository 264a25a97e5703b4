"""Sealing because records have waited long enough, or because somebody asked for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest import mock

import pytest

from headrace.core.config import Durability, LogConfig
from headrace.core.errors import Code, Refused
from headrace.core.inbound_route import Rule
from headrace.core.record import draft
from headrace.engine.routers.control import RouterPlan
from headrace.engine.start import Started, stop
from headrace.engine.upkeep.cycle import UpkeepPace
from support.engine_harness import boot, view_all
from support.hostile import HostileDisk
from support.virtual import VirtualClock, VirtualLoop

SEAL_MS = 60_000
PACE = UpkeepPace(seal_bytes=1 << 20, disk_sync_ms=200, seal_ms=SEAL_MS)
JOURNAL, OBJECTS = "journal", "objects"


@asynccontextmanager
async def running(
    disk: HostileDisk, clock: VirtualClock, pace: UpkeepPace = PACE
) -> AsyncIterator[Started]:
    started = await boot(disk, clock, pace=pace)
    tasks = [
        asyncio.create_task(work) for work in (started.upkeep.run(), started.upkeep.run_timers())
    ]
    try:
        yield started
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def append(started: Started, name: str = "a", count: int = 1, **config: object) -> None:
    drafts = draft([b'{"n":%d}' % n for n in range(count)])
    create = LogConfig(**config)  # type: ignore[arg-type]
    await started.engine.appender.append(name, drafts, owner="topics", create=create)


def files(disk: HostileDisk) -> list[str]:
    folders = (JOURNAL, *(f"{OBJECTS}/{name}" for name in ("segments", "manifests")))
    return [f"{folder}/{name}" for folder in folders for name in disk.list(folder)]


def rows(started: Started) -> list[int]:
    return [segment.rows for segment in started.upkeep.manifest.segments]


def test_what_waits_long_enough_is_sealed_although_it_is_little(loop: VirtualLoop) -> None:
    async def work() -> None:
        disk = HostileDisk()
        async with running(disk, VirtualClock(loop)) as started:
            await append(started, count=3)
            await asyncio.sleep(SEAL_MS / 2000)
            await append(started, "b")
            await asyncio.sleep(SEAL_MS / 2000 - 1)
            assert rows(started) == [], "before its time"
            await asyncio.sleep(2)
            assert rows(started) == [4], "both, by the age of the older one"
            assert len(disk.list(JOURNAL)) == 1, "a new journal file for so little"
            await append(started)
            await asyncio.sleep(SEAL_MS / 1000 + 1)
            assert rows(started) == [4, 1]
            views = await view_all(started.engine)
            assert [len(view.records) for view in views.values()] == [4, 1]

    loop.run(work())


def test_nothing_wakes_up_where_nothing_waits(loop: VirtualLoop) -> None:
    async def work() -> None:
        disk = HostileDisk()
        clock = VirtualClock(loop)
        async with running(disk, clock) as started:
            await append(started, "gone", durability=Durability.EPHEMERAL)
            await started.engine.logs.put("b", "topics", LogConfig())
            idle = files(disk)
            timers = len(loop._scheduled)  # type: ignore[attr-defined]
            await asyncio.sleep(10 * SEAL_MS / 1000)
            assert files(disk) == idle
            assert len(loop._scheduled) == timers  # type: ignore[attr-defined]
            await append(started)
            await asyncio.sleep(SEAL_MS / 1000 + 1)
            sealed = files(disk)
            assert sealed != idle
            await asyncio.sleep(10 * SEAL_MS / 1000)
            assert files(disk) == sealed

    loop.run(work())


def test_records_of_the_last_life_count_from_when_they_were_written(loop: VirtualLoop) -> None:
    async def work() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        async with running(disk, clock) as started:
            await append(started)
            await asyncio.sleep(SEAL_MS / 2000)
        disk = disk.kill()
        async with running(disk, clock) as started:
            await asyncio.sleep(SEAL_MS / 2000 - 1)
            assert rows(started) == []
            await asyncio.sleep(2)
            assert rows(started) == [1]

    loop.run(work())


def test_age_can_be_left_out(loop: VirtualLoop) -> None:
    async def work() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        pace = UpkeepPace(seal_bytes=1 << 20, seal_ms=0)
        async with running(disk, clock, pace) as started:
            await append(started)
            await asyncio.sleep(3600)
            assert rows(started) == []

    loop.run(work())


def test_a_forward_finds_records_of_its_file_that_are_sealed(loop: VirtualLoop) -> None:
    async def work() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        async with running(disk, clock) as started:
            await append(started, "source", 3)
            await started.upkeep.seal()
            plan = RouterPlan("source", "dest", Rule(), after=0)
            await started.engine.routers.put("router", plan, "topics")
            await append(started, "source", 1)
            await asyncio.sleep(1)
            await started.upkeep.seal()
            assert rows(started) == [3, 5]
            assert len(disk.list(JOURNAL)) == 1
        disk = disk.kill()
        started = await boot(disk, clock)
        views = await view_all(started.engine)
        assert {name: len(view.records) for name, view in views.items()} == {
            "source": 4, "dest": 4,
        }  # fmt: skip

    loop.run(work())


def test_too_many_segments_are_not_made_more_by_age(loop: VirtualLoop) -> None:
    async def work() -> None:
        disk = HostileDisk()
        async with running(disk, VirtualClock(loop)) as started:
            for _ in range(4):
                await append(started)
                await asyncio.sleep(SEAL_MS / 1000 + 1)
            assert rows(started) == [1, 1]
            await started.upkeep.seal()
            assert rows(started) == [1, 1, 2], "who asks gets it"

    with mock.patch("headrace.engine.upkeep.cycle.AGED_SEGMENTS_MAX", 2):
        loop.run(work())


def test_logs_in_small_segments_are_not_made_ever_more_by_age(loop: VirtualLoop) -> None:
    """10,000 logs with a record each in every segment would fill the memory in some weeks."""

    async def work() -> None:
        async with running(HostileDisk(), VirtualClock(loop)) as started:
            for _ in range(4):
                for name in ("a", "b", "c"):
                    await append(started, name)
                await asyncio.sleep(SEAL_MS / 1000 + 1)
            assert rows(started) == [3, 3]
            assert sum(len(log.extents) for log in started.engine.state.logs.values()) == 6
            await started.upkeep.seal()
            assert rows(started) == [3, 3, 6], "who asks gets it"

    with mock.patch("headrace.engine.upkeep.cycle.AGED_EXTENTS_MAX", 8):
        loop.run(work())


def test_a_start_does_not_look_into_every_small_segment(loop: VirtualLoop) -> None:
    async def work() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        for seals in (4, 4):  # two lives: what the one leaves counts in the next
            async with running(disk, clock) as started:
                for _ in range(seals):
                    await append(started)
                    await started.upkeep.seal()
            disk = disk.kill()
        await boot(disk, clock)
        looked = {path for _, path in disk.trace if path.startswith("objects/companions/")}
        assert len(looked) < 3, looked

    with mock.patch("headrace.engine.upkeep.cycle._SNAPSHOT_SEGMENTS", 3):
        loop.run(work())


# --- on demand ---


def test_who_asks_gets_all_that_was_written_before(loop: VirtualLoop) -> None:
    async def work() -> None:
        async with running(HostileDisk(), VirtualClock(loop)) as started:
            await append(started, count=3)
            await append(started, "b", 2)
            done = await started.upkeep.seal()
            assert (done.records, done.segments) == (5, 1)
            assert done.manifest == started.upkeep.manifest.version
            version = started.upkeep.manifest.version
            again = await started.upkeep.seal()
            assert (again.records, again.segments, again.manifest) == (0, 0, version)
            assert started.upkeep.manifest.version == version, "published for nothing"

    loop.run(work())


def test_two_who_ask_at_once_share_a_seal(loop: VirtualLoop) -> None:
    async def work() -> None:
        async with running(HostileDisk(), VirtualClock(loop)) as started:
            await append(started, count=3)
            first, second = await asyncio.gather(started.upkeep.seal(), started.upkeep.seal())
            assert first == second
            assert rows(started) == [3]

    loop.run(work())


def test_a_retired_journal_holds_nothing_of_before(loop: VirtualLoop) -> None:
    async def work() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        async with running(disk, clock) as started:
            await append(started, count=3)
            await started.upkeep.seal()
            await started.engine.deleter.delete("a", 3, None)
            done = await started.upkeep.seal(retire=True)
            assert (done.records, done.segments) == (0, 0)
            for name in disk.list(JOURNAL, unfinished=True):
                assert b'{"n":' not in disk.read(f"{JOURNAL}/{name}")
            snapshots = disk.list("snapshots")
            assert len(snapshots) == 2, "one to fall back on"
            tail = disk.list(JOURNAL)
            again = await started.upkeep.seal(retire=True)
            assert (again.records, again.segments) == (0, 0)
            assert disk.list("snapshots") == snapshots
            assert disk.list(JOURNAL) == tail
        disk = disk.kill()
        for damaged in (False, True):
            if damaged:
                disk.remove(f"snapshots/{snapshots[-1]}")
            started = await boot(disk, clock)
            views = await view_all(started.engine)
            assert list(views["a"].records) == [3]
            disk = disk.kill()

    loop.run(work())


def test_sealing_is_refused_where_nothing_can_be_sealed(loop: VirtualLoop) -> None:
    async def work() -> None:
        disk = HostileDisk()
        async with running(disk, VirtualClock(loop)) as started:
            upkeep, engine = started.upkeep, started.engine
            await append(started)
            with mock.patch.object(upkeep, "_seal_next", side_effect=OSError("no such place")):
                with pytest.raises(Refused, match="no such place") as late:
                    await upkeep.seal()
                assert late.value.code is Code.STORAGE_UNAVAILABLE
                waiting = asyncio.create_task(upkeep.seal())
                await asyncio.sleep(1)
                engine.drain()
                with pytest.raises(Refused) as stopping:
                    await waiting
                assert stopping.value.code is Code.SHUTTING_DOWN
            with pytest.raises(Refused):
                await upkeep.seal()

    loop.run(work())


def test_how_much_waits_is_known(loop: VirtualLoop) -> None:
    async def work() -> None:
        disk = HostileDisk()
        async with running(disk, VirtualClock(loop)) as started:
            engine = started.engine
            assert engine.backlog().age_ms == 0
            await append(started)
            await asyncio.sleep(7)
            backlog = engine.backlog()
            assert 7000 <= backlog.age_ms < 8000
            assert backlog.unsealed_bytes > 0
            await started.upkeep.seal()
            assert engine.backlog().age_ms == 0
            await stop(started)

    loop.run(work())
