"""Sealing: a closed range of the journal becomes one Parquet segment with its companions.

Reads only the journal, so it can run in another process while the server goes on. What was deleted
or trimmed inside the range never reaches the segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby

import msgspec

from headrace.core import ranges
from headrace.core.entry import Append, Delete, Drop, Entry, Trim
from headrace.core.ranges import Ranges
from headrace.core.record import Block, join, live_parts
from headrace.formats import layout
from headrace.formats.manifest import Segment
from headrace.formats.segment import LogRows, build
from headrace.storage.disk import Disk
from headrace.storage.objects import Objects
from headrace.storage.replay import Copies, JournalFile, frames_in, journal_files

_JOIN_MAX = 1024


class SealFailed(Exception):
    """The segment could not be made; the journal still holds everything."""


class Unreadable(SealFailed):
    """The journal itself cannot be read: to try again is of no use."""


class SealJob(msgspec.Struct, frozen=True, tag=True):
    """Which part of the journal to seal, under which number, and what its logs are called.

    A log without a name was dropped; one that is not listed at all is a mistake.
    """

    number: int
    attempt: str
    """Makes the names of the files unique: a forgotten sealer must not replace published ones."""
    start: int
    stop: int
    names: dict[int, str]


class _Held(msgspec.Struct):
    blocks: list[Block] = msgspec.field(default_factory=list)
    deleted: list[int] = msgspec.field(default_factory=list)
    """Ranges, as they came."""
    floor: int = 1


def seal(disk: Disk, objects: Objects, job: SealJob) -> Segment | None:
    """Write the segment; None when nothing in the range is worth keeping.

    Publishing is the caller's.
    """
    return store(objects, job, _rows(_gather(disk, job), job.names))


class Resident(msgspec.Struct, frozen=True):
    """What memory holds of a log that no segment does."""

    log: int
    name: str
    blocks: list[Block]
    gone: Ranges
    floor: int


def seal_resident(objects: Objects, job: SealJob, held: Sequence[Resident]) -> Segment | None:
    """The same from memory, where a file of the journal cannot be read any more."""
    rows = (_live_rows(one.log, one.name, one.blocks, one.gone, one.floor) for one in held)
    return store(objects, job, filter(None, rows))


def store(objects: Objects, job: SealJob, found: Iterable[LogRows]) -> Segment | None:
    """Write these rows as the segment that the job asks for."""
    rows = sorted(found, key=lambda log: (log.name, log.log))
    if not rows:
        return None
    built = build(rows)
    names = (
        layout.segment(job.number, job.attempt),
        layout.segment_index(job.number, job.attempt),
        layout.segment_tags(job.number, job.attempt),
    )
    contents = built.contents(names)
    try:
        for path, content in contents.items():
            objects.put(path, content)
    except OSError:
        for path in contents:  # every attempt has names of its own, and there may be no room
            with suppress(OSError):
                objects.remove(path)
        raise
    return built.described(names, job.number, job.start, job.stop)


def _gather(disk: Disk, job: SealJob) -> dict[int, _Held]:
    held: dict[int, _Held] = {}
    for file in journal_files(disk):
        stop = min(file.stop or job.stop, job.stop)
        if file.start >= job.stop or stop <= job.start:
            continue
        copies = Copies(file.path, file.start)
        # The file may go on behind the range, and be written to: nothing there is looked at.
        part = JournalFile(file.path, file.start, stop)
        for frame in frames_in(disk.map(file.path), part):
            if frame.position >= job.start:
                for entry in copies.entries(frame, records_only=True):
                    _take(held, entry)
            else:
                copies.skip(frame)
    return held


def _take(held: dict[int, _Held], entry: Entry) -> None:
    match entry:
        case Append():
            log = held.setdefault(entry.log, _Held())
            log.blocks.append(entry.block)
            if entry.trim is not None:
                _take(held, entry.trim)
        case Trim() if entry.log in held:
            log = held[entry.log]
            log.floor = max(log.floor, entry.floor_cap, entry.floor_ttl)
        case Delete() if entry.log in held:
            log = held[entry.log]
            log.deleted += entry.ranges
        case Drop():
            held.pop(entry.log, None)


def _rows(held: dict[int, _Held], names: dict[int, str]) -> Iterator[LogRows]:
    for log, kept in held.items():
        if log not in names:
            raise SealFailed(f"log {log} has records in the range but nobody named it")
        if not names[log]:
            continue  # dropped after this range was closed
        gone = ranges.from_pairs(ranges.pairs(kept.deleted))
        if rows := _live_rows(log, names[log], kept.blocks, gone, kept.floor):
            yield rows


def _live_rows(
    log: int, name: str, blocks: list[Block], gone: Ranges, floor: int
) -> LogRows | None:
    parts = [part for block in _joined(blocks) for part in live_parts(block, gone, floor)]
    return LogRows(log, name, parts) if parts else None


def _joined(blocks: list[Block]) -> Iterator[Block]:
    """The same records in fewer blocks: one with a single record costs as much as a large one."""
    for (single, _), found in groupby(blocks, lambda block: (block.count == 1, block.media)):
        run = list(found)
        if single:
            yield from (join(run[at : at + _JOIN_MAX]) for at in range(0, len(run), _JOIN_MAX))
        else:
            yield from run
