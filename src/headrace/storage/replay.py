"""Reading the journal back: which files there are, and their frames in order."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.formats.frame import Frame, read_frames
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
    raw = memoryview(disk.read(file.path))
    if file.stop is None:
        yield from read_frames(raw, file.start, file.path, final=True)
        return
    size = file.stop - file.start
    if len(raw) < size:
        raise Corrupt(file.path, len(raw), f"{size - len(raw)} bytes are missing at the end")
    yield from read_frames(raw[:size], file.start, file.path, final=False)
