"""Small Parquet tables that are read and written whole."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.core.limits import COMPANION_ROWS


def encode_table(schema: pa.Schema, rows: Sequence[tuple[object, ...]]) -> bytes:
    """Rows as Parquet."""
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays(arrays, schema=schema)
    pq.write_table(table, sink, compression="zstd", row_group_size=COMPANION_ROWS)
    return bytes(sink.getvalue().to_pybytes())


def read_table(raw: bytes) -> pa.Table:
    """All of a table, read by this thread alone.

    `pq.read_table` would have threads of Arrow's help: one that still lets go of our bytes while
    the interpreter ends takes the process down with it.
    """
    return pq.ParquetFile(pa.BufferReader(raw)).read(use_threads=False)
