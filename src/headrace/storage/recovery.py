"""Recovery: the newest valid snapshot, then the journal through the `apply` of live writes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headrace.core import lease, ranges
from headrace.core import state as core_state
from headrace.core.entry import Append, Drop, Entry, LoseAtRestart, Release, Start, Stop
from headrace.core.errors import Corrupt
from headrace.core.log import Extent, Log, lost_by_restart, place
from headrace.core.ranges import Ranges
from headrace.core.record import Block
from headrace.core.retention import build
from headrace.core.state import State
from headrace.formats import layout
from headrace.formats.frame import Frame
from headrace.formats.manifest import Manifest
from headrace.storage import manifests, snapshots, unsynced
from headrace.storage.companions import held_in
from headrace.storage.disk import Disk, make_folders, write_atomically
from headrace.storage.objects import Objects
from headrace.storage.replaced_objects import Vanished
from headrace.storage.replay import Copies, JournalFile, frames_in, journal_files
from headrace.storage.segments import Segments

_DROPPED = 1 << 63
"""A log that was dropped while its snapshot was taken: replay has nothing to add to it."""


class Recovered(msgspec.Struct):
    """Everything a server starts from."""

    state: State
    manifest: Manifest
    position: int
    """Where the journal goes on."""
    unsynced: bytes
    """The end of the journal, as it was read, which may not be on stable storage.

    Or a little more of it, so that no forward is parted from what it forwards.
    """
    blocks: dict[int, list[Block]]
    """Records that are in no segment yet, by log."""
    closed: list[tuple[int, int, dict[int, str], int]]
    """(start, stop, logs, bytes with all copies) of journal files that are not sealed yet."""
    losses: list[LoseAtRestart | Release]
    """What the restart took, records and leases; journaled before anybody sees it."""
    frames: int
    clean: bool
    snapshot_manifest: int
    """The manifest version that the snapshot had seen; 0 without one."""
    sync_failed: bool
    """A sync of the journal failed before: what was not synced may be gone in the same boot."""

    @property
    def last_stop(self) -> str:
        """How the server stopped before, in a word; none if it never ran on this directory."""
        if not self.position:
            return "none"
        return "clean" if self.clean else "unclean"


def settle(disk: Disk, recovered: Recovered) -> None:
    """What a killed process had written but not synced is a durable part of the journal after this.

    It is written anew: after a sync that failed, another one succeeds without writing anything. And
    as it was read before: after such a sync, the next read may find something else.
    """
    if tail := recovered.unsynced:
        write_atomically(disk, layout.journal_file(recovered.position - len(tail)), (tail,))


class Recovery:
    """One recovery of one data directory."""

    def __init__(
        self,
        disk: Disk,
        objects: Objects,
        segments: Segments,
        progress: Callable[[float], None] = lambda share: None,
    ) -> None:
        self._disk = disk
        self._objects = objects
        self._segments = segments
        self._progress = progress
        self._state = State()
        self._known_to: dict[int, int] = {}  # log → the position its state already reflects
        self._replay_from = 0
        self._blocks: dict[int, list[Block]] = {}
        self._closed: list[tuple[int, int, dict[int, str], int]] = []
        self._frames = 0
        self._unsynced = b""
        self._sync_failed = False
        self._boot_id = ""
        self._clean = False
        self._snapshot_is_newest = True

    def run(self) -> Recovered:
        make_folders(self._disk, (layout.JOURNAL, layout.SNAPSHOTS))
        manifest = manifests.load(self._objects)
        seen = self._load_snapshot()
        position = self._replay(manifest.sealed_to)
        manifest, losses = self._join_segments(manifest, seen)
        return Recovered(
            self._state,
            manifest,
            position,
            self._unsynced,
            self._blocks,
            self._closed,
            losses,
            self._frames,
            self._clean,
            seen,
            self._sync_failed,
        )

    def _load_snapshot(self) -> int:
        """Take in the newest snapshot; returns the manifest version its extents reflect."""
        loaded = snapshots.load(self._disk)
        if loaded is None:
            return 0
        head, captured, self._snapshot_is_newest = loaded
        self._replay_from = head.position
        self._boot_id = head.boot_id
        for item in captured:
            self._known_to[item.id] = item.position if item.log is not None else _DROPPED
            if item.log is not None:
                self._state.put(item.log)
        self._state.next_id = max(self._state.next_id, head.next_id)
        self._state.retired = dict(head.retired)
        self._state.epoch_floor = head.epoch_floor
        for token in head.tokens:
            self._state.issue(token)
        return head.manifest

    def _replay(self, sealed_to: int) -> int:
        files = journal_files(self._disk)
        self._sync_failed = unsynced.found(self._disk, files[-1].path if files else None)
        start = min(self._replay_from, sealed_to) if files else 0
        if files and files[0].start > start:
            raise Corrupt(
                files[0].path, 0, f"the journal before it is missing, from position {start} on"
            )
        position = 0
        wanted = [file for file in files if file.stop is None or file.stop > start]
        for at, file in enumerate(wanted):
            position = self._replay_file(file, sealed_to)
            self._progress((at + 1) / len(wanted))
        self._check_end(files, position, sealed_to)
        return max(position, self._replay_from)

    def _check_end(self, files: list[JournalFile], end: int, sealed_to: int) -> None:
        """Snapshots and segments hold only what was synced: a journal without it is damaged."""
        known = (to for to in self._known_to.values() if to != _DROPPED)
        synced = max(self._replay_from, sealed_to, max(known, default=0))
        if files and end < synced:
            last = files[-1]
            raise Corrupt(
                last.path, end - last.start, f"the journal ends here, and was known up to {synced}"
            )
        if not files and min(self._replay_from, sealed_to) < synced:
            raise Corrupt(layout.JOURNAL, 0, f"the journal is missing; it was known up to {synced}")

    def _replay_file(self, file: JournalFile, sealed_to: int) -> int:
        position = synced = file.start
        touched: dict[int, str] = {}
        copies = Copies(file.path, file.start)
        raw = memoryview(self._disk.read(file.path))
        for frame in frames_in(raw, file):
            self._frames += 1
            if self._is_needed(frame, sealed_to):
                known = frame.position < self._replay_from
                for entry in copies.entries(frame, records_only=known):
                    self._replay_entry(entry, frame.position, sealed_to, touched)
            else:
                copies.skip(frame)
            synced = max(synced, frame.synced)
            position = frame.position + frame.size
        if position > sealed_to:
            size_bytes = position - file.start + copies.size_bytes
            self._closed.append((file.start, position, touched, size_bytes))
        # What is sealed was synced, and a forward in it that nobody read has no tie.
        synced = max(synced, min(sealed_to, position))
        self._unsynced = bytes(raw[copies.part_at(synced) - file.start : position - file.start])
        return position

    def _is_needed(self, frame: Frame, sealed_to: int) -> bool:
        """Whether something in a frame can matter; it is not decoded for that."""
        sealed = frame.position < sealed_to
        return not sealed or not frame.log or self._is_fresh(frame.log, frame.position)

    def _is_fresh(self, log: int, position: int) -> bool:
        """Whether the snapshot does not know yet what the journal says of this log here."""
        return position >= max(self._replay_from, self._known_to.get(log, 0))

    def _replay_entry(
        self, entry: Entry, position: int, sealed_to: int, touched: dict[int, str]
    ) -> None:
        unsealed = position >= sealed_to
        # (Also what is of no log: a snapshot knows all of that up to its position.)
        if self._is_fresh(entry.log, position):
            core_state.apply(self._state, entry)
        match entry:
            case Start():
                self._boot_id, self._clean = entry.boot_id, False
            case Stop():
                self._clean = True
            case Drop():
                self._blocks.pop(entry.log, None)
            case Append() if unsealed:
                log = self._state.logs.get(entry.log)
                touched[entry.log] = log.name if log else ""
                if log is not None:
                    self._blocks.setdefault(entry.log, []).append(entry.block)

    def _join_segments(
        self, manifest: Manifest, seen: int
    ) -> tuple[Manifest, list[LoseAtRestart | Release]]:
        """What only segments can tell; others may replace them while we look."""
        while True:
            # What we go by must not be lost after a snapshot that relies on it.
            self._objects.settle(layout.MANIFESTS)
            self._segments.use(manifest)
            try:
                self._place_records(manifest, seen)
                self._rebuild_ledgers()
                return manifest, self._losses()
            except Vanished as gone:
                newer = manifests.load_newer(self._objects, manifest.version)
                if newer is None:
                    raise self._lost(manifest, gone) from None
                manifest = newer

    def _lost(self, manifest: Manifest, gone: Vanished) -> Vanished:
        """What is lost with an object that we cannot start without."""
        for segment in manifest.segments:
            if gone.name in segment.names:
                holds = held_in(self._state.logs.values(), segment.number)
                holds = holds or f"{segment.rows} records of {segment.logs} logs"
                return Vanished(gone.name, f": segment {segment.number}, which holds {holds}")
        return gone

    def _place_records(self, manifest: Manifest, seen: int) -> None:
        """A snapshot knows the segments of the manifest version it has seen: replaced ones go, and
        newer ones come.
        """
        new: dict[int, list[Extent]] = {}
        for segment in manifest.segments:
            if segment.since > seen:
                for log, first, last in self._segments.extents(segment):
                    new.setdefault(log, []).append((segment.number, first, last))
        known = manifest.numbers
        for held in self._state.logs.values():
            if held.extents or held.id in new:
                place(held, known, new.get(held.id, ()))

    def _rebuild_ledgers(self) -> None:
        """A log whose retention began in the replayed part has no ledger yet."""
        for log in self._state.logs.values():
            if log.config.trims and log.ledger is None:
                sealed = self._segments.blocks(log, log.floor, log.sealed_last)
                tail = self._blocks.get(log.id, ())
                log.ledger = build(block for part in (sealed, tail) for block in part)
                log.ledger.drop_below(log.floor)

    def _losses(self) -> list[LoseAtRestart | Release]:
        same_boot = bool(self._boot_id) and self._boot_id == self._disk.boot_id()
        same_boot = same_boot and not self._sync_failed
        losses: list[LoseAtRestart | Release] = []
        # An older snapshot knows less of what was never journaled: as after an unclean stop.
        clean = self._clean and self._snapshot_is_newest
        for log in self._state.logs.values():
            lost, head = lost_by_restart(log, clean=clean, same_boot=same_boot)
            if lost:
                losses.append(self._loss(log, lost, head))
            if release := lease.lost_by_restart(log, lost):
                losses.append(release)
        return losses

    def _loss(self, log: Log, lost: Ranges, head: int) -> LoseAtRestart:
        # What was never journaled left its mark on the sum, so what is left is measured anew.
        left_bytes = self._surviving_bytes(log, lost) if log.volatile else log.size_bytes
        return LoseAtRestart(log.id, list(lost), head, left_bytes)

    def _surviving_bytes(self, log: Log, lost: Ranges) -> int:
        gone = ranges.union(list(log.gone), lost)
        total = 0
        sealed = self._segments.blocks(log, log.floor, log.sealed_last)
        for block in (*sealed, *self._blocks.get(log.id, ())):
            for first, last in ranges.outside(gone, max(block.first, log.floor), block.last):
                total += block.measure(block.index(first), block.stop_index(last))
        return total
