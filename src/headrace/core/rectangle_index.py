"""Many rectangles, and which of them overlap another.

The plane is a grid of squares, each of which is one of smaller squares, and so on. A rectangle is
kept in the few squares of about its own size that it reaches, so that a question descends only to
where it overlaps something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import floor
from typing import Generic, TypeVar

from headrace.core.selector import Rectangle

T = TypeVar("T")

_SIDES = (64.0, 8.0, 1.0)
"""How long the sides of squares are; each is eight of the next."""
_SIDE = _SIDES[-1]
_FINER = (6, 3, 0, 0)
"""How often the side of the next squares is halved until it is the shortest; there are none within
those.
"""
_REACHED_MAX = 2.0
"""A rectangle is at most so many sides long, and reaches into three squares at most."""
_NAMED_MAX = 9
"""So many squares are asked for by name; of more, those that there are."""

_Cell = tuple[int, int]


class _Square(Generic[T]):
    __slots__ = ("items", "squares")

    def __init__(self) -> None:
        self.items: dict[Rectangle, T] = {}
        self.squares: dict[_Cell, _Square[T]] = {}


class RectangleIndex(Generic[T]):
    """One item for each rectangle."""

    def __init__(self) -> None:
        self._items: dict[Rectangle, T] = {}
        self._plane: _Square[T] = _Square()
        """Holds what is too large for any square, too."""

    def __len__(self) -> int:
        return len(self._items)

    def obtain(self, rectangle: Rectangle, make: Callable[[], T]) -> T:
        """The item of a rectangle; a new one if it has none."""
        item = self._items.get(rectangle)
        if item is None:
            item = self._items[rectangle] = make()
            for path in _paths(rectangle):
                square = self._plane
                for cell in path:
                    inner = square.squares.get(cell)
                    if inner is None:
                        inner = square.squares[cell] = _Square()
                    square = inner
                square.items[rectangle] = item
        return item

    def get(self, rectangle: Rectangle) -> T | None:
        return self._items.get(rectangle)

    def discard(self, rectangle: Rectangle) -> None:
        """Forget a rectangle and its item."""
        del self._items[rectangle]
        for path in _paths(rectangle):
            squares = [self._plane]
            for cell in path:
                squares.append(squares[-1].squares[cell])
            del squares[-1].items[rectangle]
            for cell in reversed(path):
                square = squares.pop()
                if square.items or square.squares:
                    break
                del squares[-1].squares[cell]

    def find(self, rectangle: Rectangle) -> list[T]:
        """The items of the rectangles that have a point in common with this one."""
        low_x, low_y, high_x, high_y = rectangle
        first_x, first_y = floor(low_x / _SIDE), floor(low_y / _SIDE)
        last_x, last_y = floor(high_x / _SIDE), floor(high_y / _SIDE)
        found: dict[int, T] = {}
        squares = [self._plane]
        for finer in _FINER:
            deeper = []
            for square in squares:
                for other, item in square.items.items():
                    if (
                        other[0] <= high_x
                        and low_x <= other[2]
                        and other[1] <= high_y
                        and low_y <= other[3]
                    ):
                        found[id(item)] = item  # it may be in several squares
                if square.squares:
                    deeper.append(square.squares)
            if not deeper:
                break
            west, east = first_x >> finer, last_x >> finer
            south, north = first_y >> finer, last_y >> finer
            if west == east and south == north:
                cell = west, south
                squares = [inner[cell] for inner in deeper if cell in inner]
            elif (east - west + 1) * (north - south + 1) <= _NAMED_MAX:
                cells = [(x, y) for x in range(west, east + 1) for y in range(south, north + 1)]
                squares = [inner[cell] for inner in deeper for cell in cells if cell in inner]
            else:
                squares = [
                    square
                    for inner in deeper
                    for (x, y), square in inner.items()
                    if west <= x <= east and south <= y <= north
                ]
        return list(found.values())


def _paths(rectangle: Rectangle) -> Iterator[list[_Cell]]:
    """From the plane to every square where a rectangle is kept."""
    low_x, low_y, high_x, high_y = rectangle
    extent = max(high_x - low_x, high_y - low_y)
    depth = sum(extent <= _REACHED_MAX * side for side in _SIDES)
    if not depth:
        yield []
        return
    side = _SIDES[depth - 1]
    for x in range(floor(low_x / side), floor(high_x / side) + 1):
        for y in range(floor(low_y / side), floor(high_y / side) + 1):
            yield [(x >> 3 * up, y >> 3 * up) for up in range(depth - 1, -1, -1)]
