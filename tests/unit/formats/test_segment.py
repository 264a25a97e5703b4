"""Segments: Parquet that anybody reads, and blocks that share its buffers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.core.record import Block, block, draft
from headrace.formats import segment
from headrace.formats.manifest import SegmentBounds
from headrace.formats.segment import SCHEMA, LogRows, block_of, build


def test_a_segment_is_plain_parquet() -> None:
    records = draft(
        [b'{"n":1}', b"2"],
        metas=[None, b"{}"],
        tags=["t", None],
        nodes=[None, "x"],
        keys=["k", None],
    )
    built = build([LogRows(7, "a", [block(records, 5, 100)])])
    table = pq.read_table(pa.BufferReader(built.segment))
    assert table.schema.equals(SCHEMA)
    assert table.to_pylist() == [
        {"log": "a", "log_id": 7, "seq": 5, "ts": 100, "ns": None, "tag": "t", "node": None,
         "key": "k", "media": None, "data": b'{"n":1}', "meta": None},
        {"log": "a", "log_id": 7, "seq": 6, "ts": 100, "ns": None, "tag": None, "node": "x",
         "key": None, "media": None, "data": b"2", "meta": "{}"},
    ]  # fmt: skip
    assert (built.logs, built.rows, built.record_bytes) == (1, 2, 7 + 1 + 2 + 32)


def test_the_companions_say_what_lies_where() -> None:
    tagged = block(draft([b"1", b"2"], tags=["z", "a"]), 1, 50)
    built = build([LogRows(2, "a", [tagged]), LogRows(1, "b", [block(draft([b"3"]), 9, 40)])])
    index = pq.read_table(pa.BufferReader(built.index))
    assert [tuple(row.values()) for row in index.to_pylist()] == [
        (1, 9, 9, 0, 2, 1, 17, 40),
        (2, 1, 2, 0, 0, 2, 34, 50),
    ]
    assert built.tags is not None
    tags = pq.read_table(pa.BufferReader(built.tags))
    assert [tuple(row.values()) for row in tags.to_pylist()] == [(2, "a", 2, 17), (2, "z", 1, 17)]


def test_no_tags_no_companion() -> None:
    assert build([LogRows(1, "a", [block(draft([b"1"]), 1, 0)])]).tags is None


def test_rows_are_a_block_again() -> None:
    parts = [block(draft([b"1"]), 3, 100), block(draft([b"[2]"]), 8, 200)]
    built = build([LogRows(1, "a", parts)])
    table = pq.ParquetFile(pa.BufferReader(built.segment)).read_row_group(0).combine_chunks()
    rows = block_of(table, 0, 2)
    assert (rows.first, rows.last, rows.count) == (3, 8, 2)
    assert [(rows.seq_at(at), rows.ts_at(at), rows.data_at(at)) for at in range(2)] == [
        (3, 100, b"1"),
        (8, 200, b"[2]"),
    ]
    assert (rows.metas, rows.tags, rows.nodes) == (None, None, None)
    second = block_of(table, 1, 2)
    assert (second.first, second.data_at(0), second.size_bytes) == (8, b"[2]", 19)


def test_payloads_that_are_not_json_say_what_they_are() -> None:
    picture = draft([b"\x89PNG", b"\xff\x00"])
    picture.media = "image/png"
    parts = [block(picture, 1, 100, 7), block(draft([b"1"]), 3, 100)]
    built = build([LogRows(1, "a", parts)])
    table = pq.read_table(pa.BufferReader(built.segment))
    assert table.column("data").to_pylist() == [b"\x89PNG", b"\xff\x00", b"1"]
    assert table.column("media").to_pylist() == ["image/png", "image/png", None]
    assert table.column("ns").to_pylist() == [7, 7, None]
    rows = block_of(table.combine_chunks(), 1, 3)
    assert [rows.ns_at(at) for at in range(2)] == [100_000_007, 100_000_000]


def test_a_segment_is_described_with_its_bounds() -> None:
    rows = [
        LogRows(7, "a", [block(draft([b"1", b"2"]), 3, 50)]),
        LogRows(2, "b", [block(draft([b"1"]), 9, 40)]),
    ]
    found = build(rows).described(("s", "i", "t"))
    assert (found.log_min, found.log_max) == ("a", "b")
    assert (found.seq_min, found.seq_max) == (3, 9)
    assert (found.ts_min, found.ts_max) == (40, 50)
    assert build([]).bounds == SegmentBounds()


def test_blocks_of_a_log_are_taken_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log may be larger than memory; what comes of it is the same."""
    monkeypatch.setattr(segment, "ROW_GROUP_BYTES", 1000)
    logs = {1: [block(draft([b"1" * 300] * 2), 1, 1)], 2: []}
    logs[2] = [block(draft([b"%d" % at * 200]), at, at) for at in range(1, 40)]
    taken = 0

    def come(blocks: list[Block]) -> Iterator[Block]:
        nonlocal taken
        for one in blocks:
            taken += 1
            yield one

    flush, most = segment._flush, 0

    def note(writer: Any, pending: Any, pieces: list[Any]) -> Any:
        nonlocal most, taken
        most, taken = max(most, taken), 0
        return flush(writer, pending, pieces)

    monkeypatch.setattr(segment, "_flush", note)
    whole = build([LogRows(log, f"log {log}", blocks) for log, blocks in logs.items()])
    streamed = build(LogRows(log, f"log {log}", come(blocks)) for log, blocks in logs.items())
    assert bytes(streamed.segment) == bytes(whole.segment)
    assert (streamed.index, streamed.tags, streamed.rows) == (whole.index, whole.tags, 41)
    assert most < 10
