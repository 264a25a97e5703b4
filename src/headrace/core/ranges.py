"""Sets of seqs as sorted, disjoint, inclusive ranges in one flat list: first, last, first, last.

Plain lists keep a log's state cheap to encode and to hold: most logs have no range at all, and the
empty set is the shared empty tuple.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

Ranges = Sequence[int]
EMPTY: Ranges = ()

_FEW = 100
"""To put so many ranges into a list one by one is faster than to make another list."""


def add(ranges: Ranges, first: int, last: int) -> list[int]:
    """The set with [first, last] in it; neighbours melt together. May change a list given to it."""
    assert first <= last, (first, last)
    held: list[int] = ranges if isinstance(ranges, list) else list(ranges)
    if not held or first > held[-1] + 1:
        held.extend((first, last))
        return held
    start = bisect_left(held, first - 1)
    start -= start % 2  # a position inside or right behind a range belongs to that range
    stop = bisect_right(held, last + 1)
    stop += stop % 2
    if start < stop:
        first = min(first, held[start])
        last = max(last, held[stop - 1])
    held[start:stop] = (first, last)
    return held


def contains(ranges: Ranges, seq: int) -> bool:
    """Whether seq is in the set."""
    at = bisect_left(ranges, seq)
    return at % 2 == 1 or (at < len(ranges) and ranges[at] == seq)


def end_of(ranges: Ranges, seq: int) -> int:
    """The last seq of the range that holds `seq`, or seq - 1 when none does."""
    at = bisect_left(ranges, seq)
    if at % 2 == 1:
        return ranges[at]
    if at < len(ranges) and ranges[at] == seq:
        return ranges[at + 1]
    return seq - 1


def overlap(ranges: Ranges, first: int, last: int) -> Iterator[tuple[int, int]]:
    """The parts of the set inside [first, last], ascending."""
    at = bisect_left(ranges, first)
    at -= at % 2
    while at < len(ranges) and ranges[at] <= last:
        low, high = max(first, ranges[at]), min(last, ranges[at + 1])
        if low <= high:
            yield low, high
        at += 2


def outside(ranges: Ranges, first: int, last: int) -> Iterator[tuple[int, int]]:
    """The parts of [first, last] that are not in the set, ascending."""
    for low, high in overlap(ranges, first, last):
        if first < low:
            yield first, low - 1
        first = high + 1
    if first <= last:
        yield first, last


def outside_all(sets: Sequence[Ranges], first: int, last: int) -> Iterator[tuple[int, int]]:
    """The parts of [first, last] that are in none of the sets, ascending."""
    if not sets:
        yield first, last
        return
    for low, high in outside(sets[0], first, last):
        yield from outside_all(sets[1:], low, high)


def touches(ranges: Ranges, first: int, last: int) -> bool:
    """Whether anything of [first, last] is in the set."""
    return next(overlap(ranges, first, last), None) is not None


def count(ranges: Ranges) -> int:
    return sum(ranges[1::2]) - sum(ranges[::2]) + len(ranges) // 2


def drop_below(ranges: Ranges, floor: int) -> Ranges:
    """The set without anything below `floor`."""
    if not ranges or ranges[0] >= floor:
        return ranges
    if ranges[-1] < floor:
        return EMPTY
    held: list[int] = ranges if isinstance(ranges, list) else list(ranges)
    at = bisect_left(held, floor)
    if at % 2 == 1:
        at -= 1
        held[at] = floor
    del held[:at]
    return held


def union(ranges: Ranges, other: Ranges) -> Ranges:
    """The set with all of the other in it. May change a list given to it.

    A few ranges are put where they belong; for many, what lies between them is moved once.
    """
    if len(other) <= 2 * _FEW:
        for first, last in pairs(other):
            ranges = add(ranges, first, last)
        return ranges
    held: list[int] = ranges if isinstance(ranges, list) else list(ranges)
    begin = bisect_left(held, other[0] - 1)
    begin -= begin % 2
    merged: list[int] = []
    at = begin
    for first, last in pairs(other):
        start = bisect_left(held, first - 1, at)
        start -= start % 2
        stop = bisect_right(held, last + 1, start)
        stop += stop % 2
        merged += held[at:start]
        at = stop
        if start < stop:
            first, last = min(first, held[start]), max(last, held[stop - 1])
        if merged and first <= merged[-1] + 1:
            merged[-1] = max(last, merged[-1])
        else:
            merged += (first, last)
    held[begin:at] = merged
    return held


def pairs(ranges: Ranges) -> Iterator[tuple[int, int]]:
    return zip(ranges[::2], ranges[1::2], strict=True)


def from_pairs(found: Iterable[tuple[int, int]]) -> Ranges:
    """The set of these ranges, whatever their order and however they overlap."""
    held: Ranges = EMPTY
    for first, last in sorted(found):
        held = add(held, first, last)
    return held


def from_seqs(seqs: Iterable[int]) -> Ranges:
    """The set of these seqs, which must ascend."""
    found: list[int] = []
    for seq in seqs:
        if found and seq <= found[-1] + 1:
            found[-1] = seq
        else:
            found += (seq, seq)
    return found or EMPTY
