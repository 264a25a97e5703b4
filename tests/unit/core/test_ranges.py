"""Ranges: first, last, first, last; inclusive, sorted, never touching."""

from __future__ import annotations

from headrace.core import ranges
from headrace.core.ranges import EMPTY


def test_neighbours_melt_together() -> None:
    held = ranges.add(EMPTY, 5, 7)
    assert ranges.add(held, 9, 9) == [5, 7, 9, 9]
    assert ranges.add(held, 8, 8) == [5, 9]


def test_the_empty_set_is_never_changed() -> None:
    ranges.add(EMPTY, 1, 1)
    assert EMPTY == ()


def test_where_a_range_ends() -> None:
    held = [5, 9]
    assert ranges.contains(held, 7)
    assert ranges.end_of(held, 7) == 9
    assert ranges.end_of(held, 10) == 9, "no range holds it: one before"


def test_the_parts_of_a_span() -> None:
    held = [3, 4, 8, 9]
    assert list(ranges.overlap(held, 4, 8)) == [(4, 4), (8, 8)]
    assert list(ranges.outside(held, 4, 12)) == [(5, 7), (10, 12)]
    assert not ranges.touches(held, 5, 7)


def test_counting_and_dropping() -> None:
    held = [3, 4, 8, 9]
    assert ranges.count(held) == 4
    assert ranges.drop_below(held, 4) == [4, 4, 8, 9]
    assert ranges.drop_below(held, 20) is EMPTY


def test_from_seqs() -> None:
    assert ranges.from_seqs([1, 2, 3, 7]) == [1, 3, 7, 7]
