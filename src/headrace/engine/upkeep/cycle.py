"""Upkeep: seal parts of the journal, publish them, take snapshots, let go of memory and of dead
files.

Runs beside requests on the same loop, so it works in slices of a few milliseconds; what blocks runs
in the pool, and the heavy part, making Parquet, runs in another process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import NamedTuple

import msgspec

from headrace.core import ranges
from headrace.core.entry import Start, Stop
from headrace.core.errors import Code, Corrupt, Refused
from headrace.core.limits import (
    AGED_EXTENTS_MAX,
    AGED_SEGMENTS_MAX,
    FREED_BLOCKS_MAX,
    SEAL_WAIT_S,
)
from headrace.core.log import Log, prune_extents
from headrace.engine.flow.time_slices import slices
from headrace.engine.kernel import Kernel
from headrace.engine.ports import Ids, Pool, Sealer
from headrace.engine.upkeep.journal_recycling import JournalRecycling
from headrace.engine.upkeep.manifest_follower import ManifestFollower
from headrace.engine.upkeep.manifest_publisher import ManifestPublisher
from headrace.engine.upkeep.unsealed import Unsealed
from headrace.formats import layout
from headrace.formats.manifest import Manifest, Segment, dropped, sealed
from headrace.formats.snapshot import FORMAT, Captured, Foot, SnapshotHead, encode_part
from headrace.observe import log_line
from headrace.storage import manifests, snapshots
from headrace.storage.companions import held_in, missing, restore
from headrace.storage.disk import Disk
from headrace.storage.journal import ignore
from headrace.storage.object_store_stats import ObjectStoreStats
from headrace.storage.objects import Objects
from headrace.storage.recovery import Recovered
from headrace.storage.sealing import Resident, SealFailed, SealJob, Unreadable, seal_resident

_SWEEP_S = 1.0
_PARTS_MAX = 8
"""Parts of the journal that a start leaves unsealed, however small they are."""
_BACKLOG_FILES = 3
"""Journal files whose records may wait in memory for the sealer before writers are held back."""
_HURRY_FILES = 3
"""With so many journal files to seal, the sealer takes a full share of the machine."""
_MARKS_S = 5.0
"""How long to wait at least before telling others again what died."""
_RETRY_S = (1.0, 2.0, 5.0, 10.0, 30.0)
_SNAPSHOT_RATIO = 2
"""A snapshot is due when the journal has grown by this many times the size of the last one."""
_SNAPSHOT_SEGMENTS = 64
"""Also when so many segments came since: a start looks into each that its snapshot does not know.
"""
_PIECE_BYTES = 1 << 20


class SealBacklog(NamedTuple):
    """Parts of the journal that wait to be sealed, and how much may wait in memory."""

    parts: int = 0
    size_bytes: int = 0
    memory_max_bytes: int = 0
    unsealed_bytes: int = 0
    """Of the journal behind what is sealed, the open part too; 0 when no record waits."""
    age_ms: int = 0
    """How long the oldest record waits."""


class SealResult(NamedTuple):
    """What was sealed, and the manifest version in which it is."""

    records: int
    segments: int
    manifest: int


class UpkeepPace(msgspec.Struct, frozen=True):
    """When upkeep acts."""

    seal_bytes: int = 64 << 20
    disk_sync_ms: int = 1000
    look_ms: int = 2000
    """How often to look for what others published, and to tell them what they must know."""
    seal_ms: int = 300_000
    """How long records wait for a segment at most, however few they are; 0: until they are many."""


class Upkeep:
    """Keeps a running engine small and its restart short."""

    def __init__(
        self,
        kernel: Kernel,
        disk: Disk,
        objects: Objects,
        sealer: Sealer,
        pool: Pool,
        ids: Ids,
        pace: UpkeepPace,
        manifests: ManifestFollower,
        requests: ObjectStoreStats,
    ) -> None:
        self._kernel = kernel
        self._disk = disk
        self._objects = objects
        self._sealer = sealer
        self._pool = pool
        self._ids = ids
        self._pace = pace
        self.manifests = manifests
        self._publisher = ManifestPublisher(kernel, objects, pool, manifests, requests)
        self._unsealed = Unsealed(kernel)
        self._wake = asyncio.Event()
        self._age_timer: asyncio.TimerHandle | None = None
        """Runs while records wait, until they are old enough."""
        self._step = asyncio.Event()
        """Set, and replaced, when something was sealed or retired, or will not be."""
        self._problem = ""
        """Why upkeep failed the last time."""
        self._sealed_rows = self._sealed_segments = 0
        self._retire_to = self._retired_to = 0
        """Up to where somebody wants the journal to be gone, and up to where it is."""
        self._snapshot_position = -1
        self._snapshot_manifest = 0
        """The manifest version that the last snapshot has seen."""
        self._snapshot_bytes = 0
        self._recycling = JournalRecycling(kernel.journal, disk, sealer, pool, ids, pace.seal_bytes)
        self._memory_max = kernel.caps.tail_bytes + _BACKLOG_FILES * pace.seal_bytes
        kernel.observe_growth(self._look)
        kernel.observe_drain(self._wake.set)
        kernel.observe_drain(self._note_step)

    @property
    def manifest(self) -> Manifest:
        return self.manifests.manifest

    def resume(self, recovered: Recovered) -> None:
        """Take over what recovery found unsealed; say in the journal who writes from here on."""
        loop, now_ms = asyncio.get_running_loop(), self._kernel.clock.now_ms()
        self._unsealed.resume(recovered, loop.time(), now_ms)
        self._snapshot_manifest = recovered.snapshot_manifest
        # Losses first: until they are written down, the next start must be able to find them again.
        self._kernel.journal.enqueue([*recovered.losses, Start(0, self._disk.boot_id())], sync=True)
        unsealed = self._unsealed
        if unsealed.size_bytes >= self._pace.seal_bytes or len(unsealed.parts) >= _PARTS_MAX:
            self._wake.set()
        elif unsealed.waits:
            self._start_age_timer(unsealed.since)

    def backlog(self) -> SealBacklog:
        """What waits to be sealed."""
        unsealed, journal = self._unsealed, self._kernel.journal
        since = unsealed.since
        age_s = asyncio.get_running_loop().time() - since if since is not None else 0.0
        return SealBacklog(
            len(unsealed.parts),
            unsealed.size_bytes,
            self._memory_max,
            journal.tail - self.manifest.sealed_to if unsealed.waits else 0,
            int(1000 * age_s),
        )

    def _look(self) -> None:
        """After a write: is it time to close the journal file, or to hold writers back?"""
        kernel, journal = self._kernel, self._kernel.journal
        if self._unsealed.open_since is None and kernel.touched:
            self._start_age_timer()
        file_bytes = journal.tail - journal.file_start
        if file_bytes + kernel.derived_bytes >= self._pace.seal_bytes:
            self.close_file()
        elif not journal.spares and self._recycling.due(file_bytes):
            self._wake.set()
        if kernel.tail_bytes > self._memory_max and self._unsealed.parts:
            kernel.admission.room.clear()
            self._set_pace()
            self._wake.set()

    def close_file(self) -> None:
        """Go on in a new journal file; what the old one holds is to be sealed."""
        if self._unsealed.close_file():
            self._seal_soon()

    def _seal_soon(self) -> None:
        if self._age_timer is not None:
            self._age_timer.cancel()
            self._age_timer = None
        self._set_pace()
        self._wake.set()

    def _start_age_timer(self, since: float | None = None) -> None:
        """The first record of a part was written: when it is old enough, the part is sealed."""
        loop = asyncio.get_running_loop()
        if since is None:
            since = self._unsealed.open_since = loop.time()
        if self._pace.seal_ms and self._age_timer is None:
            at = since + self._pace.seal_ms / 1000
            self._age_timer = loop.call_at(max(at, loop.time()), self._seal_aged)

    def _seal_aged(self) -> None:
        """Records have waited long enough."""
        self._age_timer = None
        segments = self.manifest.segments
        extents = sum(segment.logs for segment in segments)
        more = len(self._kernel.touched)
        if len(segments) >= AGED_SEGMENTS_MAX or extents + more > AGED_EXTENTS_MAX:
            log_line(
                "warning", "there are many segments: records wait until they are many, too; "
                "run `headrace pipeline compact`", segments=len(segments), extents=extents,
            )  # fmt: skip
            self._start_age_timer(asyncio.get_running_loop().time())
            return
        self._unsealed.cut()
        self._seal_soon()

    def _set_pace(self) -> None:
        """Sealing makes way for everybody else until many records, or writers, wait for it."""
        held_back = not self._kernel.admission.room.is_set()
        much = self._unsealed.size_bytes >= _HURRY_FILES * self._pace.seal_bytes
        self._sealer.hurry(held_back or much)

    async def run(self) -> None:
        """Work whenever something is to be sealed; try again, ever more slowly, when something
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
                if self._kernel.draining:
                    return  # what is left to do is done at the stop, or at the next start
                self._wake.clear()
                await self.checkpoint()
                failures, self._problem = 0, ""
            except Refused as refused:
                log_line("error", "upkeep ends until the next start", problem=refused.message)
                self._note_step()
                return
            except (OSError, Corrupt, manifests.Conflict, SealFailed) as error:
                wait_s = _RETRY_S[min(failures, len(_RETRY_S) - 1)]
                failures += 1
                self._problem = str(error)
                log_line(
                    "error", "upkeep failed, will try again", problem=str(error), wait_s=wait_s
                )
                await asyncio.sleep(wait_s)
                self._wake.set()

    async def run_timers(self) -> None:
        """Sync what nobody waits for, and move floors of logs nobody reads."""
        sweep_at = 0.0
        while True:
            await asyncio.sleep(self._pace.disk_sync_ms / 1000)
            journal = self._kernel.journal
            if journal.failure is not None:
                await self._pool.run(journal.note_failure)
                continue
            if journal.synced < journal.tail:
                ignore(journal.wait_synced(journal.tail))
            now = asyncio.get_running_loop().time()
            if now >= sweep_at:
                sweep_at = now + _SWEEP_S
                async for log in slices(list(self._kernel.aging)):
                    if log in self._kernel.open_logs:
                        self._kernel.expire_now(self._kernel.open_logs[log])

    async def run_exchange(self) -> None:
        """Take over what others published, and publish what they must know, every few seconds."""
        marks_at = 0.0
        while True:
            await asyncio.sleep(self._pace.look_ms / 1000)
            try:
                await self.manifests.look()
                await self._publisher.publish_plans()
                now = asyncio.get_running_loop().time()
                if now >= marks_at:
                    marks_at = now + _MARKS_S
                    await self._publisher.publish_marks()
            except Refused:
                return  # read-only: nothing becomes durable any more
            except (OSError, Corrupt) as error:
                log_line("error", "the object store failed, will try again", problem=str(error))

    async def checkpoint(self) -> None:
        """Seal parts that ended, free memory, take a snapshot when it pays, tidy up the journal."""
        await self.manifests.look()
        working = True
        while working:
            self._unsealed.forget(self.manifest.sealed_to)
            if self._unsealed.parts:
                await self._seal_next()
                await self._free_memory()
            await self._drop_dead_segments()
            if self._snapshot_due():
                await self.snapshot()
            if self._retired_to < self._retire_to <= self.manifest.sealed_to:
                await self._renew_snapshots()
            needed_from = await self._pool.run(self._needed_from)
            await self._recycling.retire(needed_from)
            self._retired_to = needed_from
            self._note_step()
            await self._recycling.restock()
            working = bool(self._unsealed.parts)

    # --- sealing ---------------------------------------------------------------------------------

    async def seal(self, *, retire: bool = False) -> SealResult:
        """Seal everything that was written before; done when the segments are published, and what
        is dead in them is marked. With `retire` the journal lets go of it, too.

        Who asks meanwhile shares the work.
        """
        kernel, journal, unsealed = self._kernel, self._kernel.journal, self._unsealed
        kernel.check_open()
        rows, segments = self._sealed_rows, self._sealed_segments
        target = 0
        if retire and (unsealed.waits or self._retired_to < unsealed.records_to):
            self.close_file()
            target = self._retire_to = journal.file_start
        elif not retire and unsealed.waits:
            unsealed.cut()
            target = unsealed.parts[-1].stop
        if target:
            self._seal_soon()
            await self._wait_sealed(target, retire=retire)
        try:
            await self._publisher.publish_marks()
        except (OSError, Corrupt) as error:
            raise Refused(
                Code.STORAGE_UNAVAILABLE, f"what is dead could not be published: {error}"
            ) from None
        return SealResult(
            self._sealed_rows - rows, self._sealed_segments - segments, self.manifest.version
        )

    async def _wait_sealed(self, position: int, *, retire: bool) -> None:
        """Wait until the journal is sealed, or gone, up to here."""
        try:
            async with asyncio.timeout(SEAL_WAIT_S):
                while (self._retired_to if retire else self.manifest.sealed_to) < position:
                    step = self._step
                    self._kernel.check_open()
                    await step.wait()
        except TimeoutError:
            cause = f": {self._problem}" if self._problem else ""
            raise Refused(
                Code.STORAGE_UNAVAILABLE,
                f"not sealed within {SEAL_WAIT_S:g} s, and still at work; ask again{cause}",
            ) from None

    def _note_step(self) -> None:
        """Wake whoever waits for something to be sealed."""
        step, self._step = self._step, asyncio.Event()
        step.set()

    async def _seal_next(self) -> None:
        """Seal the oldest parts together, up to the size of one segment."""
        group = self._unsealed.next_parts(self._pace.seal_bytes)
        stop = group[-1].stop
        await self._kernel.journal.wait_synced(stop)
        names = {log: name for part in group for log, name in part.logs.items()}
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
            log_line(
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

        await self.manifests.publish(change)
        self._unsealed.forget(self.manifest.sealed_to)
        if segment is not None:
            self._sealed_segments += 1
            self._sealed_rows += segment.rows
        self._note_step()
        if damaged:
            await self.snapshot()  # from here on no start needs that file
        if segment is not None:
            log_line(
                "info", "sealed a segment", name=segment.name, rows=segment.rows,
                bytes=segment.file_bytes, seconds=round(perf_counter() - started, 3),
            )  # fmt: skip

    async def _seal_resident(self, job: SealJob) -> tuple[int, Segment | None]:
        """Seal all that is not sealed, from memory, which holds it until then; returns up to where.

        One file cannot be read, and no segment can be behind a part of the journal that is in none.
        """
        kernel = self._kernel
        self.close_file()
        stop = kernel.journal.tail
        held: list[Resident] = []
        for id in self._unsealed.logs():
            if (live := kernel.open_logs.get(id)) is not None:
                log, first = live.log, max(live.log.floor, live.log.sealed_last + 1)
                gone = ranges.union(list(log.gone), log.volatile)
                blocks = list(live.tail.since(first))
                held.append(Resident(log.id, log.name, blocks, gone, first))
        await kernel.journal.wait_synced(stop)
        job = msgspec.structs.replace(job, stop=stop)
        return stop, await self._pool.run(seal_resident, self._objects, job, held)

    async def _free_memory(self) -> None:
        """Let the oldest sealed records go while there are too many in memory."""
        kernel, resident = self._kernel, self.manifests.resident
        while resident and kernel.tail_bytes > kernel.caps.tail_bytes:
            async for _ in slices(self._free(resident.popleft())):
                pass
        if kernel.tail_bytes <= self._memory_max or not self._unsealed.parts:
            kernel.admission.room.set()  # what is left is not ours to free
            self._set_pace()

    def _free(self, ends: Iterable[tuple[int, int]]) -> Iterator[int]:
        """Let go of the records of these logs up to these seqs, in steps; what each step frees."""
        lives = self._kernel.open_logs
        for log, last in ends:
            while (live := lives.get(log)) is not None:
                upto = min(last, _resident_below(live.log))
                freed_bytes = self._kernel.free(live, upto, FREED_BLOCKS_MAX)
                if not freed_bytes:
                    break
                yield freed_bytes

    async def _drop_dead_segments(self) -> None:
        """Whole segments go when nothing in them is live."""
        numbers = self.manifest.numbers
        if not numbers:
            return
        needed: set[int] = set()
        state = self._kernel.state
        async for id in slices(state.ids()):
            if (log := state.logs.get(id)) is not None and log.extents:
                prune_extents(log)
                needed.update(extent[0] for extent in log.extents)
        dead = numbers - needed
        if not dead:
            return
        # What made them dead must be durable first: a lost deletion must not find its records gone.
        await self._kernel.journal.wait_synced(self._kernel.journal.tail)
        gone: list[Segment] = []

        def change(manifest: Manifest) -> Manifest | None:
            gone[:] = (segment for segment in manifest.segments if segment.number in dead)
            return dropped(manifest, dead)

        await self.manifests.publish(change)
        for segment in gone:
            for name in segment.names:
                await self._pool.run(self._objects.remove, name)
        if gone:
            log_line("info", "dropped segments in which nothing is live", count=len(gone))

    async def remove_orphans(self) -> None:
        """Remove what sealers left that nobody can have heard of; the pipeline tidies up itself.

        At the start, before we seal. First the store is claimed: whoever sealed them cannot publish
        them any more.
        """
        if await self._orphans():
            await self.manifests.claim()
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
        await self.manifests.look()  # others may have replaced them meanwhile
        for build in self.manifest.builds:
            if build.name in gone:
                await self.manifests.let_go(build.name)
        for segment in self.manifest.segments:
            if segment.name in gone:
                holds = held_in(self._kernel.state.logs.values(), segment.number)
                log_line(
                    "error", "a segment is lost: reading what it holds will fail",
                    name=segment.name, rows=segment.rows, holds=holds,
                )  # fmt: skip
            elif not gone.isdisjoint(segment.names):
                try:
                    await self._pool.run(restore, self._objects, segment)
                except Corrupt as damage:
                    log_line("error", "a companion cannot be made again", problem=str(damage))

    # --- snapshots -------------------------------------------------------------------------------

    def _snapshot_due(self) -> bool:
        grown = self._kernel.journal.tail - self._snapshot_position
        if grown >= max(self._pace.seal_bytes, _SNAPSHOT_RATIO * self._snapshot_bytes):
            return True
        seen = self._snapshot_manifest
        return sum(s.since > seen for s in self.manifest.segments) >= _SNAPSHOT_SEGMENTS

    async def snapshot(self) -> None:
        """The state of every log, captured in slices while writes go on; then made durable."""
        kernel, journal = self._kernel, self._kernel.journal
        position = journal.tail
        state = kernel.state
        head = SnapshotHead(
            FORMAT, position, state.next_id, self.manifest.version, self._disk.boot_id(),
            state.retired, state.epoch_floor, list(state.tokens.values()),
        )  # fmt: skip
        parts: list[bytes] = []
        # In large pieces: what is made of a million small ones holds everybody up at its end.
        piece, count = bytearray(encode_part(head)), 0
        async for log in slices(kernel.state.ids()):
            held = kernel.state.logs.get(log)
            part = encode_part(Captured(journal.tail, log, held))
            count += 1
            is_large = len(part) >= _PIECE_BYTES
            if not is_large:
                piece += part
            if is_large or len(piece) >= _PIECE_BYTES:
                parts.append(bytes(piece))
                piece.clear()
            if is_large:
                parts.append(part)  # as it is: it may be what is known of a million contents
        piece += encode_part(Foot(count))
        parts.append(bytes(piece))
        # What was captured may be ahead of the disk; it must not outlive a journal that never got
        # there.
        await journal.wait_synced(journal.tail)
        await self._pool.run(snapshots.write, self._disk, position, parts)
        self._snapshot_position = position
        self._snapshot_manifest = head.manifest
        self._snapshot_bytes = sum(map(len, parts))

    async def _renew_snapshots(self) -> None:
        """Take all snapshots anew that are kept: none of them needs the journal of before."""
        journal = self._kernel.journal
        for _ in range(snapshots.KEEP):
            if journal.tail == self._snapshot_position:
                # They are named after positions; and this says no more than the last one.
                journal.enqueue([Start(0, self._disk.boot_id())], sync=True)
            await self.snapshot()

    def _needed_from(self) -> int:
        """The position below which segments and every snapshot we keep hold all the journal says.

        From the oldest snapshot on: should the newest turn out damaged, the one before must do.
        """
        kept = map(layout.number_of, self._disk.list(layout.SNAPSHOTS))
        position = min((number for number in kept if number is not None), default=0)
        return min(position, self.manifest.sealed_to)

    async def stop(self) -> None:
        """Leave everything so that the next start has little to do."""
        journal = self._kernel.journal
        if self._age_timer is not None:
            self._age_timer.cancel()
        if journal.failure is not None or journal.stall is not None:
            return
        try:
            await self._publisher.publish_plans()
            await self._publisher.publish_marks()
        except (OSError, Corrupt) as error:
            log_line("warning", "plans and marks are not published", problem=str(error))
        await self.snapshot()
        await self._recycling.clear()
        await journal.wait_synced(journal.enqueue([Stop()], sync=True))


def _resident_below(log: Log) -> int:
    """The last seq before those that live in memory only."""
    volatile = next(ranges.overlap(log.volatile, log.floor, log.head), None)
    return volatile[0] - 1 if volatile else log.head
