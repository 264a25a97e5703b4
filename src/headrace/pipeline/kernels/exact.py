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


def value_piece(records: Records, field: Field, column: Column) -> Piece:
    """The values of a field that is not typed."""
    coded = shorts(column.values.cast(pa.binary())).dictionary_encode()
    return _values(records, field.name.encode() + NUL, column, coded)


class TypedValues:
    """The values of a typed field of a plan, chunk by chunk.

    Whether they are in `exact` is decided once, when all of them are known: rows and descriptor
    agree, however the records came in chunks.
    """

    def __init__(self) -> None:
        self._logs: list[Ints] = []
        self._seqs: list[Ints] = []
        self._values: list[pa.Array] = []
        self._several = False

    def add(self, records: Records, column: Column) -> None:
        self._logs.append(records.ids[records.logs[column.rows]])
        self._seqs.append(records.seqs[column.rows])
        self._values.append(column.values)
        self._several |= column.several

    @property
    def empty(self) -> bool:
        return not self._values

    def piece(self, name: str) -> Piece | None:
        """Their postings; None when they hardly ever repeat and are left to the column."""
        values = pa.concat_arrays(self._values)
        coded = values.dictionary_encode()
        if len(coded) < REPEATED * len(coded.dictionary):
            return None
        ids, logs = np.unique(np.concatenate(self._logs), return_inverse=True)
        seqs = np.concatenate(self._seqs)
        if np.any(logs[1:] < logs[:-1]):
            order = np.argsort(logs, kind="stable")
            logs, seqs, coded = logs[order], seqs[order], coded.take(pa.array(order))
        column = Column(np.arange(len(seqs)), values, self._several)
        return _values(Records(ids, logs, seqs), name.encode() + NUL, column, coded)


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
