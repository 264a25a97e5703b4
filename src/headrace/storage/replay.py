"""Reading the journal back: which files there are, their frames in order, and what forwards stand
for.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

import msgspec

from headrace.core import route
from headrace.core.entry import Append, Entry, Forward
from headrace.core.errors import Corrupt
from headrace.core.record import Block
from headrace.formats import layout
from headrace.formats.frame import RECORD_KINDS, Frame, read_frames
from headrace.storage.disk import Disk


class JournalFile(msgspec.Struct, frozen=True):
    """A journal file; `stop` is where the next one starts, None for the last."""

    path: str
    start: int
    stop: int | None


def journal_files(disk: Disk) -> list[JournalFile]:
    paths = [f"{layout.JOURNAL}/{name}" for name in disk.list(layout.JOURNAL)]
    starts = [(path, start) for path in paths if (start := layout.number_of(path)) is not None]
    stops = [*(start for _, start in starts[1:]), None]
    return [JournalFile(path, start, stops[at]) for at, (path, start) in enumerate(starts)]


def frames_of(disk: Disk, file: JournalFile) -> Iterator[Frame]:
    """The frames of one file. A torn end that the next file does not build upon is passed over."""
    return frames_in(memoryview(disk.read(file.path)), file)


def frames_in(raw: memoryview, file: JournalFile) -> Iterator[Frame]:
    """The same of a file whose bytes are at hand."""
    if file.stop is None:
        yield from read_frames(raw, file.start, file.path, final=True)
        return
    size = file.stop - file.start
    if len(raw) < size:
        raise Corrupt(file.path, len(raw), f"{size - len(raw)} bytes are missing at the end")
    yield from read_frames(raw[:size], file.start, file.path, final=False)


class _Placed(NamedTuple):
    position: int
    block: Block


_position = attrgetter("position")
_last = attrgetter("block.last")


class Copies:
    """Tells the forwards of one journal file what they stand for: records of the same file."""

    def __init__(self, path: str, start: int) -> None:
        self._path = path
        self._start = start
        self._placed: dict[int, list[_Placed]] = {}
        self._unread: list[Frame] = []
        self._made: tuple[object, Block] | None = None
        self.size_bytes = 0
        """What the forwards came to so far."""
        self._ties: list[tuple[int, int]] = []
        """(first, last) positions that must stay in one file, apart from each other, ascending."""

    def entries(self, frame: Frame, *, records_only: bool = False) -> list[Entry]:
        """The entries of a frame; behind a forward that stands for copies, the append of them.

        With `records_only` those of a group are left out that have nothing to do with records.
        """
        found: list[Entry] = []
        for entry in frame.record_entries if records_only else frame.entries:
            found.append(entry)
            if isinstance(entry, Forward) and entry.copying is not None:
                entry = self._derive(entry, frame.position)
                found.append(entry)
            if isinstance(entry, Append):
                placed = self._placed.setdefault(entry.log, [])
                insort(placed, _Placed(frame.position, entry.block), key=_position)
        return found

    def skip(self, frame: Frame) -> None:
        """Nobody needs what this frame says, unless a forward turns out to."""
        if frame.kind in RECORD_KINDS:
            self._unread.append(frame)

    def part_at(self, position: int) -> int:
        """Where the file can be parted, here or before, so that no forward is parted from what it
        stands for.
        """
        for first, last in reversed(self._ties):
            if first < position <= last:
                return first
        return position

    def _derive(self, entry: Forward, position: int) -> Append:
        unread, self._unread = self._unread, []
        for frame in unread:
            self.entries(frame)
        placed = self._placed.get(entry.source, [])
        at = bisect_left(placed, entry.picks[0], key=_last)
        key = (entry.source, entry.copying, *entry.picks)
        if self._made is not None and self._made[0] == key:
            made: Block | None = self._made[1]
        else:
            made = route.remake(entry, (placed[i].block for i in range(at, len(placed))))
        if made is None:
            raise Corrupt(
                self._path,
                position - self._start,
                f"router {entry.router} forwards records that this file does not hold",
            )
        if not (entry.copying and entry.copying.source_name):
            self._made = key, made
        self._tie(placed[at].position, position)
        self.size_bytes += made.size_bytes
        return route.derived(entry, made)

    def _tie(self, first: int, last: int) -> None:
        while self._ties and self._ties[-1][1] >= first:
            known = self._ties.pop()
            first, last = min(first, known[0]), max(last, known[1])
        self._ties.append((first, last))
