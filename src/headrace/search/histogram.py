"""Histograms that merge: 32 buckets for each power of two, so a value is known to about 3 %.

Buckets are numbered so that larger numbers are larger values; 0 is what is nearly zero. Those of
`log2_v1` are made of them exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import frexp
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.formats import leb128
from headrace.formats.leb128 import Ints

Histogram = dict[int, int]
"""Bucket to count."""

_STEPS = 32
_DENSE = 16
"""Buckets are counted without sorting while there are at most so many places for each."""
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


class Histograms(NamedTuple):
    """Those of many rows: which row, which bucket, how many; ascending when they are merged."""

    rows: Ints
    ats: Ints
    counts: Ints

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self.ats.nbytes + self.counts.nbytes


def percentiles_of(
    merged: Histograms,
    parts: Sequence[float],
    lows: NDArray[np.float64],
    highs: NDArray[np.float64],
    *,
    coarse: bool = False,
) -> NDArray[np.float64]:
    """For each of these parts, ascending, a line with the value that so many of a row's values do
    not exceed; NaN for rows without values.

    Inside a bucket values are taken to lie evenly; none is below `lows` or above `highs`. With
    `coarse`, buckets are those of `log2_v1`.
    """
    found = np.full((len(parts), len(lows)), np.nan)
    firsts = np.searchsorted(merged.rows, np.arange(len(lows) + 1))
    there = np.flatnonzero(np.diff(firsts))
    if not len(there):
        return found
    running = np.concatenate([[0], np.cumsum(merged.counts)])
    before, total = running[firsts[there]], np.diff(running[firsts])[there]
    for line, part in zip(found, parts, strict=True):
        wanted = part * total
        # The first bucket with which so many are reached.
        at = np.searchsorted(running[1:], before + wanted)
        at = np.minimum(at, firsts[there + 1] - 1)
        least, above = _bounds_of(merged.ats[at], coarse=coarse)
        share = np.maximum(0.0, wanted - (running[at] - before)) / merged.counts[at]
        line[there] = np.clip(least + (above - least) * share, lows[there], highs[there])
    return found


def _bounds_of(ats: Ints, *, coarse: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The least value of each bucket, and the least above it."""
    exponents, steps = np.divmod(np.abs(ats) - 1, _STEPS)
    units = np.ldexp(1.0, exponents + _EXPONENT_MIN)
    low, high = units * (1 + steps / _STEPS), units * (1 + (steps + 1) / _STEPS)
    least, above = np.where(ats > 0, low, -high), np.where(ats > 0, high, -low)
    if coarse:
        above = np.where(ats > 0, least * 2, least)
    return np.where(ats == 0, 0.0, least), np.where(ats == 0, 0.0, above)


def merge_many(parts: Sequence[Histograms]) -> Histograms:
    """One bucket of a row once, by row and bucket."""
    rows, ats, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
    if not len(rows):
        return Histograms(rows, ats, counts)
    low = int(ats.min())
    width = int(ats.max()) - low + 1
    codes = rows * width + (ats - low)
    if (int(rows.max()) + 1) * width <= _DENSE * len(rows):
        sums = np.bincount(codes, counts)
        codes = np.flatnonzero(sums)
        sums = sums[codes].astype(np.int64)
    else:
        order = np.argsort(codes, kind="stable")  # quick on runs that are sorted already
        codes, counts = codes[order], counts[order]
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        codes, sums = codes[starts], np.add.reduceat(counts, starts)
    rows, ats = np.divmod(codes, width)
    return Histograms(rows, ats + low, sums)


def log2_of_many(merged: Histograms, count: int) -> list[dict[str, int]]:
    """What `log2_v1` calls the buckets of each of so many rows, and how many there are."""
    exponents = (np.abs(merged.ats) - 1) // _STEPS + _EXPONENT_MIN
    exponents = np.maximum(0, np.where(merged.ats == 0, 0, exponents))
    coarse = merge_many([Histograms(merged.rows, exponents, merged.counts)])
    found: list[dict[str, int]] = [{} for _ in range(count)]
    for row, exponent, n in zip(*(column.tolist() for column in coarse), strict=True):
        found[row][str(1 << exponent)] = n
    return found


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


def decode_many(raws: pa.Array) -> Histograms:
    """The histograms of an array of bytes, all at once."""
    _, offsets, data = raws.buffers()
    if data is None:
        empty = np.zeros(0, np.int64)
        return Histograms(empty, empty, empty)
    cuts = np.frombuffer(offsets, np.int32)[raws.offset : raws.offset + len(raws) + 1]
    octets = np.frombuffer(data, np.uint8)[cuts[0] : cuts[-1]]
    ends = np.concatenate([[0], np.cumsum(octets < 128)])
    starts = ends[cuts - cuts[0]] // 2  # where the buckets of each row start
    numbers = leb128.decode(octets) if len(octets) else np.zeros(0, np.int64)
    folded, counts = numbers[::2], numbers[1::2]
    running = np.concatenate(
        [[0], np.cumsum(np.where(folded & 1, -(folded >> 1) - 1, folded >> 1))]
    )
    lengths = np.diff(starts)
    rows = np.repeat(np.arange(len(raws)), lengths)
    return Histograms(rows, running[1:] - np.repeat(running[starts[:-1]], lengths), counts)


def merged(raws: Iterable[bytes]) -> bytes:
    """One histogram of several, as bytes."""
    total: Histogram = {}
    for raw in raws:
        merge(total, decode(raw))
    return encode(total)
