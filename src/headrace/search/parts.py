"""Summaries that documents bring ready made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headrace.search import histogram as hist
from headrace.search.config import FieldKind, Parts
from headrace.search.histogram import Histogram
from headrace.search.pointers import Path
from headrace.search.values import CANONICAL, flatten

Canonical = Callable[[object], Any]

_number = CANONICAL[FieldKind.FLOAT]
_integer = CANONICAL[FieldKind.INTEGER]


class Summed(msgspec.Struct, gc=False):
    """Count, sum, extremes and distribution of some values."""

    count: int = 0
    sum: float = 0.0
    min: float = float("inf")
    max: float = float("-inf")
    histogram: Histogram | None = None

    def add(self, other: Summed) -> None:
        self.count += other.count
        self.sum += other.sum
        self.min = min(self.min, other.min)
        self.max = max(self.max, other.max)
        if other.histogram is not None:
            self.histogram = self.histogram if self.histogram is not None else {}
            hist.merge(self.histogram, other.histogram)


def paths_of(parts: Parts) -> list[Path]:
    """Where the parts are, in the order that `read_parts` takes what is there."""
    found = [parts.count, parts.sum, parts.min, parts.max]
    return found if parts.histogram is None else [*found, parts.histogram]


def read_parts(found: list[object]) -> Summed | None:
    """A document's summary; None when it has no whole one."""
    count = _one(found[0], _integer)
    total, low, high = (_one(item, _number) for item in found[1:4])
    if count is None or count < 0 or total is None or low is None or high is None:
        return None
    return Summed(int(count), total, low, high, _histogram(found[4]) if len(found) > 4 else None)


def _one(found: object, canonical: Canonical) -> int | float | None:
    values = [value for item in flatten(found) if (value := canonical(item)) is not None]
    return values[0] if len(values) == 1 else None


def _histogram(found: object) -> Histogram:
    total: Histogram = {}
    if isinstance(found, dict):
        for name, count in found.items():
            at, n = _number(name), _integer(count)
            if at is not None and n is not None and n > 0:
                hist.merge(total, {hist.bucket(max(1.0, abs(at))): n})
    return total
