"""What upkeep writes never says more than the journal holds: power losses behind every step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest

from headrace.core.config import LogConfig
from headrace.core.record import draft
from headrace.core.transaction import Chunk
from headrace.engine.start import Started
from headrace.engine.upkeep.cycle import UpkeepPace
from headrace.formats import layout
from headrace.formats.manifest import Manifest, Segment
from headrace.formats.marks import Marks
from headrace.storage import manifests
from headrace.storage.objects import LocalObjects
from headrace.storage.sealing import SealJob
from support.engine_harness import CAPS, boot, view
from support.hostile import HostileDisk, Survival
from support.inline_ports import Inline
from support.rival import Rival
from support.virtual import VirtualClock, VirtualLoop

FRESH = CAPS.__class__(tail_bytes=0)
LARGE = UpkeepPace(seal_bytes=1 << 20)
"""Nothing is sealed, and no snapshot taken, unless somebody says so."""


async def write(server: Started, count: int = 2) -> None:
    for number in range(count):
        drafts = draft([b'{"n":%d}' % number])
        await server.engine.appender.append("a", drafts, owner="topics", create=LogConfig())


def without_power(disk: HostileDisk) -> HostileDisk:
    """What is left of this moment when nothing survives that was not synced."""
    return disk.copy().lose_power(Survival.NOTHING, Random(0))


def test_a_range_of_the_journal_is_sealed_when_it_is_durable(loop: VirtualLoop) -> None:
    async def story() -> None:
        clock, disk = VirtualClock(loop), HostileDisk()
        server = await boot(disk, clock, caps=FRESH, pace=LARGE)
        await write(server)
        server.upkeep.close_file()
        await server.upkeep.checkpoint()
        assert server.upkeep.manifest.segments
        after = await boot(without_power(disk), clock)
        assert sorted((await view(after.engine, "a")).records) == [1, 2]

    loop.run(story())


def test_a_snapshot_is_not_ahead_of_the_journal(loop: VirtualLoop) -> None:
    async def story() -> None:
        clock, disk = VirtualClock(loop), HostileDisk()
        server = await boot(disk, clock, caps=FRESH, pace=LARGE)
        await write(server)
        await server.upkeep.snapshot()
        after = await boot(without_power(disk), clock)
        assert sorted((await view(after.engine, "a")).records) == [1, 2]

    loop.run(story())


def test_plans_are_published_when_they_are_durable(loop: VirtualLoop) -> None:
    async def story() -> None:
        disk, synced = HostileDisk(), list[int]()
        server = await boot(disk, VirtualClock(loop), pace=LARGE, delay_s=lambda: 1.0)
        await write(server, 1)
        journal = server.engine.journal

        def note(number: int, kind: str, path: str) -> None:
            if kind == "link" and layout.PLANS in path:
                synced.append(journal.synced)

        disk.before = note
        fields = {"at": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/at"}]}}
        config = msgspec.json.encode({"primaryTimestampField": "at", "fields": fields})
        putting = asyncio.create_task(server.engine.search_configs.put("a", "topics", config))
        await asyncio.sleep(0)
        tail = journal.tail
        assert journal.synced < tail
        await server.upkeep._publisher.publish_plans()
        await putting
        assert synced
        assert synced[0] >= tail

    loop.run(story())


def test_a_start_has_its_losses_durable_before_anybody_asks(loop: VirtualLoop) -> None:
    async def story() -> None:
        clock, disk = VirtualClock(loop), HostileDisk()
        await write(await boot(disk, clock, pace=LARGE))
        after = await boot(without_power(disk), clock, delay_s=lambda: 1.0)
        assert after.recovered.losses
        assert after.engine.journal.synced == after.engine.journal.tail

    loop.run(story())


def test_the_journal_serves_the_snapshot_before_the_newest(loop: VirtualLoop) -> None:
    async def story() -> None:
        clock, disk = VirtualClock(loop), HostileDisk()
        server = await boot(disk, clock, caps=FRESH, pace=LARGE)
        for _ in range(3):
            await write(server)
            server.upkeep.close_file()
            await server.upkeep.snapshot()
            await server.upkeep.checkpoint()
        await write(server)
        await server.upkeep.checkpoint()
        left = disk.kill()
        newest = f"{layout.SNAPSHOTS}/{left.list(layout.SNAPSHOTS)[-1]}"
        left.write(newest, (b"not what it was",))
        after = await boot(left, clock)
        assert sorted((await view(after.engine, "a")).records) == list(range(1, 9))

    loop.run(story())


def test_what_a_killed_process_had_written_is_durable_after_a_start(loop: VirtualLoop) -> None:
    """Readers have seen it; and nobody syncs it again."""

    async def story() -> None:
        clock, disk = VirtualClock(loop), HostileDisk()
        await write(await boot(disk, clock, pace=LARGE))
        disk = disk.kill()
        again = await boot(disk, clock, pace=LARGE)
        assert sorted((await view(again.engine, "a")).records) == [1, 2]
        after = await boot(without_power(disk), clock)
        assert sorted((await view(after.engine, "a")).records) == [1, 2]

    loop.run(story())


class Gated(Inline):
    """A pool in which the first look into new segments waits."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.waiting = False

    async def run(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if getattr(work, "__name__", "") == "_extents_of" and not self.waiting:
            self.waiting = True
            await self.gate.wait()
        return work(*args, **kwargs)


def test_a_publication_and_a_slow_look_end_with_the_newest(loop: VirtualLoop) -> None:
    async def story() -> None:
        clock, disk = VirtualClock(loop), HostileDisk()
        server = await boot(disk, clock, caps=FRESH, pace=LARGE)
        for _ in range(3):
            await write(server)
            server.upkeep.close_file()
            await server.upkeep.checkpoint()
        objects = LocalObjects(HostileDisk(disk.world))
        Rival(objects, Random(1)).replace([1, 2], Marks())
        generations = server.upkeep.manifests
        generations._pool = pool = Gated()
        looking = asyncio.create_task(generations.look())
        await asyncio.sleep(0)
        assert pool.waiting
        publishing = asyncio.create_task(generations.publish(lambda manifest: manifest))
        for _ in range(9):
            await asyncio.sleep(0)
        pool.gate.set()
        await asyncio.gather(looking, publishing)
        assert generations.manifest == manifests.load(objects)

    loop.run(story())


def test_a_committed_batch_is_durable_whatever_the_class_of_its_log(loop: VirtualLoop) -> None:
    async def story() -> None:
        clock, disk = VirtualClock(loop), HostileDisk()
        server = await boot(disk, clock, pace=LARGE)
        transactions = server.engine.transactions
        await transactions.stage("t", 1, "c", Chunk("a", draft([b"1", b"2"])))
        await transactions.commit("t", 1, ["c"], owner="topics", create=LogConfig())
        after = await boot(without_power(disk), clock)
        assert sorted((await view(after.engine, "a")).records) == [1, 2]

    loop.run(story())


class Hasty(HostileDisk):
    """A process that was killed before the name of its manifest was durable."""

    def sync_folder(self, folder: str) -> None:
        if not folder.endswith(layout.MANIFESTS):
            super().sync_folder(folder)


def test_what_a_start_goes_by_is_durable_before_it_does(loop: VirtualLoop) -> None:
    """Published while it started: a snapshot that relies on it must not outlive it."""

    async def story() -> None:
        clock, disk = VirtualClock(loop), HostileDisk()
        server = await boot(disk, clock, caps=FRESH, pace=LARGE)
        for _ in range(3):
            await write(server)
            server.upkeep.close_file()
            await server.upkeep.checkpoint()
        disk = disk.kill()
        seen = 0

        def replace(number: int, kind: str, path: str) -> None:
            nonlocal seen
            if kind == "list" and path.endswith(layout.MANIFESTS):
                seen += 1
                if seen == 1:
                    rival = Rival(LocalObjects(Hasty(disk.world)), Random(1))
                    assert rival.replace([1, 2], Marks())

        disk.before = replace
        again = await boot(disk, clock, caps=FRESH, pace=LARGE)
        assert again.upkeep.manifest.numbers == {3, 4}
        await again.upkeep.snapshot()
        after = await boot(without_power(disk), clock)
        assert sorted((await view(after.engine, "a")).records) == list(range(1, 7))

    loop.run(story())


def test_a_range_that_somebody_else_has_sealed_is_not_sealed_again(loop: VirtualLoop) -> None:
    async def story() -> None:
        disk = HostileDisk()
        server = await boot(disk, VirtualClock(loop), pace=LARGE)
        sealer, objects = server.upkeep._sealer, LocalObjects(HostileDisk(disk.world))

        class Overtaken:
            async def seal(self, job: SealJob) -> Segment | None:
                made = await sealer.seal(job)
                manifests.update(objects, _sealed_further)
                return made

            def hurry(self, hurried: bool) -> None: ...

        server.upkeep._sealer = Overtaken()  # type: ignore[assignment]
        await write(server)
        server.upkeep.close_file()
        with pytest.raises(manifests.Conflict, match="not our doing"):
            await server.upkeep.checkpoint()
        assert manifests.load(objects).segments == ()

    loop.run(story())


def _sealed_further(manifest: Manifest) -> Manifest:
    return msgspec.structs.replace(manifest, sealed_to=manifest.sealed_to + 1)
