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
_SIDES_AND_END = (*_SIDES, None)
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
        if not self._items:
            return []
        low_x, low_y, high_x, high_y = rectangle
        found: dict[int, T] = {}
        squares = [self._plane]
        for side in _SIDES_AND_END:
            deeper = []
            for square in squares:
                for other, item in square.items.items():
                    if (
                        other[0] <= high_x
                        and low_x <= other[2]
                        and other[1] <= high_y
                        and low_y <= other[3]
                    ):
                        found[id(item)] = item  # by name: it may be in several squares
                if square.squares:
                    deeper.append(square)
            if side is None or not deeper:
                break
            squares = _inner(deeper, rectangle, side)
        return list(found.values())


def _inner(squares: list[_Square[T]], rectangle: Rectangle, side: float) -> list[_Square[T]]:
    """The squares within these that a rectangle reaches."""
    low_x, low_y, high_x, high_y = rectangle
    first_x, first_y = int(low_x // side), int(low_y // side)
    last_x, last_y = int(high_x // side), int(high_y // side)
    if first_x == last_x and first_y == last_y:
        cell = first_x, first_y
        return [square.squares[cell] for square in squares if cell in square.squares]
    if (last_x - first_x + 1) * (last_y - first_y + 1) > _NAMED_MAX:
        return [
            inner
            for square in squares
            for (x, y), inner in square.squares.items()
            if first_x <= x <= last_x and first_y <= y <= last_y
        ]
    inners = []
    for x in range(first_x, last_x + 1):
        for y in range(first_y, last_y + 1):
            for square in squares:
                inner = square.squares.get((x, y))
                if inner is not None:
                    inners.append(inner)
    return inners


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
