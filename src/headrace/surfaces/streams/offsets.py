"""Offsets on the wire: 26 characters that sort as the positions do.

128 bits, most significant first: epoch (32), seq (64), and 32 that are always zero; shifted left by
two bits and written in Crockford's base 32. The seq is that of the last record before the position,
so that the start of a stream is 0 and a read goes on behind it.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache

import msgspec

from headrace.core.errors import Code, Refused

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [a + b for a in _DIGITS for b in _DIGITS]
_OFFSET = re.compile(r"[0-9A-TV-Za-tv-z]{26}", re.ASCII)
_PYTHON = "0123456789abcdefghijklmnopqrstuv"
_TO_PYTHON = str.maketrans(_DIGITS + _DIGITS.lower() + "OoIiLl", _PYTHON + _PYTHON + "001111")
_SEQ_BITS = 64
_REST_BITS = 34
"""The 32 bits that are always zero, and the two of the shift."""

ZERO = "0000000000000000_0000000000000000"
"""How the protocol's reference server writes the start; clients send it to fork there."""


class Mark(Enum):
    """Positions that go by a name."""

    START = "-1"
    NOW = "now"


class Offset(msgspec.Struct, frozen=True, gc=False):
    """A position behind a record of one instance of a stream."""

    epoch: int
    seq: int


@lru_cache(maxsize=1024)  # many who wait for the same are told of the same positions
def format_offset(epoch: int, seq: int) -> str:
    # 100 bits that can be other than zero: 20 digits.
    if epoch == 0 and seq < 1 << 46:
        bits = seq << 4
        return (
            f"0000000000{_PAIRS[bits >> 40]}{_PAIRS[bits >> 30 & 1023]}{_PAIRS[bits >> 20 & 1023]}"
            f"{_PAIRS[bits >> 10 & 1023]}{_PAIRS[bits & 1023]}000000"
        )
    bits = (epoch << _SEQ_BITS | seq) << 4
    pairs = [_PAIRS[bits >> shift & 1023] for shift in range(90, -10, -10)]
    return "".join(pairs) + "000000"


def parse_offset(text: str) -> Offset | Mark:
    """An offset as clients send it back; refuses what we never gave out."""
    if text == Mark.START.value:
        return Mark.START
    if text == Mark.NOW.value:
        return Mark.NOW
    if _OFFSET.fullmatch(text) is None:
        raise _malformed(text)
    bits = int(text.translate(_TO_PYTHON), 32)
    if bits & ((1 << _REST_BITS) - 1):
        raise _malformed(text)
    bits >>= _REST_BITS
    return Offset(bits >> _SEQ_BITS, bits & ((1 << _SEQ_BITS) - 1))


def _malformed(text: str) -> Refused:
    return Refused(
        Code.INVALID,
        "an offset is -1, now, or the 26 characters this server gave",
        offset=text[:64],
    )
