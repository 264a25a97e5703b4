"""Histograms that merge: 32 buckets for each power of two, so a value is known to about 3 %.

Buckets are numbered so that larger numbers are larger values; 0 is what is nearly zero. Those of
`log2_v1` are made of them exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import frexp

import numpy as np
from numpy.typing import NDArray

from headrace.formats import leb128
from headrace.formats.leb128 import Ints

Histogram = dict[int, int]
"""Bucket to count."""

_STEPS = 32
_EXPONENT_MIN = -32
"""Below 2 ** this, a value is as good as zero."""


def bucket(value: float) -> int:
    """The bucket of a value."""
    mantissa, exponent = frexp(abs(value))
    if exponent - 1 < _EXPONENT_MIN or not value:
        return 0
    at = (exponent - 1 - _EXPONENT_MIN) * _STEPS + int((mantissa * 2 - 1) * _STEPS) + 1
    return at if value > 0 else -at


def buckets(values: NDArray[np.float64]) -> Ints:
    """The buckets of many."""
    mantissas, exponents = np.frexp(np.abs(values))
    steps = ((mantissas * 2 - 1) * _STEPS).astype(np.int64)
    at = (exponents.astype(np.int64) - 1 - _EXPONENT_MIN) * _STEPS + steps + 1
    near = (exponents - 1 < _EXPONENT_MIN) | (values == 0)
    return np.where(near, 0, np.where(values < 0, -at, at))


def bounds(at: int) -> tuple[float, float]:
    """The least value of a bucket, and the least above it."""
    if at == 0:
        return 0.0, 0.0
    exponent, step = divmod(abs(at) - 1, _STEPS)
    unit = 2.0 ** (exponent + _EXPONENT_MIN)
    low, high = unit * (1 + step / _STEPS), unit * (1 + (step + 1) / _STEPS)
    return (low, high) if at > 0 else (-high, -low)


def log2_of(histogram: Histogram) -> dict[int, int]:
    """The same counts by `2 ** floor(log2(max(1, abs(value))))`."""
    found: dict[int, int] = {}
    for at, count in histogram.items():
        exponent = (abs(at) - 1) // _STEPS + _EXPONENT_MIN if at else 0
        name = 1 << max(0, exponent)
        found[name] = found.get(name, 0) + count
    return dict(sorted(found.items()))


def percentiles(
    histogram: Histogram, parts: Sequence[float], low: float, high: float, *, coarse: bool = False
) -> list[float]:
    """For each of these parts, ascending, the value that so many of all values do not exceed.

    Inside a bucket values are taken to lie evenly; none is below `low` or above `high`. With
    `coarse`, buckets are those of `log2_v1`.
    """
    total = sum(histogram.values())
    if not total:
        return []
    found: list[float] = []
    before = 0
    for at in sorted(histogram):
        count = histogram[at]
        while len(found) < len(parts) and before + count >= parts[len(found)] * total:
            least, above = _coarse_bounds(at) if coarse else bounds(at)
            share = max(0.0, parts[len(found)] * total - before) / count
            found.append(min(max(least + (above - least) * share, low), high))
        before += count
    return found + [high] * (len(parts) - len(found))


def _coarse_bounds(at: int) -> tuple[float, float]:
    least = bounds(at)[0]
    return (least, least * 2) if at > 0 else (least, least)


def merge(into: Histogram, other: Histogram) -> None:
    for at, count in other.items():
        into[at] = into.get(at, 0) + count


def encode(histogram: Histogram) -> bytes:
    """Distance to the bucket before, folded (for the first its number), and count, by turns."""
    octets, _ = encode_many(
        np.array(sorted(histogram), np.int64),
        np.array([histogram[at] for at in sorted(histogram)], np.int64),
        np.zeros(1, np.int64),
    )
    return octets.tobytes()


def encode_many(ats: Ints, counts: Ints, starts: Ints) -> tuple[NDArray[np.uint8], Ints]:
    """The bytes of histograms that start at these places, and where each starts."""
    steps = np.diff(ats, prepend=0)
    steps[starts[starts < len(ats)]] = ats[starts[starts < len(ats)]]
    folded = np.where(steps < 0, -2 * steps - 1, 2 * steps)
    octets, cuts = leb128.encode(np.column_stack([folded, counts]).ravel())
    return octets, cuts[np.append(starts, len(ats)) * 2]


def decode(raw: bytes) -> Histogram:
    numbers = leb128.decode(raw)
    folded, counts = numbers[::2], numbers[1::2]
    ats = np.cumsum(np.where(folded & 1, -(folded >> 1) - 1, folded >> 1))
    return dict(zip(ats.tolist(), counts.tolist(), strict=True))


def merged(raws: Iterable[bytes]) -> bytes:
    """One histogram of several, as bytes."""
    total: Histogram = {}
    for raw in raws:
        merge(total, decode(raw))
    return encode(total)
