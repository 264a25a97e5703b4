"""Many selectors, found by their conditions: a block is looked at once for all of them.

The index is a tree. A branch asks for one feature of a record and leads on to those selectors whose
condition on it is fulfilled; the next condition is asked there. What the tree finds is verified.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import partial

import msgspec

from headrace.core.config import LogConfig
from headrace.core.interval_index import IntervalIndex
from headrace.core.limits import SELECTOR_CONDITIONS_MAX, SELECTOR_ENTRIES_MAX
from headrace.core.record import Block
from headrace.core.rectangle_index import RectangleIndex
from headrace.core.selector import (
    Condition,
    Feature,
    Features,
    IsOneOf,
    IsWithin,
    Overlaps,
    Picks,
    Selector,
)


class _Node:
    """Selectors whose conditions are fulfilled here, and branches to those with more."""

    __slots__ = ("rectangles", "selectors", "values", "widths")

    def __init__(self) -> None:
        self.selectors: dict[Selector, None] = {}
        self.values: dict[Feature, dict[Hashable, _Node]] = {}
        self.widths: dict[Feature, IntervalIndex[_Node]] = {}
        self.rectangles: dict[Feature, RectangleIndex[_Node]] = {}

    @property
    def empty(self) -> bool:
        return not (self.selectors or self.values or self.widths or self.rectangles)

    def find(self, features: Features) -> Iterator[Selector]:
        """The selectors here and below whose conditions the record fulfils."""
        nodes = [self]
        while nodes:
            node = nodes.pop()
            yield from node.selectors
            for feature, values in node.values.items():
                if (inner := values.get(features.get(feature))) is not None:
                    nodes.append(inner)
            for feature, intervals in node.widths.items():
                if (number := features.get(feature)) is not None:
                    nodes += intervals.find(number)
            for feature, rectangles in node.rectangles.items():
                if (rectangle := features.get(feature)) is not None:
                    nodes += rectangles.find(rectangle)

    def enter(self, selector: Selector, conditions: tuple[Condition, ...]) -> None:
        """Have a selector found by these conditions."""
        if not conditions:
            self.selectors[selector] = None
            return
        feature, test, rest = conditions[0].feature, conditions[0].test, conditions[1:]
        match test:
            case IsOneOf(values=values):
                branch = self.values.setdefault(feature, {})
                for value in values:
                    if (inner := branch.get(value)) is None:
                        inner = branch[value] = _Node()
                    inner.enter(selector, rest)
            case IsWithin(low=low, high=high):
                intervals = self.widths.setdefault(feature, IntervalIndex())
                intervals.obtain(low, high, _Node).enter(selector, rest)
            case Overlaps(rectangle=rectangle):
                rectangles = self.rectangles.setdefault(feature, RectangleIndex())
                rectangles.obtain(rectangle, _Node).enter(selector, rest)

    def leave(self, selector: Selector, conditions: tuple[Condition, ...]) -> None:
        """Undo `enter`; nodes that nobody needs any more go with it."""
        if not conditions:
            del self.selectors[selector]
            return
        feature, test, rest = conditions[0].feature, conditions[0].test, conditions[1:]
        match test:
            case IsOneOf(values=values):
                branch = self.values[feature]
                for value in values:
                    branch[value].leave(selector, rest)
                    if branch[value].empty:
                        del branch[value]
                if not branch:
                    del self.values[feature]
            case IsWithin(low=low, high=high):
                intervals = self.widths[feature]
                drop = partial(intervals.discard, low, high)
                _leave(intervals.get(low, high), selector, rest, drop)
                if not len(intervals):
                    del self.widths[feature]
            case Overlaps(rectangle=rectangle):
                rectangles = self.rectangles[feature]
                drop = partial(rectangles.discard, rectangle)
                _leave(rectangles.get(rectangle), selector, rest, drop)
                if not len(rectangles):
                    del self.rectangles[feature]


def _leave(
    inner: _Node | None,
    selector: Selector,
    rest: tuple[Condition, ...],
    drop: Callable[[], None],
) -> None:
    assert inner is not None
    inner.leave(selector, rest)
    if inner.empty:
        drop()


class SelectorIndex:
    """Selectors with conditions. Costs as much for a block as there are records and finds."""

    def __init__(self) -> None:
        self._root = _Node()
        self._used: dict[Selector, tuple[Condition, ...]] = {}
        """By which conditions each of them is found."""

    def __len__(self) -> int:
        return len(self._used)

    def add(self, selector: Selector) -> None:
        """Have it found from now on; once more changes nothing."""
        if selector not in self._used:
            conditions = self._used[selector] = _bounded(selector.conditions)
            assert conditions, "without a condition it would be found for every record"
            self._root.enter(selector, conditions)

    def remove(self, selector: Selector) -> None:
        self._root.leave(selector, self._used.pop(selector))

    def find(
        self, block: Block, picks: range, config: LogConfig
    ) -> Iterator[tuple[Selector, Picks]]:
        """The selectors that pick some of these records, each with what it picks."""
        found: dict[Selector, list[int]] = {}
        for at in picks:
            for selector in self._root.find(Features(block, at)):
                candidates = found.get(selector)
                if candidates is None:
                    found[selector] = [at]
                else:
                    candidates.append(at)
        for selector, candidates in found.items():
            if picked := selector.bind(config).pick(block, candidates):
                yield selector, picked


def _bounded(conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
    """Those that are used: a selector is entered once for each combination of values, so the lists
    beyond the first are left to it when that would be too often.
    """
    kept: list[Condition] = []
    entries = 1
    for condition in conditions[:SELECTOR_CONDITIONS_MAX]:
        test = condition.test
        count = len(test.values) if isinstance(test, IsOneOf) else 1
        if kept and entries * count > SELECTOR_ENTRIES_MAX:
            continue
        kept.append(condition)
        entries *= count
    return tuple(kept)


class Picked(msgspec.Struct, frozen=True):
    """A selector that was asked before: what it picks of which blocks, by their first seqs."""

    known: dict[int, Picks]

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return ()

    def bind(self, config: LogConfig) -> Picked:
        return self

    def takes_all(self, block: Block) -> bool:
        return False

    def pick(self, block: Block, picks: Picks) -> Picks:
        return [at for at in self.known.get(block.first, ()) if at in picks]
