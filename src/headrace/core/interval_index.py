"""Many intervals of numbers, and which of them hold a number.

The line is halved again and again. An interval is kept where it is first cut by a middle, once by
its low end and once by its high one; a number passes one middle of each size, and what lies on its
side of that is in order. So a question costs as many looks as there are sizes of halves in use, and
then what it finds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from struct import Struct
from typing import Generic, TypeVar

T = TypeVar("T")

Interval = tuple[float, float]
"""From a number to another, both included."""

_Ends = tuple[int, int]
_DOUBLE, _LONG = Struct("<d"), Struct("<q")
_MAGNITUDE = (1 << 63) - 1
_ABOVE = 1 << 64
"""Above the place of every number."""


def _place(number: float) -> int:
    """A whole number that is in the order of doubles, from 0 on."""
    bits: int = _LONG.unpack(_DOUBLE.pack(number))[0]
    return _MAGNITUDE + 1 + (bits if bits >= 0 else -(bits & _MAGNITUDE))


def _ends(interval: Interval) -> _Ends:
    low, high = interval
    return _place(low), _place(high)


class _Cut:
    """The intervals that a middle cuts."""

    __slots__ = ("highs", "lows", "middle")

    def __init__(self, middle: int) -> None:
        self.middle = middle
        self.lows: list[_Ends] = []
        self.highs: list[_Ends] = []
        """The same, high end first."""


class IntervalIndex(Generic[T]):
    """One item for each interval. Numbers are compared as doubles: those that are next to each
    other among large whole numbers count as equal.
    """

    def __init__(self) -> None:
        self._items: dict[_Ends, T] = {}
        self._cuts: dict[int, dict[int, _Cut]] = {}
        """By how many bits halves have, then by place."""

    def __len__(self) -> int:
        return len(self._items)

    def obtain(self, interval: Interval, make: Callable[[], T]) -> T:
        """The item of an interval; a new one if it has none."""
        ends = _ends(interval)
        item = self._items.get(ends)
        if item is None:
            item = self._items[ends] = make()
            if ends[0] <= ends[1]:
                cut = self._cut(ends)
                insort(cut.lows, ends)
                insort(cut.highs, ends[::-1])
        return item

    def get(self, interval: Interval) -> T | None:
        return self._items.get(_ends(interval))

    def discard(self, interval: Interval) -> None:
        """Forget an interval and its item."""
        ends = _ends(interval)
        del self._items[ends]
        if ends[0] > ends[1]:
            return  # it held nothing
        cut = self._cut(ends)
        del cut.lows[bisect_left(cut.lows, ends)]
        del cut.highs[bisect_left(cut.highs, ends[::-1])]
        if not cut.lows:
            size = (ends[0] ^ ends[1]).bit_length()
            del self._cuts[size][ends[0] >> size]
            if not self._cuts[size]:
                del self._cuts[size]

    def find(self, number: float) -> list[T]:
        """The items of the intervals that hold a number."""
        place, items = _place(number), self._items
        found: list[T] = []
        for size, cuts in self._cuts.items():
            cut = cuts.get(place >> size)
            if cut is None:
                continue
            if place < cut.middle:
                last = bisect_right(cut.lows, (place, _ABOVE))
                found += [items[ends] for ends in cut.lows[:last]]
            else:
                first = bisect_left(cut.highs, (place, 0))
                found += [items[low, high] for high, low in cut.highs[first:]]
        return found

    def _cut(self, ends: _Ends) -> _Cut:
        """The middle that cuts an interval first; one without a length is a half by itself."""
        size = (ends[0] ^ ends[1]).bit_length()
        cuts = self._cuts.setdefault(size, {})
        cut = cuts.get(ends[0] >> size)
        if cut is None:
            middle = (ends[0] >> size << size) + (1 << size >> 1)
            cut = cuts[ends[0] >> size] = _Cut(middle)
        return cut
