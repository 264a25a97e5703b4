"""Columns of numbers, dates and bools, in the order of records."""

from __future__ import annotations

import pyarrow as pa

from headrace.formats.companion import SCHEMAS, Family
from headrace.pipeline.kernels.groups import Piece, Records
from headrace.search.config import Field
from headrace.search.extraction import Column


def typed_piece(records: Records, field: Field, column: Column) -> Piece:
    """The values of a field."""
    logs = records.logs[column.rows]
    whole = pa.types.is_integer(column.values.type)
    missing = pa.nulls(len(logs), pa.float64() if whole else pa.int64())
    table = pa.table(
        {
            "k": records.prefixes(field.name.encode()).take(pa.array(logs)),
            "seq": records.seqs[column.rows],
            "i64": column.values if whole else missing,
            "f64": missing if whole else column.values,
        },
        schema=SCHEMAS[Family.TYPED],
    )
    return Piece(records.ids[logs], table)
