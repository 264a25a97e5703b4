"""Offsets: the vectors of the format, and a round trip for everything that fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import Code, Refused
from headrace.surfaces.streams.offsets import Mark, Offset, format_offset, parse_offset

VECTORS = [
    (0, -1, "00000000000000000000000000"),
    (0, 0, "0000000000000000000G000000"),
    (0, 1, "00000000000000000010000000"),
    (0, 449, "00000000000000000710000000"),
    (0, 2**32, "0000000000002000000G000000"),
    (1, 0, "0000008000000000000G000000"),
]
u32, u64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)


@pytest.mark.parametrize(("epoch", "sequence", "text"), VECTORS)
def test_the_format(epoch: int, sequence: int, text: str) -> None:
    """Sequences count from 0; a position is told by what comes before it, so by one more."""
    assert format_offset(epoch, sequence + 1) == text
    assert parse_offset(text) == Offset(epoch, sequence + 1)


@given(u32, u64)
def test_every_offset_is_read_back(epoch: int, seq: int) -> None:
    text = format_offset(epoch, seq)
    assert len(text) == 26
    assert parse_offset(text) == parse_offset(text.lower()) == Offset(epoch, seq)


@given(st.tuples(u32, u64), st.tuples(u32, u64))
def test_offsets_sort_as_positions_do(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert (one < other) == (format_offset(*one) < format_offset(*other))


def test_letters_that_look_like_digits() -> None:
    assert parse_offset("OoIiLl0000000000000G000000") == parse_offset("0011110000000000000G000000")


def test_positions_that_go_by_a_name() -> None:
    assert parse_offset("-1") is Mark.START
    assert parse_offset("now") is Mark.NOW


@pytest.mark.parametrize(
    "text",
    [
        *("", "0", "1", "42", "-2", "NOW", "0" * 25, "0" * 27, "U" * 26, "0" * 25 + ",", " " * 26),
        *("0" * 25 + "1", "+" + "0" * 25, "0_" * 13, "０" * 26, "0" * 25 + "\n"),
    ],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_offset(text)
    assert refused.value.code is Code.INVALID
