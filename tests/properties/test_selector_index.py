"""An index of selectors finds what asking each of them finds, whoever comes and goes meanwhile."""

from __future__ import annotations

from functools import partial
from math import inf
from unittest import mock

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.config import LogConfig
from headrace.core.interval_index import IntervalIndex
from headrace.core.record import Block, block, draft
from headrace.core.rectangle_index import RectangleIndex
from headrace.core.selector import (
    Condition,
    Features,
    IsOneOf,
    IsWithin,
    Overlaps,
    Picks,
    Rectangle,
    Selector,
    Test,
)
from headrace.core.selector_index import SelectorIndex


class Member(msgspec.Struct, frozen=True):
    """A feature: a member of the payload."""

    name: str

    def read(self, features: Features) -> object:
        found = msgspec.json.decode(features.block.data_at(features.at)).get(self.name)
        return tuple(found) if isinstance(found, list) else found


class Asking(msgspec.Struct, frozen=True):
    """Picks records that fulfil all conditions."""

    conditions: tuple[Condition, ...]
    cost: int = 1

    def bind(self, config: LogConfig) -> Asking:
        return self

    def takes_all(self, block: Block) -> bool:
        return False

    def pick(self, block: Block, picks: Picks) -> Picks:
        return [at for at in picks if self.takes(Features(block, at))]

    def takes(self, features: Features) -> bool:
        return all(holds(features, condition) for condition in self.conditions)


def holds(features: Features, condition: Condition) -> bool:
    value = condition.feature.read(features)
    match condition.test:
        case IsOneOf(values=values):
            return value in values
        case IsWithin(low=low, high=high):
            return value is not None and low <= value <= high
        case Overlaps(rectangle=rectangle):
            return value is not None and overlap(rectangle, value)


def overlap(one: Rectangle, other: Rectangle) -> bool:
    return one[0] <= other[2] and other[0] <= one[2] and one[1] <= other[3] and other[1] <= one[3]


words = st.sampled_from(["", "a", "b", "c"])
numbers = (
    st.integers(-4, 4)
    | st.sampled_from([-0.0, 0.5, 1e-300, -1e300, 2.0**63])
    | st.floats(allow_nan=False, allow_infinity=False)
)
coordinates = st.integers(-9, 9) | st.sampled_from([0.25, -180.0, 180.0, 63.5, 64, 600, -1e6, 1e6])


def rectangle(xs: list[float], ys: list[float]) -> Rectangle:
    return min(xs), min(ys), max(xs), max(ys)


def pairs(of: st.SearchStrategy[float]) -> st.SearchStrategy[list[float]]:
    return st.lists(of, min_size=2, max_size=2) | of.map(lambda one: [one, one])


rectangles = st.builds(rectangle, pairs(coordinates), pairs(coordinates))
ends = st.one_of(numbers, st.just(inf), st.just(-inf))
tests: dict[str, st.SearchStrategy[Test]] = {
    "word": st.lists(words, min_size=1, max_size=3, unique=True).map(lambda v: IsOneOf(tuple(v))),
    "number": st.builds(IsWithin, ends, ends),
    "box": st.builds(Overlaps, rectangles),
}
conditions = st.sampled_from(sorted(tests)).flatmap(
    lambda name: st.builds(Condition, st.just(Member(name)), tests[name])
)
selectors = st.lists(conditions, min_size=1, max_size=4).map(lambda some: Asking(tuple(some)))
records = st.fixed_dictionaries({}, optional={"word": words, "number": numbers, "box": rectangles})
steps = st.lists(st.tuples(st.booleans(), selectors, st.lists(records, max_size=3)), max_size=12)


@given(steps, st.lists(selectors, min_size=1, max_size=6))
def test_an_index_finds_what_each_selector_picks(
    steps: list[tuple[bool, Asking, list[dict[str, object]]]], first: list[Asking]
) -> None:
    index, there = SelectorIndex(), dict.fromkeys(first)
    for selector in first:
        index.add(selector)
    for removes, selector, some in steps:
        if removes and there:
            selector = next(iter(there))
            del there[selector]
            index.remove(selector)
        else:
            there[selector] = None
            index.add(selector)
        assert len(index) == len(there)
        if not some:
            continue
        whole = block(draft([msgspec.json.encode(one) for one in some]), 1, 0)
        every = range(len(some))
        naive = {one: picks for one in there if (picks := list(one.pick(whole, every)))}
        assert index.find(whole, every, LogConfig()) == naive
    for selector in there:
        index.remove(selector)
    assert index._root.empty


@given(
    st.lists(selectors, min_size=1, max_size=8), st.lists(records, min_size=1), st.integers(0, 9)
)
def test_selectors_that_cannot_be_asked_any_more_are_told_apart(
    there: list[Asking], some: list[dict[str, object]], questions: int
) -> None:
    index, left = SelectorIndex(), questions
    with mock.patch("headrace.core.selector_index.SELECTOR_COST_HARD", 0):
        for selector in there:
            index.add(selector)

    def ask(selector: Selector, features: Features) -> bool | None:
        nonlocal left
        left -= 1
        return selector.takes(features) if left >= 0 else None

    whole = block(draft([msgspec.json.encode(one) for one in some]), 1, 0)
    every = range(len(some))
    naive = {one: picks for one in there if (picks := list(one.pick(whole, every)))}
    found = index.find(whole, every, LogConfig(), ask)
    asked = {one: picks for one, picks in found.items() if picks is not None}
    assert asked.items() <= naive.items()
    assert naive.keys() <= found.keys()
    if left >= 0:
        assert asked == naive


@given(st.lists(selectors, min_size=1, max_size=8), st.lists(records, min_size=1))
def test_selectors_that_cost_little_are_asked_whatever_the_time(
    there: list[Asking], some: list[dict[str, object]]
) -> None:
    """Else a long turn would let all of their followers look through all of it themselves."""
    index = SelectorIndex()
    for selector in there:
        index.add(selector)
    whole = block(draft([msgspec.json.encode(one) for one in some]), 1, 0)
    every = range(len(some))
    naive = {one: picks for one in there if (picks := list(one.pick(whole, every)))}
    assert index.find(whole, every, LogConfig(), lambda *_: None) == naive


@given(st.lists(st.tuples(st.booleans(), ends, ends)), st.lists(numbers))
def test_intervals_are_found_by_what_they_hold(
    steps: list[tuple[bool, float, float]], asked: list[float]
) -> None:
    index: IntervalIndex[tuple[float, ...]] = IntervalIndex()
    there: dict[tuple[float, float], None] = {}
    for removes, low, high in steps:
        if not removes:
            there[low, high] = None
            index.obtain((low, high), partial(tuple, (low, high)))
        elif there:
            gone = next(iter(there))
            del there[gone]
            index.discard(gone)
    points = [*asked, *(end for pair in there for end in pair if abs(end) != inf)]
    for number in points:
        naive = sorted(pair for pair in there if pair[0] <= number <= pair[1])
        assert sorted(index.find(number)) == naive
    assert len(index) == len(there)
    for pair in there:
        index.discard(pair)
    assert not index._cuts


@given(st.lists(st.tuples(st.booleans(), rectangles)), st.lists(rectangles))
def test_rectangles_are_found_by_what_they_overlap(
    steps: list[tuple[bool, Rectangle]], asked: list[Rectangle]
) -> None:
    index: RectangleIndex[Rectangle] = RectangleIndex()
    there: dict[Rectangle, None] = {}
    for removes, one in steps:
        if not removes:
            there[one] = None
            index.obtain(one, partial(tuple, one))
        elif there:
            gone = next(iter(there))
            del there[gone]
            index.discard(gone)
    for one in [*asked, *there]:
        assert sorted(index.find(one)) == sorted(other for other in there if overlap(one, other))
    for one in there:
        index.discard(one)
    assert not index._plane.squares
    assert not index._plane.items
