"""The journal: every frame whole, every entry possible, positions without a hole."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from headrace.core.entry import Forward
from headrace.core.errors import Corrupt
from headrace.formats.frame import (
    GROUP,
    HEADER_BYTES,
    Frame,
    blank_from,
    decode_frame,
    read_frames,
)
from headrace.storage.checks.findings import Advance, Finding, Note, Problem, byte
from headrace.storage.checks.history import History
from headrace.storage.checks.snapshots import Reach
from headrace.storage.disk import Disk
from headrace.storage.replay import Copies, JournalFile, journal_files


def check_journal(disk: Disk, reach: Reach, advance: Advance) -> Iterator[Finding]:
    """Findings of all journal files, given what snapshots and manifest say of them."""
    files = journal_files(disk)
    history = History(complete=bool(files) and files[0].start == 0)
    for file in files:
        raw = memoryview(disk.read(file.path))
        size = len(raw)
        if file.stop is not None:
            yield from _check_size(file, file.stop, raw, reach)
            history.complete &= file.start + len(raw) >= file.stop
            raw = raw[: file.stop - file.start]
        yield from _check_frames(file, raw, reach.synced_to, history)
        advance(size)


def _check_size(file: JournalFile, stop: int, raw: memoryview, reach: Reach) -> Iterator[Finding]:
    """A file reaches to where the next one starts; more than that is blank, or a crash left it."""
    size = stop - file.start
    missing, left = size - len(raw), blank_from(raw, size) - size
    if missing > 0:
        what = f"the journal goes on at position {stop}; {missing} bytes before it are missing"
        # What nobody needs is being removed, and a crash keeps no order of removals.
        kind = Note if stop <= reach.needed_from else Problem
        yield kind(file.path, byte(len(raw)), what)
    elif left:
        what = f"{left} bytes from before a restart; the next file stands for them"
        yield Note(file.path, byte(size), what)


def _check_frames(
    file: JournalFile, buffer: memoryview, synced_to: int, history: History
) -> Iterator[Finding]:
    offset = 0
    copies = Copies(file.path, file.start)
    while offset < len(buffer):
        frame = decode_frame(buffer, offset, file.start + offset)
        if frame is not None:
            for what in _entry_problems(frame, history, copies):
                yield Problem(file.path, byte(offset), what)
            offset += frame.size
            continue
        if file.stop is None and _is_torn(file, buffer, offset):
            if torn := blank_from(buffer, offset) - offset:
                yield Note(file.path, byte(offset), f"a torn tail of {torn} bytes")
            break
        history.complete = False
        if onward := _next_frame(buffer, offset, file.start):
            what = f"damaged frame of {onward - offset} bytes; the one behind it is whole"
            yield Problem(file.path, byte(offset), what)
            offset = onward
        else:
            what = f"damaged frame; {len(buffer) - offset} bytes from here on cannot be read"
            yield Problem(file.path, byte(offset), what)
            return
    if file.stop is None and file.start + offset < synced_to:
        what = f"the journal ends here; a snapshot or the manifest knew it up to {synced_to}"
        yield Problem(file.path, byte(offset), what)


def _entry_problems(frame: Frame, history: History, copies: Copies) -> Iterator[str]:
    try:
        entries = copies.entries(frame)
    except Corrupt as damage:
        yield damage.problem
        return
    for before, entry in pairwise((None, *entries)):
        if isinstance(before, Forward) and before.copying is not None:
            continue  # made of records that were looked at where they stand
        assert entry is not None
        if frame.kind != GROUP and entry.log != frame.log:
            yield f"the frame is of log {frame.log}, its entry of log {entry.log}"
        yield from history.contradictions(entry)


def _is_torn(file: JournalFile, buffer: memoryview, offset: int) -> bool:
    """Whether recovery takes what is from here on for the end of the journal."""
    rest = read_frames(buffer[offset:], file.start + offset, file.path, final=True)
    try:
        return next(rest, None) is None
    except Corrupt:
        return False


def _next_frame(buffer: memoryview, offset: int, start: int) -> int | None:
    """Where the frame behind a damaged one is, if the length of the damaged one still stands."""
    length = int.from_bytes(buffer[offset : offset + 4], "little")
    onward = offset + HEADER_BYTES + length
    return onward if decode_frame(buffer, onward, start + onward) is not None else None
