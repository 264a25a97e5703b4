"""The journal's records, counted without a server: those in no segment yet, and dead ones of which
it still holds the bytes.

Reads only, beside a server at work: files may go while they are read.
"""

from __future__ import annotations

import msgspec

from headrace.core import ranges
from headrace.core.entry import Append, Delete, Drop, Entry, Forward, Trim
from headrace.core.errors import Corrupt
from headrace.core.ranges import EMPTY, Ranges
from headrace.formats.marks import Marks
from headrace.storage.disk import Disk
from headrace.storage.replay import Copies, JournalFile, frames_in, journal_files


class Census(msgspec.Struct, frozen=True):
    """What the journal holds, as of one moment."""

    unsealed: int = 0
    """Live records behind what is sealed."""
    dead: int = 0
    """Records whose bytes are there although they are deleted, expired, acked or dropped."""
    dead_files: int = 0
    dead_bytes: int = 0
    """The journal files that hold them, and what these come to."""


class _Appended(msgspec.Struct, frozen=True):
    log: int
    first: int
    last: int
    position: int
    stored: bool
    """Whether its bytes are in the file, and not those of what a router copied."""


class _File(msgspec.Struct):
    size_bytes: int = 0
    appended: list[_Appended] = []


class _Deaths:
    """What the journal and the server's marks say is dead."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._deleted: dict[int, list[int]] = {}
        self._floors: dict[int, int] = {}
        self._dropped: set[int] = set()

    def take(self, entry: Entry) -> None:
        match entry:
            case Append() if entry.trim is not None:
                self.take(entry.trim)
            case Trim():
                floor = max(entry.floor_cap, entry.floor_ttl)
                self._floors[entry.log] = max(self._floors.get(entry.log, 1), floor)
            case Delete():
                self._deleted.setdefault(entry.log, []).extend(entry.ranges)
            case Drop():
                self._dropped.add(entry.log)

    def settle(self) -> dict[int, Ranges]:
        """The dead seqs of each log that has some but lives."""
        found = {log: ranges.from_pairs(ranges.pairs(got)) for log, got in self._deleted.items()}
        for log, dead in self._marks.dead.items():
            found[log] = ranges.union(list(found.get(log, EMPTY)), dead)
        for log, floor in self._floors.items():
            if floor > 1:
                found[log] = ranges.add(list(found.get(log, EMPTY)), 1, floor - 1)
        return found

    def is_dropped(self, log: int) -> bool:
        return log in self._dropped or not ranges.contains(self._marks.live, log)


def take_census(disk: Disk, sealed_to: int, marks: Marks) -> Census:
    """Count; `Corrupt` where the journal is damaged."""
    deaths = _Deaths(marks)
    files = [_read(disk, file, deaths) for file in journal_files(disk)]
    dead_seqs = deaths.settle()
    unsealed = dead = dead_files = dead_bytes = 0
    for file in files:
        held = 0
        for one in file.appended:
            count, gone = one.last - one.first + 1, 0
            if deaths.is_dropped(one.log):
                gone = count
            elif one.log in dead_seqs:
                overlap = ranges.overlap(dead_seqs[one.log], one.first, one.last)
                gone = sum(last - first + 1 for first, last in overlap)
            held += gone * one.stored
            if one.position >= sealed_to:
                unsealed += count - gone
        dead += held
        dead_files += bool(held)
        dead_bytes += file.size_bytes if held else 0
    return Census(unsealed, dead, dead_files, dead_bytes)


def _read(disk: Disk, file: JournalFile, deaths: _Deaths) -> _File:
    found = _File()
    copies = Copies(file.path, file.start)
    try:
        raw = memoryview(disk.read(file.path))
        for frame in frames_in(raw, file):
            found.size_bytes = frame.position + frame.size - file.start
            copied = False
            for entry in copies.entries(frame, records_only=True):
                deaths.take(entry)
                if isinstance(entry, Append):
                    block = entry.block
                    found.appended.append(
                        _Appended(entry.log, block.first, block.last, frame.position, not copied)
                    )
                copied = _stands_for_copies(entry)
    except FileNotFoundError:
        return _File()  # retired since it was listed: a server is at work
    except Corrupt:
        if disk.exists(file.path):
            raise
        return _File()
    return found


def _stands_for_copies(entry: Entry) -> bool:
    """Whether the append behind it is made of records that are in the file already."""
    return isinstance(entry, Forward) and entry.copying is not None
