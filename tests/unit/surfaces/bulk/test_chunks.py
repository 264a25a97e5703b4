"""Chunks of Arrow: what could become more than its bytes is refused before it is decoded."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headrace.core.errors import Code, Refused
from headrace.surfaces.bulk import chunks
from headrace.surfaces.bulk.chunks import ChunkLimits, parse_chunk

LIMITS = ChunkLimits(
    records=1000, record_bytes=1 << 20, meta_bytes=4096, tag_bytes=64, node_bytes=64
)


def encode(table: pa.Table, rows: int = 10_000, **options: object) -> bytes:
    sink = pa.BufferOutputStream()
    written = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_stream(sink, table.schema, options=written) as writer:
        writer.write_table(table, max_chunksize=rows)
    return bytes(sink.getvalue().to_pybytes())


def text(*values: str | None, type: pa.DataType | None = None) -> pa.Table:
    return pa.table({"data": pa.array(values, type or pa.string())})


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """What Arrow allocates from, counted from nothing."""
    before = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counted)
    yield counted
    pa.set_memory_pool(before)


@pytest.mark.parametrize(
    "type", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()], ids=str
)
def test_plain_columns_are_taken(type: pa.DataType) -> None:
    table = text("1", "[2]", type=type).append_column("tag", pa.nulls(2))
    drafts = parse_chunk(encode(table, rows=1), LIMITS, None)
    assert (drafts.count, drafts.data, drafts.tags) == (2, b"1[2]", None)


BOMB = '"' + "x" * (4 << 20) + '"'
NAMED = pa.DictionaryArray.from_arrays(pa.array([0] * 900), [BOMB])
RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([900], pa.int32()), pa.array([BOMB]))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (encode(text(BOMB), compression="zstd"), "not compressed"),
        (encode(text(BOMB), compression="lz4"), "not compressed"),
        (encode(pa.table({"data": NAMED})), "has a dictionary; send categories as text"),
        (b"ARROW1\0\0" + encode(text("1")), "is an Arrow file .*new_stream"),
        (b"PAR1" + bytes(20), "is Parquet.*new_stream"),
        (gzip.compress(encode(text("1"))), "is gzip; say Content-Encoding: gzip"),
        (encode(pa.table({"data": RUNS})), "runs"),
        (encode(text("1", type=pa.string_view())), "views"),
        (encode(pa.table({"data": pa.array([b""] * 9, pa.binary(0))})), "text or bytes"),
        (encode(pa.table({"data": pa.array([["1"]])})), "text or bytes"),
        (encode(pa.table([["1"], ["2"]], names=["data", "data"])), "columns"),
        (encode(text(*["1"] * 1001), rows=1), "batches"),
        (encode(text(*["1"] * 1001)), "1 to 1000 records, not 1001"),
        (encode(text("1"))[:-40], "Arrow"),
        (b"", "Arrow"),
    ],
)
def test_what_could_become_more_than_its_bytes_is_not_decoded(
    body: bytes, said: str, pool: pa.MemoryPool
) -> None:
    with pytest.raises(Refused, match=said) as refused:
        parse_chunk(body, LIMITS, None)
    assert refused.value.code in (Code.INVALID, Code.BATCH_TOO_LARGE)
    assert pool.max_memory() < 1 << 16


def test_rows_without_bytes_are_counted_before_they_are_decoded(pool: pa.MemoryPool) -> None:
    body = encode(pa.table({"data": pa.nulls(7)}))
    at = body.rindex(struct.pack("<q", 7))
    while at >= 0:  # the length of the batch, and that of its column
        body = body[:at] + struct.pack("<q", 1 << 40) + body[at + 8 :]
        at = body.rfind(struct.pack("<q", 7))
    with pytest.raises(Refused, match=f"not {1 << 40}"):
        parse_chunk(body, LIMITS, None)
    assert pool.max_memory() < 1 << 16


def test_records_are_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    class Noting:
        def __init__(self, inner: msgspec.json.Decoder[Any]) -> None:
            self._inner = inner

        def decode(self, raw: bytes) -> Any:
            taken.append(len(raw))
            return self._inner.decode(raw)

    monkeypatch.setattr(chunks, "_value", Noting(chunks._value))
    monkeypatch.setattr(chunks, "_meta", Noting(chunks._meta))
    meta = '{"a":"%s"}' % ("x" * 4000)
    table = pa.table({"data": ["[" + "[]," * 1000 + "1]"] * 9, "meta": [meta] * 9})
    parse_chunk(encode(table), LIMITS, None)
    assert len(taken) == 18
    assert max(taken) < 4096
    taken.clear()
    with pytest.raises(Refused, match="4096 bytes"):  # before it is taken apart
        parse_chunk(encode(pa.table({"data": ["1"], "meta": [meta + " " * 4096]})), LIMITS, None)
    assert not taken


@pytest.mark.parametrize("text", ["1,2", "", "{", "[1]]", "nul", "\\x00", "1 2"])
def test_a_payload_is_one_json_text(text: str) -> None:
    with pytest.raises(Refused, match="not JSON"):
        parse_chunk(encode(pa.table({"data": ["1", text]})), LIMITS, None)
