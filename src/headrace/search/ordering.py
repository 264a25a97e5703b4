"""In which order hits come: sort keys, pages, and the first few of many.

A missing value is greater than every other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.formats.leb128 import Ints
from headrace.search.docsets import EMPTY

OFFSET = "offset"
SCORE = "_score"

Array = NDArray[Any]


class Sort(NamedTuple):
    """One sort key: a field's name, `offset` or `_score`."""

    name: str
    descending: bool


class SortKey(NamedTuple):
    """The values of a sort key, one for each record; numbers that sort as the values do."""

    values: Array
    missing: NDArray[np.bool_] | None
    """Where there is none; None when there is always one."""
    descending: bool
    mark: int | float | None
    """Where a page goes on, in the same numbers; None is a missing value."""


def first(keys: Sequence[SortKey], count: int, *, after: bool) -> Ints:
    """The indices of the first records in the order of these keys, behind the marks if `after`.

    The last key must tell all records apart.
    """
    columns, marks = _columns(keys)
    if not columns or not len(columns[-1]):
        return EMPTY
    left = np.arange(len(columns[-1]))
    if after:
        left = left[_behind(columns, marks)]
    taken: list[Array] = []
    need = count
    for column in columns:
        if len(left) <= need:
            break
        here = column[left]
        bound = np.partition(here, need - 1)[need - 1]
        better = left[here < bound]
        taken.append(better)
        need -= len(better)
        left = left[here == bound]
    chosen = np.concatenate([*taken, left[:need]])
    order = np.lexsort([column[chosen] for column in reversed(columns)])
    found: Ints = chosen[order]
    return found


def _columns(keys: Sequence[SortKey]) -> tuple[list[Array], list[int | float]]:
    """All of it as columns that sort ascending, and where the page before ended."""
    columns: list[Array] = []
    marks: list[int | float] = []
    for values, missing, descending, mark in keys:
        if missing is not None or mark is None:
            gone = np.zeros(len(values), bool) if missing is None else missing
            columns.append(gone ^ descending)
            marks.append((mark is None) ^ descending)
        turned = _turn(values) if descending else values
        if missing is not None:
            turned = np.where(missing, 0, turned)
        columns.append(turned)
        if mark is None:
            marks.append(0)
        else:
            marks.append(_turn_one(mark) if descending else mark)
    return columns, marks


def _turn(values: Array) -> Array:
    turned: Array = -values if values.dtype.kind == "f" else ~values
    return turned


def _turn_one(value: int | float) -> int | float:
    return -value if isinstance(value, float) else ~value


def _behind(columns: Sequence[Array], marks: Sequence[int | float]) -> NDArray[np.bool_]:
    behind = np.zeros(len(columns[-1]), bool)
    tied = np.ones(len(columns[-1]), bool)
    for column, mark in zip(columns, marks, strict=True):
        behind |= tied & (column > mark)
        tied &= column == mark
    return behind


def merge(rows: list[tuple[Any, ...]], sorts: Sequence[Sort]) -> list[tuple[Any, ...]]:
    """Rows that begin with the values of the sort keys, in order."""
    for at in range(len(sorts) - 1, -1, -1):
        rows.sort(key=lambda row: _comparable(row[at]), reverse=sorts[at].descending)
    return rows


def _comparable(value: Any) -> tuple[bool, Any]:
    return (True, 0) if value is None else (False, value)


def is_after(values: Sequence[Any], marks: Sequence[Any], sorts: Sequence[Sort]) -> bool:
    """Whether a record comes strictly behind the place that the marks name."""
    for value, mark, sort in zip(values, marks, sorts, strict=True):
        one, other = _comparable(value), _comparable(mark)
        if one != other:
            return (one < other) if sort.descending else (one > other)
    return False
