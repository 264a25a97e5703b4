"""Pushed filters: those that tell which records cannot be wanted narrow what is read.

Spark still looks at every row it gets, so a filter that is not understood costs time and nothing
else.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from headrace.spark.options import RecordSelection, micros

_TEXTS = ("log", "key", "tag", "node")


def narrow(wanted: RecordSelection, filters: Iterable[Any]) -> RecordSelection:
    """What is wanted when all these filters must hold."""
    for filter in filters:
        attribute: tuple[str, ...] = getattr(filter, "attribute", ())
        if len(attribute) == 1:
            wanted = _narrow(wanted, type(filter).__name__, attribute[0], _value(filter))
    return wanted


def _value(filter: Any) -> Any:
    return getattr(filter, "value", None)


def _narrow(wanted: RecordSelection, kind: str, column: str, value: Any) -> RecordSelection:
    replace = msgspec.structs.replace
    if kind in ("EqualTo", "EqualNullSafe") and column in _TEXTS and isinstance(value, str):
        return replace(wanted, sets=(*wanted.sets, (column, frozenset((value,)))))
    if kind == "In" and column in _TEXTS and all(isinstance(each, str) for each in value):
        return replace(wanted, sets=(*wanted.sets, (column, frozenset(value))))
    if kind == "StringStartsWith" and column in _TEXTS:
        return replace(wanted, starts=(*wanted.starts, (column, value)))
    if column == "seq" and isinstance(value, int):
        low, high = _bounds(kind, value)
        return replace(wanted, first=max(wanted.first, low), last=min(wanted.last, high))
    if column == "ts" and isinstance(value, datetime) and value.tzinfo is not None:
        low, high = _bounds(kind, micros(value))
        return replace(
            wanted, since_us=max(wanted.since_us, low), until_us=min(wanted.until_us, high)
        )
    return wanted


def _bounds(kind: str, value: int) -> tuple[int, int]:
    """The lowest and the highest value that a comparison lets through."""
    all_low, all_high = -(1 << 63), (1 << 63) - 1
    return {
        "EqualTo": (value, value),
        "EqualNullSafe": (value, value),
        "GreaterThan": (value + 1, all_high),
        "GreaterThanOrEqual": (value, all_high),
        "LessThan": (all_low, value - 1),
        "LessThanOrEqual": (all_low, value),
    }.get(kind, (all_low, all_high))
