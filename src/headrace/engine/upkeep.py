"""Upkeep: seal closed journal files, publish them, take snapshots, let go of memory and of dead
files.

Runs beside requests on the same loop, so it works in slices of a few milliseconds; what blocks runs
in the pool, and the heavy part, making Parquet, runs in another process.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from time import perf_counter
from typing import TypeVar

import msgspec

from headrace.core import ranges
from headrace.core.entry import Start, Stop
from headrace.core.errors import Refused
from headrace.core.limits import SLICE_MS
from headrace.core.log import Log, add_extent, prune_extents
from headrace.engine.engine import Engine, read_exception
from headrace.engine.ports import Ids, Pool, Sealer
from headrace.engine.spares import Spares
from headrace.formats import layout
from headrace.formats.manifest import Manifest, Segment
from headrace.formats.snapshot import FORMAT, Captured, Foot, Head, encode_part
from headrace.observe import say
from headrace.storage import manifests, snapshots
from headrace.storage.disk import Disk
from headrace.storage.objects import Objects
from headrace.storage.recovery import Recovered
from headrace.storage.sealing import SealFailed, SealJob

T = TypeVar("T")

_SWEEP_S = 1.0
_CLOSED_FILES_MAX = 8
_BACKLOG_FILES = 3
"""Journal files whose records may wait in memory for the sealer before writers are held back."""
_HURRY_FILES = 3
"""With so many journal files to seal, the sealer takes a full share of the machine."""
_RETRY_S = (1.0, 2.0, 5.0, 10.0, 30.0)
_SNAPSHOT_RATIO = 2
"""A snapshot is due when the journal has grown by this many times the size of the last one."""


class Pace(msgspec.Struct, frozen=True):
    """When upkeep acts."""

    seal_bytes: int = 64 << 20
    disk_sync_ms: int = 1000


class _Closed(msgspec.Struct, frozen=True):
    """A journal file nobody writes to any more, and the logs it holds records of."""

    start: int
    stop: int
    logs: dict[int, str]
    size_bytes: int
    """What it comes to with the copies that its forwards stand for."""


class Upkeep:
    """Keeps a running engine small and its restart short."""

    def __init__(
        self,
        engine: Engine,
        disk: Disk,
        objects: Objects,
        sealer: Sealer,
        pool: Pool,
        ids: Ids,
        pace: Pace,
        manifest: Manifest,
    ) -> None:
        self._engine = engine
        self._disk = disk
        self._objects = objects
        self._sealer = sealer
        self._pool = pool
        self._ids = ids
        self._pace = pace
        self._manifest = manifest
        self._closed: deque[_Closed] = deque()
        self._sealed: deque[list[tuple[int, int]]] = deque()
        """For each segment whose records are still in memory: (log, last seq), oldest segment
        first.
        """
        self._attached = manifest.version
        """The newest manifest version whose segments every log knows of."""
        self._wake = asyncio.Event()
        self._snapshot_position = -1
        self._snapshot_bytes = 0
        self._spares = Spares(engine.journal, disk, sealer, pool, ids, pace.seal_bytes)
        self._memory_max = engine.caps.tail_bytes + _BACKLOG_FILES * pace.seal_bytes
        engine.on_growth = self._look

    @property
    def manifest(self) -> Manifest:
        return self._manifest

    def resume(self, recovered: Recovered) -> None:
        """Take over what recovery found unsealed; say in the journal who writes from here on."""
        self._closed.extend(_Closed(*closed) for closed in recovered.closed)
        # Losses first: until they are written down, the next start must be able to find them again.
        self._engine.journal.enqueue([*recovered.losses, Start(0, self._disk.boot_id())], sync=True)
        unsealed = sum(closed.size_bytes for closed in self._closed)
        if unsealed >= self._pace.seal_bytes or len(self._closed) >= _CLOSED_FILES_MAX:
            self._wake.set()

    def _look(self) -> None:
        """After a write: is it time to close the journal file, or to hold writers back?"""
        engine = self._engine
        file_bytes = engine.journal.tail - engine.journal.file_start
        if file_bytes + engine.derived_bytes >= self._pace.seal_bytes:
            self.close_file()
        elif self._spares.due(file_bytes):
            self._wake.set()
        if engine.tail_bytes > self._memory_max and self._closed:
            engine.door.room.clear()
            self._wake.set()

    def close_file(self) -> None:
        journal = self._engine.journal
        start, stop = journal.file_start, journal.rotate()
        if stop > start:
            engine = self._engine
            size_bytes = stop - start + engine.derived_bytes
            self._closed.append(_Closed(start, stop, engine.touched, size_bytes))
            engine.touched, engine.near, engine.derived_bytes = {}, {}, 0
            self._set_pace()
            self._wake.set()

    def _set_pace(self) -> None:
        """Sealing makes way for everybody else until records wait for it in memory."""
        unsealed = sum(closed.size_bytes for closed in self._closed)
        self._sealer.hurry(unsealed >= _HURRY_FILES * self._pace.seal_bytes)

    async def run(self) -> None:
        """Work whenever a journal file was closed; try again, ever more slowly, when something
        fails.
        """
        failures = 0
        swept = False
        while True:
            try:
                if not swept:
                    await self.remove_orphans()
                    swept = True
                await self._wake.wait()
                self._wake.clear()
                await self.checkpoint()
                failures = 0
            except Refused as refused:
                say("error", "upkeep ends until the next start", problem=refused.message)
                return
            except (OSError, manifests.Conflict, SealFailed) as error:
                wait_s = _RETRY_S[min(failures, len(_RETRY_S) - 1)]
                failures += 1
                say("error", "upkeep failed, will try again", problem=str(error), wait_s=wait_s)
                await asyncio.sleep(wait_s)
                self._wake.set()

    async def run_timers(self) -> None:
        """Sync what nobody waits for, and move floors of logs nobody reads."""
        sweep_at = 0.0
        while True:
            await asyncio.sleep(self._pace.disk_sync_ms / 1000)
            journal = self._engine.journal
            if journal.failure is not None:
                continue
            if journal.synced < journal.tail:
                journal.wait_synced(journal.tail).add_done_callback(read_exception)
            now = asyncio.get_running_loop().time()
            if now >= sweep_at:
                sweep_at = now + _SWEEP_S
                async for log in _slices(list(self._engine.aging)):
                    if log in self._engine.lives:
                        self._engine.expire_now(self._engine.lives[log])

    async def checkpoint(self) -> None:
        """Seal what is closed, free memory, take a snapshot when it pays, tidy up the journal."""
        working = True
        while working:
            if self._closed:
                await self._seal_next()
                await self._free_memory()
            await self._drop_dead_segments()
            grown = self._engine.journal.tail - self._snapshot_position
            if grown >= max(self._pace.seal_bytes, _SNAPSHOT_RATIO * self._snapshot_bytes):
                await self.snapshot()
            await self._spares.retire(await self._pool.run(self._needed_from))
            await self._spares.restock()
            working = bool(self._closed)

    # --- sealing ---------------------------------------------------------------------------------

    async def _seal_next(self) -> None:
        """Seal the oldest closed files together, up to the size of one segment."""
        group = [self._closed[0]]
        size_bytes = group[0].size_bytes
        for closed in list(self._closed)[1:]:
            size_bytes += closed.size_bytes
            if size_bytes > self._pace.seal_bytes:
                break
            group.append(closed)
        stop = group[-1].stop
        await self._engine.journal.wait_synced(stop)
        names = {log: name for closed in group for log, name in closed.logs.items()}
        job = SealJob(
            self._manifest.next_number,
            self._ids.token(),
            max(group[0].start, self._manifest.sealed_to),
            stop,
            names,
        )
        started = perf_counter()
        self._set_pace()
        segment = await self._sealer.seal(job)
        await self._publish(
            msgspec.structs.replace(
                self._manifest,
                next_number=job.number + 1,
                sealed_to=stop,
                segments=self._manifest.segments + self._listed(segment),
            )
        )
        for _ in group:
            self._closed.popleft()
        if segment is not None:
            await self._attach(segment)
        self._attached = self._manifest.version
        if segment is not None:
            say(
                "info", "sealed a segment", number=segment.number, rows=segment.rows,
                bytes=segment.file_bytes, seconds=round(perf_counter() - started, 3),
            )  # fmt: skip

    def _listed(self, segment: Segment | None) -> tuple[Segment, ...]:
        if segment is None:
            return ()
        return (msgspec.structs.replace(segment, since=self._manifest.version + 1),)

    async def _publish(self, manifest: Manifest) -> None:
        manifest = msgspec.structs.replace(manifest, version=self._manifest.version + 1)
        await self._pool.run(manifests.publish, self._objects, manifest)
        self._manifest = manifest
        self._engine.segments.use(manifest)

    async def _attach(self, segment: Segment) -> None:
        """Tell each log where its records lie now; from here on their memory can be freed."""
        extents = await self._pool.run(lambda: list(self._engine.segments.extents(segment.number)))
        held: list[tuple[int, int]] = []
        async for log, first, last in _slices(extents):
            if live := self._engine.lives.get(log):
                add_extent(live.log, segment.number, first, last)
                held.append((log, last))
        self._sealed.append(held)

    async def _free_memory(self) -> None:
        """Let the oldest sealed records go while there are too many in memory."""
        engine = self._engine
        while self._sealed and engine.tail_bytes > engine.caps.tail_bytes:
            async for log, last in _slices(self._sealed.popleft()):
                if live := engine.lives.get(log):
                    engine.tail_bytes -= live.tail.drop_to(min(last, _resident_below(live.log)))
        if engine.tail_bytes <= self._memory_max or not self._closed:
            engine.door.room.set()  # what is left is not ours to free

    async def _drop_dead_segments(self) -> None:
        """Whole segments go when nothing in them is live."""
        numbers = {segment.number for segment in self._manifest.segments}
        if not numbers:
            return
        needed: set[int] = set()
        async for log in _slices(list(self._engine.state.logs.values())):
            prune_extents(log)
            needed.update(extent[0] for extent in log.extents)
        dead = [s for s in self._manifest.segments if s.number in numbers - needed]
        if not dead:
            return
        # What made them dead must be durable first: a lost deletion must not find its records gone.
        await self._engine.journal.wait_synced(self._engine.journal.tail)
        kept = tuple(s for s in self._manifest.segments if s not in dead)
        await self._publish(msgspec.structs.replace(self._manifest, segments=kept))
        for segment in dead:
            for name in (segment.name, segment.index, segment.tags):
                if name is not None:
                    await self._pool.run(self._objects.remove, name)
        say("info", "dropped segments in which nothing is live", count=len(dead))

    async def remove_orphans(self) -> None:
        """Remove what sealers left that no manifest names."""
        named = {
            name for s in self._manifest.segments for name in (s.name, s.index, s.tags) if name
        }
        for folder in (layout.SEGMENTS, layout.COMPANIONS):
            for name in await self._pool.run(self._objects.list, folder):
                if name not in named:
                    await self._pool.run(self._objects.remove, name)

    # --- snapshots -------------------------------------------------------------------------------

    async def snapshot(self) -> None:
        """The state of every log, captured in slices while writes go on; then made durable."""
        engine, journal = self._engine, self._engine.journal
        position = journal.tail
        state = engine.state
        head = Head(
            FORMAT, position, state.next_id, self._attached, self._disk.boot_id(), state.retired,
            state.epoch_floor,
        )  # fmt: skip
        parts = [encode_part(head)]
        async for log in _slices(list(engine.state.logs)):
            held = engine.state.logs.get(log)
            parts.append(encode_part(Captured(journal.tail, log, held)))
        parts.append(encode_part(Foot(len(parts) - 1)))
        # What was captured may be ahead of the disk; it must not outlive a journal that never got
        # there.
        await journal.wait_synced(journal.tail)
        await self._pool.run(snapshots.write, self._disk, position, parts)
        self._snapshot_position = position
        self._snapshot_bytes = sum(map(len, parts))

    def _needed_from(self) -> int:
        """The position below which segments and every snapshot we keep hold all the journal says.

        From the oldest snapshot on: should the newest turn out damaged, the one before must do.
        """
        kept = map(layout.number_of, self._disk.list(layout.SNAPSHOTS))
        position = min((number for number in kept if number is not None), default=0)
        return min(position, self._manifest.sealed_to)

    async def stop(self) -> None:
        """Leave everything so that the next start has little to do."""
        journal = self._engine.journal
        if journal.failure is not None:
            return
        await self.snapshot()
        await self._spares.clear()
        await journal.wait_synced(journal.enqueue([Stop()], sync=True))


def _resident_below(log: Log) -> int:
    """The last seq before those that live in memory only."""
    volatile = next(ranges.overlap(log.volatile, log.floor, log.head), None)
    return volatile[0] - 1 if volatile else log.head


async def _slices(items: Iterable[T]) -> AsyncIterator[T]:
    """The items, with a pause for everybody else after every few milliseconds."""
    started = perf_counter()
    for item in items:
        yield item
        if (perf_counter() - started) * 1e3 > SLICE_MS:
            await asyncio.sleep(0)
            started = perf_counter()
