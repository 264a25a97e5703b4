"""What the sweeps and the simulation found, told in a few lines each."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from random import Random
from typing import ParamSpec, TypeVar

import pytest

from headrace.core.config import LogConfig
from headrace.core.errors import Refused
from headrace.core.match import TagEq
from headrace.core.record import draft
from headrace.engine.caps import Caps
from headrace.engine.start import Started
from headrace.formats import layout
from support.engine_harness import boot, view_all
from support.hostile import Crash, HostileDisk
from support.inline_ports import Inline
from support.oracle import Blow, History, judge
from support.virtual import VirtualClock, VirtualLoop

from .workload import DISK, EPHEMERAL, FSYNC, MEMORY, Client

P = ParamSpec("P")
T = TypeVar("T")
Story = Callable[[Client], Awaitable[None]]


async def tell(story: Story, clock: VirtualClock, disk: HostileDisk, tail_bytes: int = 1) -> None:
    """Live the story, look, be killed, and look again."""
    history = History()
    started = await boot(disk, clock, caps=Caps(tail_bytes=tail_bytes))
    client = Client(started, clock, history)
    await story(client)
    await client.append("end", 1, config=LogConfig(durability=FSYNC))  # all before it is promised
    mark = history.mark()
    views = await view_all((await boot(disk.kill(), clock, forwarding=False)).engine)
    judge(history, mark, Blow.KILL, views, clock.now_ms())


async def seal(client: Client) -> None:
    client.upkeep.close_file()
    await client.upkeep.checkpoint()


async def ephemeral_between_sealed(client: Client) -> None:
    await client.append("a", 1, config=LogConfig(durability=DISK))
    await client.append("a", 1, tag="gone")
    await client.delete("a", match=TagEq("gone"))
    await seal(client)
    await client.put("a", LogConfig(durability=EPHEMERAL))
    await client.append("a", 3)
    await client.put("a", LogConfig(durability=DISK))
    await client.append("a", 2)
    await seal(client)
    await client.look()


async def caps_over_sealed_records_in_memory(client: Client) -> None:
    await client.append("a", 4, config=LogConfig(durability=DISK))
    await client.append("a", 4)
    await seal(client)
    client.engine.open_logs[1].tail.drop_to(4)  # one block is in memory and sealed, one only sealed
    await client.append("a", 4)
    await client.put("a", LogConfig(durability=DISK, cap_records=2))
    await client.look()


async def trim_over_ephemeral_and_journaled(client: Client) -> None:
    await client.append("a", 5, config=LogConfig(durability=EPHEMERAL))
    await client.put("a", LogConfig(durability=MEMORY))
    await client.append("a", 3)
    await client.put("a", LogConfig(durability=EPHEMERAL, cap_records=6))
    await client.append("a", 6)
    await client.look()


async def sizes_of_what_was_never_journaled(client: Client) -> None:
    await client.append("a", 5, config=LogConfig(durability=EPHEMERAL))
    await client.put("a", LogConfig(durability=DISK, cap_records=4))
    await client.append("a", 4)
    await client.look()


@pytest.mark.parametrize(
    "story",
    [
        ephemeral_between_sealed,
        caps_over_sealed_records_in_memory,
        trim_over_ephemeral_and_journaled,
        sizes_of_what_was_never_journaled,
    ],
)
@pytest.mark.parametrize("tail_bytes", [1, 1 << 20])
def test_mixed_logs(loop: VirtualLoop, story: Story, tail_bytes: int) -> None:
    loop.run(tell(story, VirtualClock(loop), HostileDisk(), tail_bytes))


def test_a_log_may_be_dropped_while_its_creation_is_synced(loop: VirtualLoop) -> None:
    async def work() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        made, _ = await asyncio.gather(
            engine.logs.put("a", "topics", LogConfig(durability=FSYNC)),
            engine.logs.drop("a", if_empty=False),
        )
        assert made[1]

    loop.run(work())


def test_upkeep_outlives_a_file_that_cannot_be_removed(loop: VirtualLoop) -> None:
    async def work() -> None:
        disk = HostileDisk()
        disk.make_folder("objects/segments")
        disk.write("objects/segments/0000000001-dead.parquet", (b"",))
        started = await boot(disk, VirtualClock(loop))

        def watch(number: int, kind: str, path: str) -> None:
            if kind == "remove" and not disk.faults:
                disk.faults[number] = errno.EIO

        disk.before = watch
        upkeep = asyncio.create_task(started.upkeep.run())
        await asyncio.sleep(60)
        assert disk.faults, "nothing was removed"
        assert not upkeep.done()
        assert disk.list("objects/segments") == []

    loop.run(work())


def test_a_page_misses_nothing_that_leaves_memory_while_it_reads(loop: VirtualLoop) -> None:
    class Meanwhile(Inline):
        """At the last of so many reads, what is still in memory is sealed and let go meanwhile."""

        reads = 0

        async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
            result = work(*args, **kwargs)
            self.reads -= 1
            if self.reads == 0:
                started.upkeep.close_file()
                await started.upkeep.checkpoint()
            return result

    async def work() -> None:
        nonlocal started
        pool = Meanwhile()
        started = await boot(HostileDisk(), VirtualClock(loop), pool=pool, caps=Caps(tail_bytes=1))
        client = Client(started, VirtualClock(loop), History())
        for tag in ("kept", "gone"):
            await client.append("a", 1, tag=tag, config=LogConfig())
            await seal(client)
        await client.delete("a", match=TagEq("gone"))
        await seal(client)  # nobody knows of seq 2 any more
        await client.append("a", 2)
        pool.reads = 2
        page = await started.engine.reader.read(
            started.engine.live("a"), 0, records_max=9, bytes_max=999
        )
        assert pool.reads < 0, "nothing happened meanwhile"
        assert [piece.block.seq_at(at) for piece in page.slices for at in piece.picks] == [1, 3, 4]

    started: Started
    loop.run(work())


async def _append_unsynced(disk: HostileDisk, clock: VirtualClock, *, fail: bool) -> History:
    """Three acknowledged records of class disk, of which no sync knows; perhaps one failed."""
    history = History()
    client = Client(await boot(disk, clock), clock, history)
    await client.append("a", 1, config=LogConfig(durability=DISK))
    await client.append("a", 2)
    if fail:

        def watch(number: int, kind: str, path: str) -> None:
            if kind == "sync" and not disk.faults:
                disk.faults[number] = errno.EIO

        disk.before = watch
        journal = client.engine.journal
        with pytest.raises(Refused):
            await journal.wait_synced(journal.tail)
        await asyncio.sleep(0.1)
    return history


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_what_a_failed_sync_lost_is_told_in_the_same_boot(
    loop: VirtualLoop, seed: int, fail: bool
) -> None:
    """Whoever saw it fail: the process itself, or nobody before the next start."""

    async def work() -> None:
        disk, clock, random = HostileDisk(), VirtualClock(loop), Random(seed)
        history = await _append_unsynced(disk, clock, fail=fail)
        mark = history.mark()
        left = disk.kill(evicted=random) if fail else disk.fail_to_write_back(random)
        assert left.boot_id() == disk.boot_id()
        again = left.copy()
        views = await view_all((await boot(left, clock)).engine)
        judge(history, mark, Blow.POWER, views, clock.now_ms())
        assert views["a"].head > 3, "what was promised cannot be given out again"
        assert views["a"].gaps
        assert not left.exists(layout.UNSYNCED)
        # A start that is killed has learnt something that nobody is told twice.
        again = HostileDisk(again.world)
        again.before = lambda number, kind, path: again.crash() if kind == "create_append" else None
        with pytest.raises(Crash):
            await boot(again, clock)
        views = await view_all((await boot(again.kill(), clock)).engine)
        judge(history, mark, Blow.POWER, views, clock.now_ms())
        assert views["a"].head > 3

    loop.run(work())


def test_a_failed_sync_is_noted_when_the_disk_takes_notes_again(loop: VirtualLoop) -> None:
    async def work() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        started = await boot(disk, clock)
        client = Client(started, clock, History())
        await client.append("a", 1, config=LogConfig(durability=DISK))
        broken = True

        def watch(number: int, kind: str, path: str) -> None:
            if broken and kind in ("sync", "truncate"):
                disk.faults[number] = errno.EIO

        disk.before = watch
        await client.append("a", 1)
        timers = asyncio.create_task(started.upkeep.run_timers())
        await asyncio.sleep(3)
        assert started.engine.journal.failure is not None
        assert not disk.exists(layout.UNSYNCED)
        broken = False
        await asyncio.sleep(3)
        assert disk.exists(layout.UNSYNCED)
        timers.cancel()

    loop.run(work())


@pytest.mark.parametrize("offset", [20, 150, 300])
def test_a_damaged_journal_file_is_sealed_from_memory(loop: VirtualLoop, offset: int) -> None:
    """One frame that cannot be read stops neither sealing nor the next start, and loses nothing."""

    async def work() -> None:
        disk, clock, history = HostileDisk(), VirtualClock(loop), History()
        started = await boot(disk, clock, caps=Caps(tail_bytes=1))
        client = Client(started, clock, history)
        await client.append("a", 2, config=LogConfig(durability=DISK))
        await seal(client)
        await client.append("a", 3, tag="gone")
        await client.append("b", 2, config=LogConfig(durability=FSYNC))
        await client.append("e", 2, config=LogConfig(durability=EPHEMERAL))
        await client.append("a", 2)
        await client.delete("a", match=TagEq("gone"))
        await client.append("c", 5, config=LogConfig(durability=DISK, cap_records=3))
        start, engine = started.engine.journal.file_start, started.engine
        started.upkeep.close_file()
        await client.append("a", 2)
        await client.put("e", LogConfig(durability=DISK))
        await client.append("e", 1)
        await engine.journal.wait_synced(engine.journal.tail)
        content = disk._content(layout.journal_file(start))
        for held in (content.cached, content.stable):
            held[offset] ^= 1
        await started.upkeep.checkpoint()
        assert started.upkeep.manifest.sealed_to == engine.journal.file_start
        await client.look()
        await client.append("a", 1)
        await client.append("end", 1, config=LogConfig(durability=FSYNC))
        await seal(client)
        await client.look()
        mark = history.mark()
        views = await view_all((await boot(disk.kill(), clock)).engine)
        judge(history, mark, Blow.KILL, views, clock.now_ms())

    loop.run(work())


def test_a_failed_sync_is_forgotten_when_its_consequences_are_durable(loop: VirtualLoop) -> None:
    async def story() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        engine = (await boot(disk, clock)).engine
        await engine.appender.append("a", draft([b"1"]), owner="topics", create=LogConfig())
        left = disk.kill()
        left.write(layout.UNSYNCED, (b"it failed",))
        await boot(left, clock, delay_s=lambda: 0.1)
        await asyncio.sleep(1)
        forgotten = left.trace.index(("remove", layout.UNSYNCED))
        files = [path for kind, path in left.trace[forgotten:] if kind == "sync"]
        assert not any(path.startswith(layout.JOURNAL) for path in files)

    loop.run(story())
