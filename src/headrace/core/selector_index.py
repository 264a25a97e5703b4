"""Many selectors, found by their conditions: a block is looked at once for all of them.

The index is a tree. A branch asks for one feature of a record and leads on to those selectors whose
condition on it is fulfilled; the next condition is asked there. What the tree finds is verified.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from headrace.core.config import LogConfig
from headrace.core.interval_index import IntervalIndex
from headrace.core.limits import (
    SELECTOR_CONDITIONS_MAX,
    SELECTOR_COST_HARD,
    SELECTOR_ENTRIES_MAX,
)
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
    Test,
)


class _Branch(Protocol):
    """Leads from what a record has of a feature to the nodes of tests that this passes."""

    def __len__(self) -> int: ...
    def obtain(self, key: Any, make: Callable[[], _Node]) -> _Node: ...
    def get(self, key: Any) -> _Node | None: ...
    def discard(self, key: Any) -> None: ...
    def find(self, value: Any) -> Iterable[_Node]: ...


class _Values(dict[Hashable, "_Node"]):
    """A branch by values."""

    def obtain(self, key: Hashable, make: Callable[[], _Node]) -> _Node:
        node = self.get(key)
        if node is None:
            node = self[key] = make()
        return node

    discard = dict.__delitem__

    def find(self, value: Hashable) -> Iterable[_Node]:
        node = self.get(value)
        return () if node is None else (node,)


_BRANCHES: dict[type[Test], Callable[[], _Branch]] = {
    IsOneOf: _Values,
    IsWithin: IntervalIndex,
    Overlaps: RectangleIndex,
}


def _keys(test: Test) -> Sequence[Hashable]:
    """Under what a branch holds a test."""
    match test:
        case IsOneOf(values=values):
            return values
        case IsWithin(low=low, high=high):
            return ((low, high),)
        case Overlaps(rectangle=rectangle):
            return (rectangle,)


class _Node:
    """Selectors whose conditions are fulfilled here, and branches to those with more."""

    __slots__ = ("branches", "selectors")

    def __init__(self) -> None:
        self.selectors: dict[Selector, None] = {}
        self.branches: dict[tuple[Feature, type[Test]], _Branch] = {}

    @property
    def empty(self) -> bool:
        return not (self.selectors or self.branches)

    def find(self, features: Features) -> list[Selector]:
        """The selectors here and below whose conditions the record fulfils."""
        found: list[Selector] = []
        nodes = [self]
        while nodes:
            node = nodes.pop()
            found += node.selectors
            for (feature, _), branch in node.branches.items():
                if (value := features.get(feature)) is not None:
                    nodes += branch.find(value)
        return found

    def enter(self, selector: Selector, conditions: tuple[Condition, ...]) -> None:
        """Have a selector found by these conditions."""
        if not conditions:
            self.selectors[selector] = None
            return
        place = conditions[0].feature, type(conditions[0].test)
        branch = self.branches.get(place)
        if branch is None:
            branch = self.branches[place] = _BRANCHES[place[1]]()
        for key in _keys(conditions[0].test):
            branch.obtain(key, _Node).enter(selector, conditions[1:])

    def leave(self, selector: Selector, conditions: tuple[Condition, ...]) -> None:
        """Undo `enter`; nodes that nobody needs any more go with it."""
        if not conditions:
            del self.selectors[selector]
            return
        place = conditions[0].feature, type(conditions[0].test)
        branch = self.branches[place]
        for key in _keys(conditions[0].test):
            node = branch.get(key)
            assert node is not None
            node.leave(selector, conditions[1:])
            if node.empty:
                branch.discard(key)
        if not len(branch):
            del self.branches[place]


_NONE_YET: list[int] = []


class SelectorIndex:
    """Selectors with conditions. Costs as much for a block as there are records and finds."""

    def __init__(self) -> None:
        self._root = _Node()
        self._used: dict[Selector, tuple[Condition, ...]] = {}
        """By which conditions each of them is found."""
        self._hard: set[Selector] = set()
        """Those that cost much to ask."""

    def __len__(self) -> int:
        return len(self._used)

    def add(self, selector: Selector) -> None:
        """Have it found from now on; once more changes nothing."""
        if selector not in self._used:
            conditions = self._used[selector] = _bounded(selector.conditions)
            assert conditions, "without a condition it would be found for every record"
            self._root.enter(selector, conditions)
            if selector.cost > SELECTOR_COST_HARD:
                self._hard.add(selector)

    def remove(self, selector: Selector) -> None:
        self._hard.discard(selector)
        self._root.leave(selector, self._used.pop(selector))

    def find(
        self,
        block: Block,
        picks: range,
        config: LogConfig,
        ask_hard: Callable[[Selector, Features], bool | None] = lambda selector, features: (
            selector.takes(features)
        ),
    ) -> Mapping[Selector, Picks | None]:
        """The selectors that pick some of these records, each with what it picks.

        Those that cost much are asked by `ask_hard`, which may say that there is no time for it;
        None stands for one that was not asked, and may pick some or none.
        """
        found: dict[Selector, list[int] | None] = {}
        hard = self._hard
        for at in picks:
            features = Features(block, at)
            for selector in self._root.find(features):
                picked = found.get(selector, _NONE_YET)
                if picked is None:
                    continue
                bound = selector.bind(config)
                if selector not in hard:
                    taken: bool | None = bound.takes(features)
                else:
                    taken = ask_hard(bound, features)
                if taken is None:
                    found[selector] = None
                elif taken:
                    if picked is _NONE_YET:
                        found[selector] = [at]
                    else:
                        picked.append(at)
        return found


def _bounded(conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
    """Those that are used: a selector is entered once for each combination of values, so the lists
    beyond the first are left to it when that would be too often.
    """
    kept: list[Condition] = []
    entries = 1
    for condition in conditions[:SELECTOR_CONDITIONS_MAX]:
        count = len(_keys(condition.test))
        if kept and entries * count > SELECTOR_ENTRIES_MAX:
            continue
        kept.append(condition)
        entries *= count
    return tuple(kept)


class Picked(msgspec.Struct, frozen=True):
    """What a selector that was asked before picks, block by block, ascending."""

    after: int
    """It is known behind this seq."""
    by_block: dict[int, tuple[Block, Picks]] = msgspec.field(default_factory=dict)
    """Of each block that it picks something of, by its first seq."""

    def add(self, block: Block, picks: Picks) -> None:
        """It picks these, too; they are behind all others."""
        before = self.by_block.get(block.first)
        self.by_block[block.first] = block, picks if before is None else [*before[1], *picks]
