"""The values of a field in many documents, as one array.

The common forms of a kind are converted by Arrow; anything else goes through `values_of`, some
thousand documents at a time, so that both mean the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.formats.leb128 import Ints
from headrace.search.config import Field, FieldKind
from headrace.search.values import DATE_MS_MAX, PathReader, values_of

BATCH_ROWS = 8192
"""Documents that are parsed together: few enough to stay in the processor's cache."""

ARROW = {
    FieldKind.KEYWORD: pa.string(),
    FieldKind.TEXT: pa.string(),
    FieldKind.INTEGER: pa.int64(),
    FieldKind.FLOAT: pa.float64(),
    FieldKind.DATE: pa.int64(),
    FieldKind.BOOL: pa.int64(),
}
_WHOLE = r"^-?(?:0|[1-9][0-9]{0,17})\z"
_DECIMAL = r"^-?[0-9]{1,100}(?:\.[0-9]{1,100})?\z"
"""How numbers are usually written that are texts: none of these is out of range."""
_UNUSUAL = (pa.ArrowException, OverflowError, TypeError, ValueError)


class Column(NamedTuple):
    """Values in the order of documents."""

    rows: Ints
    """The document of each value."""
    values: pa.Array
    several: bool
    """Whether a document has more than one."""

    @property
    def documents(self) -> Ints:
        """The documents that have values."""
        return np.unique(self.rows) if self.several else self.rows

    def counts(self, documents: int) -> Ints:
        """How many values each of so many documents has."""
        return np.bincount(self.rows, minlength=documents)

    def dense(self, documents: int) -> NDArray[Any]:
        """A value for each of so many documents: one that it has, or zero."""
        values = self.values.to_numpy(zero_copy_only=False)
        found = np.zeros(documents, values.dtype)
        found[self.rows] = values
        return found


def read_columns(
    fields: Sequence[Field], reader: PathReader, raws: Sequence[bytes | None]
) -> tuple[list[Column], list[list[Any]]]:
    """The columns of fields, and what the reader's further paths led to."""
    parts: list[list[Column]] = [[] for _ in fields]
    others: list[list[list[Any]]] = []
    for start in range(0, len(raws), BATCH_ROWS):
        found = reader.read(raws[start : start + BATCH_ROWS])
        for field, part, raw in zip(fields, parts, found, strict=False):
            part.append(_column(field, raw, start))
        others.append(found[len(fields) :])
    columns = [_joined(field, part) for field, part in zip(fields, parts, strict=True)]
    return columns, [list(chain(*part)) for part in zip(*others, strict=True)]


def _joined(field: Field, parts: list[Column]) -> Column:
    if not parts:
        return Column(np.zeros(0, np.int64), pa.array([], ARROW[field.kind]), False)
    return Column(
        np.concatenate([part.rows for part in parts]),
        pa.concat_arrays([part.values for part in parts]),
        any(part.several for part in parts),
    )


def _column(field: Field, raw: list[Any], start: int) -> Column:
    try:
        found = _usual(field, raw)
    except _UNUSUAL:
        found = None
    if found is None:
        return _any(field, raw, start)
    rows = np.arange(len(raw)) if not found.null_count else np.flatnonzero(pc.is_valid(found))
    return Column(rows + start, found.drop_null() if found.null_count else found, False)


def _any(field: Field, raw: list[Any], start: int) -> Column:
    rows: list[int] = []
    values: list[Any] = []
    several = False
    for row, found in enumerate(raw, start):
        if found is not None:
            here = values_of(field, found)
            rows += [row] * len(here)
            values += here
            several |= len(here) > 1
    return Column(np.array(rows, np.int64), pa.array(values, ARROW[field.kind]), several)


def _usual(field: Field, raw: list[Any]) -> pa.Array | None:
    """The values as Arrow sees them; None or an error where it might see something else."""
    if field.kind in (FieldKind.KEYWORD, FieldKind.TEXT):
        texts = pa.array(raw, pa.string())
        if not field.lowercase:
            return texts
        if pc.all(pc.string_is_ascii(texts)).as_py() is False:
            return None
        return pc.ascii_lower(texts)
    kinds = set(map(type, raw))
    kinds.discard(type(None))
    if field.kind is FieldKind.INTEGER:
        if kinds <= {int}:
            return pa.array(raw, pa.int64())
        return _parsed(raw, kinds, _WHOLE, pa.int64())
    if field.kind is FieldKind.FLOAT:
        plain = kinds <= {int, float}
        kind = pa.float64()
        numbers = pa.array(raw, kind) if plain else _parsed(raw, kinds, _DECIMAL, kind)
        return None if numbers is None else pc.add(numbers, 0.0)
    if field.kind is FieldKind.BOOL and kinds <= {bool}:
        return pa.array(raw, pa.bool_()).cast(pa.int64())
    if field.kind is FieldKind.DATE:
        return _dates(raw, kinds)
    return None


def _parsed(raw: list[Any], kinds: set[type], pattern: str, kind: pa.DataType) -> pa.Array | None:
    """Numbers that are written as texts, if all of them are written like this."""
    if kinds != {str}:
        return None
    texts = pa.array(raw, pa.string())
    usual = pc.all(pc.match_substring_regex(texts, pattern)).as_py()
    return texts.cast(kind) if usual else None


def _dates(raw: list[Any], kinds: set[type]) -> pa.Array | None:
    if kinds <= {int}:
        numbers = pa.array(raw, pa.int64())
        return numbers if _within(numbers) else None
    if kinds != {str}:
        return None
    stamps = pa.array(raw, pa.string()).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    valid = stamps.fill_null(0).to_numpy(zero_copy_only=False) // 1000
    return pa.array(valid, mask=pc.is_null(stamps).to_numpy(zero_copy_only=False))


def _within(numbers: pa.Array) -> bool:
    extremes = pc.min_max(numbers).as_py()
    low, high = extremes["min"] or 0, extremes["max"] or 0
    return low >= -DATE_MS_MAX and high <= DATE_MS_MAX
