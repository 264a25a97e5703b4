"""Postings of values: keys of records, values and presence of fields, all records of a log."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.formats.companion import NUL, SCHEMAS, Family, shorts, sortable
from headrace.formats.leb128 import Ints
from headrace.formats.postings import encode_postings
from headrace.pipeline.kernels.groups import Piece, Records, group_coded, joined
from headrace.search.config import Field
from headrace.search.extraction import Column

REPEATED = 4
"""Values of a typed field are in `exact` too when they occur so often on average."""


def key_piece(records: Records, keys: pa.Array) -> Piece:
    """The keys of records that have one."""
    rows = np.flatnonzero(keys.is_valid())
    values = shorts(keys.drop_null().cast(pa.binary()))
    return _values(records, b"", Column(rows, values, False), values.dictionary_encode())


def record_piece(records: Records) -> Piece:
    """All records of each log."""
    return _presence(records, b"", np.arange(len(records.seqs)))


def presence_piece(records: Records, field: Field, column: Column) -> Piece:
    """Which records have the field."""
    return _presence(records, field.name.encode(), column.documents)


def value_piece(records: Records, field: Field, column: Column) -> Piece | None:
    """The values of the field; None when they hardly ever repeat and are left to its column."""
    values = column.values if field.typed else shorts(column.values.cast(pa.binary()))
    coded = values.dictionary_encode()
    if field.typed and len(coded) < REPEATED * len(coded.dictionary):
        return None
    return _values(records, field.name.encode() + NUL, column, coded)


def _presence(records: Records, name: bytes, rows: Ints) -> Piece:
    logs = records.logs[rows]
    starts = np.flatnonzero(np.diff(logs, prepend=-1))
    keys = records.prefixes(name).take(pa.array(logs[starts]))
    return _piece(records, logs[starts], keys, records.seqs[rows], starts)


def _values(records: Records, prefix: bytes, column: Column, coded: pa.DictionaryArray) -> Piece:
    logs = records.logs[column.rows]
    found = group_coded(logs, coded)
    seqs = records.seqs[column.rows][found.order]
    starts = found.starts
    if column.several:
        # A document may name a value twice.
        heads = np.zeros(len(seqs), bool)
        heads[starts] = True
        kept = heads | (np.diff(seqs, prepend=-1) != 0)
        seqs, starts = seqs[kept], np.flatnonzero(heads[kept])
    keys = joined(records.prefixes(prefix).take(pa.array(found.logs)), _binary(found.values))
    return _piece(records, found.logs, keys, seqs, starts)


def _binary(values: pa.Array) -> pa.Array:
    """Values as they are in keys."""
    if pa.types.is_binary(values.type):
        return values
    return sortable(values.to_numpy(zero_copy_only=False))


def _piece(records: Records, logs: Ints, keys: pa.Array, seqs: Ints, starts: Ints) -> Piece:
    table = pa.table({"k": keys, **encode_postings(seqs, starts)}, schema=SCHEMAS[Family.EXACT])
    return Piece(records.ids[logs], table)
