"""Arrow streams, looked at before they are decoded: what their messages say of themselves.

Decoding may make much of little: compressed buffers, dictionaries and runs stand for any number of
values, and a column of nulls needs no bytes at all. A stream of plain buffers is never larger than
its bytes.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import pyarrow as pa

_HEADER, _LENGTH, _COMPRESSION = 2, 0, 3
"""Fields of the tables Message and RecordBatch, in the order of Arrow's format."""


class Outline(NamedTuple):
    """What a stream says it holds."""

    schema: pa.Schema
    batches: int
    rows: int
    compressed: bool


class _Table:
    """A table of a FlatBuffer: its fields are found by the offsets in its vtable."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at
        self._vtable = at - struct.unpack_from("<i", data, at)[0]

    def place(self, field: int) -> int | None:
        """Where a field is; None when it has its default."""
        (size,) = struct.unpack_from("<H", self._data, self._vtable)
        slot = 4 + 2 * field
        if slot + 2 > size:
            return None
        (offset,) = struct.unpack_from("<H", self._data, self._vtable + slot)
        return self._at + offset if offset else None

    def table(self, field: int) -> _Table | None:
        place = self.place(field)
        if place is None:
            return None
        return _Table(self._data, place + struct.unpack_from("<I", self._data, place)[0])

    def long(self, field: int) -> int:
        place = self.place(field)
        return 0 if place is None else int(struct.unpack_from("<q", self._data, place)[0])


def encode_stream(table: pa.Table) -> bytes:
    """A table as a whole Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    raw: bytes = sink.getvalue().to_pybytes()
    return raw


def outline(body: bytes, batches_max: int) -> Outline:
    """What a stream says it holds, as far as so many batches; decodes nothing but the schema.

    Raises what Arrow does, and `ValueError`, for anything but a schema and batches of records.
    """
    messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(body))
    first = next(iter(messages), None)
    if first is None or first.type != "schema":
        raise ValueError("it does not begin with a schema")
    schema = pa.ipc.read_schema(first)
    batches = rows = 0
    compressed = False
    for message in messages:
        if message.type == "dictionary":
            raise ValueError("it has a dictionary; send categories as text")
        if message.type != "record batch":
            raise ValueError(f"it has a {message.type}")
        if batches == batches_max:
            raise ValueError(f"it has more than {batches_max} batches")
        length, packed = _batch(memoryview(message.metadata))
        batches, rows, compressed = batches + 1, rows + length, compressed or packed
    return Outline(schema, batches, rows, compressed)


def _batch(metadata: memoryview) -> tuple[int, bool]:
    """How many rows a batch has, and whether its buffers are compressed."""
    try:
        message = _Table(metadata, struct.unpack_from("<I", metadata, 0)[0])
        batch = message.table(_HEADER)
        if batch is None:
            raise ValueError("a batch says nothing of itself")
        length = batch.long(_LENGTH)
        if length < 0:
            raise ValueError("a batch has fewer than no rows")
        return length, batch.place(_COMPRESSION) is not None
    except struct.error as error:
        raise ValueError(f"a batch is damaged: {error}") from None
