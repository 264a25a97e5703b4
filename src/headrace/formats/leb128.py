"""LEB128: small numbers in few bytes, many at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

_BITS = 7
_LENGTH_MAX = 9
"""Of a number below 2**63."""


def encode(values: Ints) -> tuple[Bytes, Ints]:
    """The bytes of numbers that are not negative, and where each starts; then where all end."""
    starts = np.zeros(len(values) + 1, np.int64)
    if not len(values):
        return np.zeros(0, np.uint8), starts
    largest = int(values.max())
    if largest < 128:
        starts[:] = np.arange(len(values) + 1)
        return values.astype(np.uint8), starts
    lengths = np.ones(len(values), np.int64)
    for size in range(1, _LENGTH_MAX):
        if largest >> (_BITS * size) == 0:
            break
        lengths += values >= 1 << (_BITS * size)
    np.cumsum(lengths, out=starts[1:])
    out = np.zeros(int(starts[-1]), np.uint8)
    here, rest, left = starts[:-1], values, lengths
    while True:
        more = left > 1
        out[here] = (rest & 127) | (more << _BITS)
        if not more.any():
            return out, starts
        here, rest, left = here[more] + 1, rest[more] >> _BITS, left[more] - 1


def decode(raw: bytes | memoryview | Bytes) -> Ints:
    """The numbers that these bytes hold."""
    octets = np.frombuffer(raw, np.uint8) if not isinstance(raw, np.ndarray) else raw
    lasts = octets < 128
    if lasts.all():
        return octets.astype(np.int64)
    stops = np.flatnonzero(lasts)
    starts = np.empty_like(stops)
    starts[0] = 0
    starts[1:] = stops[:-1] + 1
    values = np.zeros(len(stops), np.int64)
    for size in range(int((stops - starts).max()) + 1):
        here = starts + size
        within = here <= stops
        values[within] |= (octets[here[within]].astype(np.int64) & 127) << (_BITS * size)
    return values


def number(value: int) -> bytes:
    """One number."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= _BITS
    out.append(value)
    return bytes(out)
