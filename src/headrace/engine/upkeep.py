"""Upkeep: seal closed journal files, publish them, take snapshots, let go of memory and of dead
files.

Runs beside requests on the same loop, so it works in slices of a few milliseconds; what blocks runs
in the pool, and the heavy part, making Parquet, runs in another process.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from time import perf_counter

import msgspec

from headrace.core import ranges
from headrace.core.entry import Start, Stop
from headrace.core.errors import Corrupt, Refused
from headrace.core.limits import FREED_BLOCKS_MAX
from headrace.core.log import Log, prune_extents
from headrace.engine.engine import Backlog, Engine
from headrace.engine.generations import Generations
from headrace.engine.ports import Ids, Pool, Sealer
from headrace.engine.publication import Publication
from headrace.engine.slices import slices
from headrace.engine.spares import Spares
from headrace.formats import layout
from headrace.formats.manifest import Manifest, Segment, dropped, sealed
from headrace.formats.snapshot import FORMAT, Captured, Foot, Head, encode_part
from headrace.observe import say
from headrace.storage import manifests, snapshots
from headrace.storage.companions import held_in, missing, restore
from headrace.storage.disk import Disk
from headrace.storage.journal import ignore
from headrace.storage.objects import Objects
from headrace.storage.ownership import Ownership
from headrace.storage.recovery import Recovered
from headrace.storage.sealing import Resident, SealFailed, SealJob, Unreadable, seal_resident

_SWEEP_S = 1.0
_CLOSED_FILES_MAX = 8
_BACKLOG_FILES = 3
"""Journal files whose records may wait in memory for the sealer before writers are held back."""
_HURRY_FILES = 3
"""With so many journal files to seal, the sealer takes a full share of the machine."""
_MARKS_S = 5.0
"""How long to wait at least before telling others again what died."""
_RETRY_S = (1.0, 2.0, 5.0, 10.0, 30.0)
_SNAPSHOT_RATIO = 2
"""A snapshot is due when the journal has grown by this many times the size of the last one."""
_PIECE_BYTES = 1 << 20


class Pace(msgspec.Struct, frozen=True):
    """When upkeep acts."""

    seal_bytes: int = 64 << 20
    disk_sync_ms: int = 1000
    look_ms: int = 2000
    """How often to look for what others published, and to tell them what they must know."""


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
        ownership: Ownership,
    ) -> None:
        self._engine = engine
        self._disk = disk
        self._objects = objects
        self._sealer = sealer
        self._pool = pool
        self._ids = ids
        self._pace = pace
        self.generations = Generations(engine, objects, pool, manifest, ownership)
        self._publication = Publication(engine, objects, pool, self.generations)
        self._closed: deque[_Closed] = deque()
        self._wake = asyncio.Event()
        self._snapshot_position = -1
        self._snapshot_bytes = 0
        self._spares = Spares(engine.journal, disk, sealer, pool, ids, pace.seal_bytes)
        self._memory_max = engine.caps.tail_bytes + _BACKLOG_FILES * pace.seal_bytes
        engine.on_growth = self._look
        engine.backlog = self._measure_backlog

    @property
    def manifest(self) -> Manifest:
        return self.generations.manifest

    def resume(self, recovered: Recovered) -> None:
        """Take over what recovery found unsealed; say in the journal who writes from here on."""
        self._closed.extend(_Closed(*closed) for closed in recovered.closed)
        # Losses first: until they are written down, the next start must be able to find them again.
        self._engine.journal.enqueue([*recovered.losses, Start(0, self._disk.boot_id())], sync=True)
        unsealed = sum(closed.size_bytes for closed in self._closed)
        if unsealed >= self._pace.seal_bytes or len(self._closed) >= _CLOSED_FILES_MAX:
            self._wake.set()

    def _measure_backlog(self) -> Backlog:
        unsealed = sum(closed.size_bytes for closed in self._closed)
        return Backlog(len(self._closed), unsealed, self._memory_max)

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
            self._set_pace()
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
        """Sealing makes way for everybody else until many records, or writers, wait for it."""
        unsealed = sum(closed.size_bytes for closed in self._closed)
        held_back = not self._engine.door.room.is_set()
        self._sealer.hurry(held_back or unsealed >= _HURRY_FILES * self._pace.seal_bytes)

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
                    await self.find_vanished()
                    swept = True
                await self._wake.wait()
                self._wake.clear()
                await self.checkpoint()
                failures = 0
            except Refused as refused:
                say("error", "upkeep ends until the next start", problem=refused.message)
                return
            except (OSError, Corrupt, manifests.Conflict, SealFailed) as error:
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
                await self._pool.run(journal.note_failure)
                continue
            if journal.synced < journal.tail:
                ignore(journal.wait_synced(journal.tail))
            now = asyncio.get_running_loop().time()
            if now >= sweep_at:
                sweep_at = now + _SWEEP_S
                async for log in slices(list(self._engine.aging)):
                    if log in self._engine.lives:
                        self._engine.expire_now(self._engine.lives[log])

    async def run_exchange(self) -> None:
        """Take over what others published, and publish what they must know, every few seconds."""
        marks_at = 0.0
        while True:
            await asyncio.sleep(self._pace.look_ms / 1000)
            try:
                await self.generations.look()
                await self._publication.publish_plans()
                now = asyncio.get_running_loop().time()
                if now >= marks_at:
                    marks_at = now + _MARKS_S
                    await self._publication.publish_marks()
            except Refused:
                return  # read-only: nothing becomes durable any more
            except (OSError, Corrupt) as error:
                say("error", "the object store failed, will try again", problem=str(error))

    async def checkpoint(self) -> None:
        """Seal what is closed, free memory, take a snapshot when it pays, tidy up the journal."""
        await self.generations.look()
        working = True
        while working:
            self._forget_sealed()
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
            self.manifest.next_number,
            self._ids.token(),
            max(group[0].start, self.manifest.sealed_to),
            stop,
            names,
        )
        started = perf_counter()
        self._set_pace()
        damaged = False
        try:
            segment = await self._sealer.seal(job)
        except (Corrupt, Unreadable) as damage:
            say(
                "error", "the journal is damaged; what it held is sealed from memory",
                problem=str(damage),
            )  # fmt: skip
            damaged = True
            stop, segment = await self._seal_resident(job)

        def change(manifest: Manifest) -> Manifest | None:
            if manifest.sealed_to not in (job.start, stop):
                raise manifests.Conflict(
                    f"the journal is sealed up to {manifest.sealed_to}, which is not our doing: "
                    "another server uses this object store"
                )
            return sealed(manifest, segment, stop)

        await self.generations.publish(change)
        self._forget_sealed()
        if damaged:
            await self.snapshot()  # from here on no start needs that file
        if segment is not None:
            say(
                "info", "sealed a segment", name=segment.name, rows=segment.rows,
                bytes=segment.file_bytes, seconds=round(perf_counter() - started, 3),
            )  # fmt: skip

    async def _seal_resident(self, job: SealJob) -> tuple[int, Segment | None]:
        """Seal all that is not sealed, from memory, which holds it until then; returns up to where.

        One file cannot be read, and no segment can be behind a part of the journal that is in none.
        """
        engine = self._engine
        self.close_file()
        stop = engine.journal.tail
        held: list[Resident] = []
        for id in {log: None for closed in self._closed for log in closed.logs}:
            if (live := engine.lives.get(id)) is not None:
                log, first = live.log, max(live.log.floor, live.log.sealed_last + 1)
                gone = ranges.union(list(log.gone), log.volatile)
                blocks = list(live.tail.since(first))
                held.append(Resident(log.id, log.name, blocks, gone, first))
        await engine.journal.wait_synced(stop)
        job = msgspec.structs.replace(job, stop=stop)
        return stop, await self._pool.run(seal_resident, self._objects, job, held)

    def _forget_sealed(self) -> None:
        while self._closed and self._closed[0].stop <= self.manifest.sealed_to:
            self._closed.popleft()

    async def _free_memory(self) -> None:
        """Let the oldest sealed records go while there are too many in memory."""
        engine, resident = self._engine, self.generations.resident
        while resident and engine.tail_bytes > engine.caps.tail_bytes:
            async for freed_bytes in slices(self._free(resident.popleft())):
                engine.tail_bytes -= freed_bytes
        if engine.tail_bytes <= self._memory_max or not self._closed:
            engine.door.room.set()  # what is left is not ours to free
            self._set_pace()

    def _free(self, ends: Iterable[tuple[int, int]]) -> Iterator[int]:
        """Let go of the records of these logs up to these seqs, in steps; what each step frees."""
        lives = self._engine.lives
        for log, last in ends:
            while (live := lives.get(log)) is not None:
                upto = min(last, _resident_below(live.log))
                freed_bytes = live.tail.drop_to(upto, FREED_BLOCKS_MAX)
                if not freed_bytes:
                    break
                yield freed_bytes

    async def _drop_dead_segments(self) -> None:
        """Whole segments go when nothing in them is live."""
        numbers = self.manifest.numbers
        if not numbers:
            return
        needed: set[int] = set()
        state = self._engine.state
        async for id in slices(state.ids()):
            if (log := state.logs.get(id)) is not None and log.extents:
                prune_extents(log)
                needed.update(extent[0] for extent in log.extents)
        dead = numbers - needed
        if not dead:
            return
        # What made them dead must be durable first: a lost deletion must not find its records gone.
        await self._engine.journal.wait_synced(self._engine.journal.tail)
        gone: list[Segment] = []

        def change(manifest: Manifest) -> Manifest | None:
            gone[:] = (segment for segment in manifest.segments if segment.number in dead)
            return dropped(manifest, dead)

        await self.generations.publish(change)
        for segment in gone:
            for name in segment.names:
                await self._pool.run(self._objects.remove, name)
        if gone:
            say("info", "dropped segments in which nothing is live", count=len(gone))

    async def remove_orphans(self) -> None:
        """Remove what sealers left that nobody can have heard of; the pipeline tidies up itself.

        At the start, before we seal. First the store is claimed: whoever sealed them cannot publish
        them any more.
        """
        if await self._orphans():
            await self.generations.claim()
            for name in await self._orphans():
                await self._pool.run(self._objects.remove, name)

    async def _orphans(self) -> list[str]:
        found = [
            listed.name
            for folder in (layout.SEGMENTS, layout.COMPANIONS)
            for listed in await self._pool.run(self._objects.list, folder)
            if not layout.is_foreign(listed.name)
        ]
        # Looked at after the list: what is published from here on is not in it.
        named = await self._pool.run(manifests.named, self._objects)
        named.update(name for segment in self.manifest.segments for name in segment.names)
        return [name for name in found if name not in named]

    async def find_vanished(self) -> None:
        """Look for objects that the manifest names and that are not there: companions and builds
        are made again, and of records that are lost it is said which.
        """
        manifest = self.manifest
        gone = await self._pool.run(missing, self._objects, manifest)
        if not gone:
            return
        await self.generations.look()  # others may have replaced them meanwhile
        for build in self.manifest.builds:
            if build.name in gone:
                await self.generations.let_go(build.name)
        for segment in self.manifest.segments:
            if segment.name in gone:
                say(
                    "error", "a segment is lost: reading what it holds will fail",
                    name=segment.name, rows=segment.rows, holds=self._held_in(segment),
                )  # fmt: skip
            elif not gone.isdisjoint(segment.names):
                try:
                    await self._pool.run(restore, self._objects, segment)
                except Corrupt as damage:
                    say("error", "a companion cannot be made again", problem=str(damage))

    def _held_in(self, segment: Segment) -> str:
        """What a segment holds of which logs, for people."""
        return held_in(self._engine.state.logs.values(), segment.number)

    # --- snapshots -------------------------------------------------------------------------------

    async def snapshot(self) -> None:
        """The state of every log, captured in slices while writes go on; then made durable."""
        engine, journal = self._engine, self._engine.journal
        position = journal.tail
        state = engine.state
        head = Head(
            FORMAT, position, state.next_id, self.manifest.version, self._disk.boot_id(),
            state.retired, state.epoch_floor,
        )  # fmt: skip
        parts: list[bytes] = []
        # In large pieces: what is made of a million small ones holds everybody up at its end.
        piece, count = bytearray(encode_part(head)), 0
        async for log in slices(engine.state.ids()):
            held = engine.state.logs.get(log)
            piece += encode_part(Captured(journal.tail, log, held))
            count += 1
            if len(piece) >= _PIECE_BYTES:
                parts.append(bytes(piece))
                piece.clear()
        piece += encode_part(Foot(count))
        parts.append(bytes(piece))
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
        return min(position, self.manifest.sealed_to)

    async def stop(self) -> None:
        """Leave everything so that the next start has little to do."""
        journal = self._engine.journal
        if journal.failure is not None or journal.stall is not None:
            return
        try:
            await self._publication.publish_plans()
            await self._publication.publish_marks()
        except (OSError, Corrupt) as error:
            say("warning", "plans and marks are not published", problem=str(error))
        await self.snapshot()
        await self._spares.clear()
        await journal.wait_synced(journal.enqueue([Stop()], sync=True))


def _resident_below(log: Log) -> int:
    """The last seq before those that live in memory only."""
    volatile = next(ranges.overlap(log.volatile, log.floor, log.head), None)
    return volatile[0] - 1 if volatile else log.head
