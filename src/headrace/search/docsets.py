"""Sets of records: ascending arrays of seqs without duplicates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headrace.formats.leb128 import Ints

_SPARSE = 16
"""A set is looked up bit by bit while its span is at most so many times its size."""

EMPTY: Ints = np.zeros(0, np.int64)


def contained(some: Ints, others: Ints) -> NDArray[np.bool_]:
    """Which of some are among others."""
    if not len(others) or not len(some):
        return np.zeros(len(some), bool)
    base, span = int(others[0]), int(others[-1] - others[0]) + 1
    if span <= _SPARSE * (len(some) + len(others)):
        bits = np.zeros(span + 1, bool)
        bits[others - base] = True
        places = some - base
        places[(places < 0) | (places > span)] = span
        return bits[places]
    places = np.searchsorted(others, some)
    places[places == len(others)] = 0
    found: NDArray[np.bool_] = others[places] == some
    return found


def intersect(one: Ints, other: Ints) -> Ints:
    if len(one) > len(other):
        one, other = other, one
    return one[contained(one, other)]


def subtract(one: Ints, other: Ints) -> Ints:
    return one[~contained(one, other)]


def unite(sets: Sequence[Ints]) -> Ints:
    if len(sets) < 2:
        return sets[0] if sets else EMPTY
    return distinct(np.concatenate(sets))


def distinct(numbers: Ints) -> Ints:
    """The numbers ascending, each once."""
    numbers = _ascending(numbers)
    fresh = np.ones(len(numbers), bool)
    fresh[1:] = numbers[1:] != numbers[:-1]
    return numbers[fresh]


def counted(numbers: Ints) -> tuple[Ints, Ints]:
    """The same, and how often each is there."""
    numbers = _ascending(numbers)
    fresh = np.ones(len(numbers), bool)
    fresh[1:] = numbers[1:] != numbers[:-1]
    starts = np.flatnonzero(fresh)
    return numbers[starts], np.diff(starts, append=len(numbers))


def _ascending(numbers: Ints) -> Ints:
    if np.all(numbers[1:] >= numbers[:-1]):
        return numbers
    return np.sort(numbers, kind="stable")  # quick on runs that are sorted already
