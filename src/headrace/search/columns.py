"""Values of one field by record, as arrays: for scans, and for sorting."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.formats.leb128 import Ints
from headrace.search.docsets import EMPTY, intersect

Array = NDArray[Any]
Mask = NDArray[np.bool_]

_SPARSE = 4
"""Values are kept by seq while their records reach over at most so many times as many seqs."""


class Dense(NamedTuple):
    """At most one value for each record, by seq."""

    base: int
    values: Array
    there: Mask | None
    """Which seqs have one; None when all have."""

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + (0 if self.there is None else self.there.nbytes)

    def firsts(self, seqs: Ints) -> tuple[Array, Mask | None]:
        """The values of ascending records, and which have none."""
        places = seqs - self.base
        if not len(seqs) or (places[0] >= 0 and places[-1] < len(self.values)):
            found = self.values[places]
            return found, None if self.there is None else ~self.there[places]
        outside = (places < 0) | (places >= len(self.values))
        places[outside] = 0
        missing = outside if self.there is None else outside | ~self.there[places]
        return self.values[places], missing

    def pick(self, test: Any, among: Ints | None) -> Ints:
        """The records whose value passes a test of arrays."""
        if among is not None:
            values, missing = self.firsts(among)
            good: Mask = test(values)
            return among[good if missing is None else good & ~missing]
        good = test(self.values)
        if self.there is not None:
            good &= self.there
        found: Ints = np.flatnonzero(good)
        found += self.base
        return found

    def items(self) -> tuple[Ints, Array]:
        """Records and their values."""
        if self.there is None:
            return np.arange(self.base, self.base + len(self.values)), self.values
        places = np.flatnonzero(self.there)
        return places + self.base, self.values[places]


class Sparse(NamedTuple):
    """Values in the order of records, which may have several."""

    seqs: Ints
    values: Array

    @property
    def nbytes(self) -> int:
        return self.seqs.nbytes + self.values.nbytes

    def firsts(self, seqs: Ints) -> tuple[Array, Mask | None]:
        """The first value of ascending records, and which have none."""
        if not len(self.seqs):
            return np.zeros(len(seqs), self.values.dtype), np.ones(len(seqs), bool)
        places = np.searchsorted(self.seqs, seqs)
        places[places == len(self.seqs)] = 0
        return self.values[places], self.seqs[places] != seqs

    def pick(self, test: Any, among: Ints | None) -> Ints:
        """The records one of whose values passes a test of arrays."""
        found = self.seqs[test(self.values)]
        fresh = np.ones(len(found), bool)
        fresh[1:] = found[1:] != found[:-1]
        found = found[fresh]
        return found if among is None else intersect(among, found)

    def items(self) -> tuple[Ints, Array]:
        """Records and their values."""
        return self.seqs, self.values


Column = Dense | Sparse


def column(seqs: Ints, values: Array) -> Column:
    """Values, each with its record, ascending by record."""
    if not len(seqs):
        return Sparse(EMPTY, values)
    base, span = int(seqs[0]), int(seqs[-1] - seqs[0]) + 1
    if span > _SPARSE * len(seqs) or np.any(seqs[1:] == seqs[:-1]):
        return Sparse(seqs, values)
    if span == len(seqs):
        return Dense(base, np.ascontiguousarray(values), None)
    filled = np.zeros(span, values.dtype)
    there = np.zeros(span, bool)
    filled[seqs - base] = values
    there[seqs - base] = True
    return Dense(base, filled, there)


class Ranked(NamedTuple):
    """The values of a keyword field: for each record the rank of its value."""

    ranks: Column
    texts: Sequence[bytes]
    """The values, ascending."""

    @property
    def nbytes(self) -> int:
        return self.ranks.nbytes + int(getattr(self.texts, "nbytes", 0))

    def place(self, text: str) -> int:
        """Twice the rank of a value; between ranks for one that is not there."""
        raw = text.encode("utf-8", "surrogatepass")
        at = bisect_left(self.texts, raw)
        there = at < len(self.texts) and self.texts[at] == raw
        return 2 * at - (not there)
