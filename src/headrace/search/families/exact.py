"""Values and presence of fields, and all records of a log: which records have them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.companion import (
    KEY_PREFIX_BYTES_MAX,
    KEY_VALUE_KEPT_BYTES,
    NUL,
    Family,
    field_key,
    log_key,
    short,
    shorts,
    sortable_one,
    upper,
    value_key,
)
from headrace.formats.leb128 import Ints
from headrace.search.columns import Ranked, column
from headrace.search.companions import Companions, Keys, NotIndexed
from headrace.search.config import Field
from headrace.search.docsets import EMPTY, unite
from headrace.search.extraction import Column
from headrace.search.families.groups import FamilyRows, PlanRecords
from headrace.search.families.postings import (
    POSTINGS,
    decode_column,
    decode_rows,
    presence_rows,
    value_rows,
)

REPEATED = 4
"""Values of a typed field are in `exact` too when they occur so often on average."""
_KEY_BYTES_MAX = 4096
"""No key of a value is as long."""


def record_piece(records: PlanRecords) -> FamilyRows:
    """All records of each log."""
    return presence_rows(records, b"", np.arange(len(records.seqs)))


def presence_piece(records: PlanRecords, field: Field, column: Column) -> FamilyRows:
    """Which records have the field."""
    return presence_rows(records, field.name.encode(), column.documents)


def value_piece(records: PlanRecords, field: Field, column: Column) -> FamilyRows:
    """The values of a field that is not typed."""
    coded = shorts(column.values.cast(pa.binary())).dictionary_encode()
    return value_rows(records, field.name.encode() + NUL, column, coded)


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

    def add(self, records: PlanRecords, column: Column) -> None:
        self._logs.append(records.ids[records.logs[column.rows]])
        self._seqs.append(records.seqs[column.rows])
        self._values.append(column.values)
        self._several |= column.several

    @property
    def empty(self) -> bool:
        return not self._values

    def piece(self, name: str) -> FamilyRows | None:
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
        return value_rows(PlanRecords(ids, logs, seqs), name.encode() + NUL, column, coded)


class ExactReader:
    """Reads the values of one log from one build."""

    def __init__(self, companions: Companions, log: int) -> None:
        self._companions = companions
        self._log = log

    def everything(self) -> Ints:
        """All records that the build covers."""
        return self._postings(log_key(self._log))

    def having(self, field: str) -> Ints:
        """The records that have a field."""
        return self._postings(field_key(self._log, field))

    def equal(self, field: str, value: str | int | float) -> Ints:
        """The records with a value."""
        raw = short(value.encode()) if isinstance(value, str) else sortable_one(value)
        return self._postings(value_key(self._log, field, raw))

    def starting(self, field: str, text: str) -> Ints:
        """The records with a value that starts like this."""
        prefix = text.encode()
        if len(prefix) > KEY_PREFIX_BYTES_MAX:
            raise NotIndexed(field)
        return unite([seqs for table in self._tables(field, prefix) for seqs in decode_rows(table)])

    def ranked(self, field: str) -> Ranked:
        """The values of a keyword field in order, and whose they are."""
        cache, key = self._companions.cache, ("ranks", self._log, field)
        held: Ranked | None = cache.get(key)
        if held is None:
            held = self._rank(field)
            cache.put(key, held, held.nbytes)
        self._companions.used(Family.EXACT)
        return held

    def _rank(self, field: str) -> Ranked:
        tables = self._tables(field, b"")
        if not tables:
            return Ranked(column(EMPTY, EMPTY), ())
        table = pa.concat_tables(tables).combine_chunks()
        # Without an end to cut to, Arrow miscounts what it needs.
        start = len(value_key(self._log, field, b""))
        keys = pc.binary_slice(table.column("k").chunk(0), start, _KEY_BYTES_MAX)
        if pc.max(pc.binary_length(keys)).as_py() > KEY_VALUE_KEPT_BYTES:
            raise NotIndexed(field)  # not all of a long value is in its key
        seqs, ranks = decode_column(table)
        order = np.argsort(seqs, kind="stable")
        return Ranked(column(seqs[order], 2 * ranks[order]), Keys(keys))

    def _tables(self, field: str, prefix: bytes) -> list[pa.Table]:
        """The rows of values that start like this."""
        low = value_key(self._log, field, prefix)
        file = self._companions.file(Family.EXACT)
        return [] if file is None else list(file.rows(low, upper(low), POSTINGS))

    def _postings(self, key: bytes) -> Ints:
        return self._companions.postings(Family.EXACT, key)
