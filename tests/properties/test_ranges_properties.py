"""Ranges are sets of seqs."""

from __future__ import annotations

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from headrace.core import ranges
from headrace.core.ranges import EMPTY, Ranges

seqs = st.integers(1, 40)
spans = st.tuples(seqs, st.integers(0, 8)).map(lambda span: (span[0], span[0] + span[1]))
sets = st.frozensets(seqs, max_size=25)


def members(held: Ranges) -> set[int]:
    return {seq for first, last in ranges.pairs(held) for seq in range(first, last + 1)}


def is_tidy(held: Ranges) -> bool:
    """Sorted, disjoint, and no two ranges that touch."""
    return all(first <= last for first, last in ranges.pairs(held)) and all(
        last + 1 < first for last, first in zip(held[1::2], held[2::2], strict=False)
    )


@given(st.lists(spans, max_size=20))
def test_adding_spans_in_any_order(added: list[tuple[int, int]]) -> None:
    held: Ranges = EMPTY
    wanted: set[int] = set()
    for first, last in added:
        held = ranges.add(held, first, last)
        wanted.update(range(first, last + 1))
        assert members(held) == wanted
        assert is_tidy(held)
    assert ranges.count(held) == len(wanted)


@given(sets, seqs)
def test_looking_up(wanted: frozenset[int], seq: int) -> None:
    held = ranges.from_seqs(sorted(wanted))
    assert ranges.contains(held, seq) == (seq in wanted)
    end = seq
    while end in wanted:
        end += 1
    assert ranges.end_of(held, seq) == end - 1


@given(sets, seqs, seqs)
def test_inside_and_outside(wanted: frozenset[int], first: int, last: int) -> None:
    held = ranges.from_seqs(sorted(wanted))
    asked = set(range(first, last + 1))
    inside = [seq for part in ranges.overlap(held, first, last) for seq in part]
    outside = [seq for part in ranges.outside(held, first, last) for seq in part]
    assert members(inside) == asked & wanted
    assert members(outside) == asked - wanted
    assert is_tidy(inside)
    assert is_tidy(outside)
    assert ranges.touches(held, first, last) == bool(asked & wanted)


@given(st.lists(sets, max_size=3), seqs, seqs)
def test_what_is_in_none_of_several_sets(held: list[frozenset[int]], a: int, b: int) -> None:
    first, last = min(a, b), max(a, b)
    flat = [ranges.from_seqs(sorted(each)) for each in held]
    outside = [seq for part in ranges.outside_all(flat, first, last) for seq in part]
    assert members(outside) == set(range(first, last + 1)).difference(*held)
    assert is_tidy(outside)


@given(st.lists(st.tuples(seqs, seqs)))
def test_ranges_in_any_order(found: list[tuple[int, int]]) -> None:
    pairs = [(min(pair), max(pair)) for pair in found]
    held = ranges.from_pairs(pairs)
    assert members(held) == {seq for low, high in pairs for seq in range(low, high + 1)}
    assert is_tidy(held)


@given(sets, seqs)
def test_dropping_what_is_below(wanted: frozenset[int], floor: int) -> None:
    held = ranges.drop_below(ranges.from_seqs(sorted(wanted)), floor)
    assert members(held) == {seq for seq in wanted if seq >= floor}
    assert is_tidy(held)


@given(sets, sets, st.sampled_from((0, 32)))
def test_joining(one: frozenset[int], other: frozenset[int], few: int) -> None:
    right = ranges.from_seqs(sorted(other))
    before = list(right)
    with mock.patch.object(ranges, "_FEW", few):
        held = ranges.union(ranges.from_seqs(sorted(one)), right)
    assert members(held) == one | other
    assert is_tidy(held)
    assert list(right) == before
