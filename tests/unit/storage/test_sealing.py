"""Sealing: whatever the blocks were, the segment holds their records."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.parquet as pq
import pytest

from headrace.core.entry import Append, Delete, Entry, Trim
from headrace.core.record import Drafts, block, draft
from headrace.formats import layout
from headrace.formats.frame import encode_frame
from headrace.storage.memory import MemoryDisk
from headrace.storage.objects import LocalObjects
from headrace.storage.sealing import SealJob, seal

Row = tuple[int, int, bytes, str | None, str | None]


def rows_of(entries: Sequence[Entry]) -> list[Row]:
    """What a journal of these entries becomes."""
    disk = MemoryDisk()
    raw = b""
    for entry in entries:
        raw += encode_frame(entry, len(raw), 0)
    disk.write(layout.journal_file(0), (raw,))
    disk.write(layout.journal_file(len(raw)), ())
    objects = LocalObjects(disk)
    segment = seal(disk, objects, SealJob(1, "a", 0, len(raw), {1: "one"}))
    assert segment is not None
    table = pq.read_table(objects.open(segment.name))
    names = ("seq", "ts", "data", "tag", "media")
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def append(first: int, *datas: bytes, tag: str | None = None, media: str | None = None) -> Append:
    made = draft(datas, tags=[tag] * len(datas) if tag else None)
    made = Drafts(made.data, made.ends, tags=made.tags, media=media)
    return Append(1, block(made, first, 1000 + first))


def test_single_records_and_batches_come_out_as_they_were() -> None:
    entries = [
        append(1, b"1"),
        append(2, b"2", tag="t"),
        append(3, b"3a", b"3b"),
        append(5, b"5"),
        append(6, b"six", media="text/plain"),
        append(7, b"7"),
    ]
    assert rows_of(entries) == [
        (1, 1001, b"1", None, None),
        (2, 1002, b"2", "t", None),
        (3, 1003, b"3a", None, None),
        (4, 1003, b"3b", None, None),
        (5, 1005, b"5", None, None),
        (6, 1006, b"six", None, "text/plain"),
        (7, 1007, b"7", None, None),
    ]


@pytest.mark.parametrize("count", [1, 1023, 1024, 1025, 3000])
def test_many_single_records(count: int) -> None:
    found = rows_of([append(seq, b"%d" % seq) for seq in range(1, count + 1)])
    assert [(row[0], row[2]) for row in found] == [(n, b"%d" % n) for n in range(1, count + 1)]


def test_what_was_deleted_or_trimmed_among_single_records_is_gone() -> None:
    entries = [append(seq, b"%d" % seq) for seq in range(1, 11)]
    found = rows_of([*entries, Delete(1, [5, 6], 2, 0), Trim(1, 3, 0, 2, 0)])
    assert [row[0] for row in found] == [3, 4, 7, 8, 9, 10]
