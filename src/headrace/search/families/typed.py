"""Columns of numbers, dates and bools, in the order of records."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.formats.companion import SCHEMAS, Family, field_key
from headrace.formats.leb128 import Ints
from headrace.search import columns
from headrace.search.companions import Companions, Keys, Sorted
from headrace.search.config import Field, FieldKind
from headrace.search.docsets import EMPTY
from headrace.search.extraction import Column
from headrace.search.families.groups import FamilyRows, PlanRecords, order_by_key

Numbers = NDArray[Any]
"""Of int64 or float64."""

_GROUPS_AT_ONCE = 16
"""Row groups of a column that are read together."""


def typed_piece(records: PlanRecords, field: Field, column: Column) -> FamilyRows:
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
    return FamilyRows(records.ids[logs], table)


def merge_typed(table: pa.Table) -> pa.Table:
    """The values of each field in the order of records again."""
    return table.take(order_by_key(table, "seq"))


class TypedReader:
    """Reads the columns of one log from one build."""

    def __init__(self, companions: Companions, log: int) -> None:
        self._companions = companions
        self._log = log

    def column(self, field: Field) -> columns.Column:
        """The values of a field."""
        cache, key = self._companions.cache, ("column", self._log, field.name)
        self._companions.used(Family.TYPED)
        held: columns.Column | None = cache.get(key)
        if held is None:
            parts = list(self._read(field))
            kind: Any = np.float64 if field.kind is FieldKind.FLOAT else np.int64
            seqs, values = zip(*parts, strict=True) if parts else ((EMPTY,), (np.zeros(0, kind),))
            held = columns.column(np.concatenate(seqs), np.concatenate(values))
            cache.put(key, held, held.nbytes)
        return held

    def _read(self, field: Field) -> Iterator[tuple[Ints, Numbers]]:
        """Values by row groups."""
        file = self._companions.file(Family.TYPED)
        if file is None:
            return
        key = field_key(self._log, field.name)
        name = "f64" if field.kind is FieldKind.FLOAT else "i64"
        whole: list[int] = []
        for group in file.groups(key, key + b"\0"):
            stats = file.metadata.row_group(group).column(0).statistics
            if stats.min == key == stats.max:
                whole.append(group)
                continue
            yield from _numbers(file, whole, name)
            whole = []
            keys = Keys(file.read([group], ("k",)).column("k").chunk(0))
            start, stop = bisect_left(keys, key), bisect_right(keys, key)
            table = file.read([group], ("seq", name)).slice(start, stop - start)
            yield table.column("seq").to_numpy(), table.column(name).to_numpy()
        yield from _numbers(file, whole, name)


def _numbers(file: Sorted, groups: list[int], name: str) -> Iterator[tuple[Ints, Numbers]]:
    for at in range(0, len(groups), _GROUPS_AT_ONCE):
        table = file.read(groups[at : at + _GROUPS_AT_ONCE], ("seq", name))
        yield table.column("seq").to_numpy(), table.column(name).to_numpy()
