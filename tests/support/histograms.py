"""One histogram at a time: what those of many rows are compared with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.search import histogram
from headrace.search.histogram import Histogram, Histograms


def bounds(at: int) -> tuple[float, float]:
    """The least value of a bucket, and the least above it."""
    least, above = histogram._bounds_of(np.array([at]), coarse=False)
    return float(least[0]), float(above[0])


def log2_of(one: Histogram) -> dict[int, int]:
    """The same counts by `2 ** floor(log2(max(1, abs(value))))`."""
    found: dict[int, int] = {}
    for at, count in one.items():
        exponent = (abs(at) - 1) // histogram._STEPS + histogram._EXPONENT_MIN if at else 0
        name = 1 << max(0, exponent)
        found[name] = found.get(name, 0) + count
    return dict(sorted(found.items()))


def percentiles(
    one: Histogram, parts: Sequence[float], low: float, high: float, *, coarse: bool = False
) -> list[float]:
    """For each of these parts, ascending, the value that so many of all values do not exceed.

    Inside a bucket values are taken to lie evenly; none is below `low` or above `high`. With
    `coarse`, buckets are those of `log2_v1`.
    """
    if not one:
        return []
    ats = np.array(sorted(one), np.int64)
    counts = np.array([one[at] for at in sorted(one)], np.int64)
    row = Histograms(np.zeros(len(ats), np.int64), ats, counts)
    found = histogram.percentiles_of(row, parts, np.array([low]), np.array([high]), coarse=coarse)
    return [float(value) for value in found[:, 0]]
