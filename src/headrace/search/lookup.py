"""Answers queries from the files of a build: which records of a log match, and how well.

Needs no documents. A query is answered whole or not at all; `NotIndexed` says that the records have
to be looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import eq
from typing import Any as Anything

import numpy as np
from numpy.typing import NDArray

from headrace.core import ranges
from headrace.core.ranges import Ranges
from headrace.formats.companion import Family
from headrace.formats.leb128 import Ints
from headrace.search.columns import Column, Mask, Ranked
from headrace.search.companions import Companions, NotIndexed, Spent
from headrace.search.config import Search
from headrace.search.docsets import EMPTY, intersect, subtract, unite
from headrace.search.evaluate import COMPARE
from headrace.search.families.exact import ExactReader
from headrace.search.families.text import TextReader
from headrace.search.families.typed import Numbers, TypedReader
from headrace.search.query import All, Any, Compares, Equals, Has, Not, Query, Starts, Words

_KNOWN_BYTES_MAX = 64 << 20
"""Of doc sets that are kept during a request, in case they are asked for again."""
_UNITED_AT_ONCE = 4 << 20
"""Records of clauses that are held before they are made one set."""


class IndexLookup:
    """Answers for one log from one build, by the configuration that the build was made by.

    Not to be used by several threads at once, as its companions are not.
    """

    def __init__(self, companions: Companions, log: int, search: Search) -> None:
        part = companions.part(log)
        if part is None:
            raise NotIndexed(f"log {log}")
        self._companions = companions
        self._part = part
        self._search = search
        self._exact = ExactReader(companions, log)
        self._typed = TypedReader(companions, log)
        self._text = TextReader(companions, log)
        self._known: dict[Query, Ints] = {}
        self._known_bytes = 0

    def find(self, query: Query) -> Ints:
        """The records that match, of those that the build covers; ascending."""
        self._companions.tick()
        found = self._known.get(query)
        if found is None:
            found = self._find(query)
            if self._known_bytes + found.nbytes <= _KNOWN_BYTES_MAX:
                self._known[query] = found
                self._known_bytes += found.nbytes
        return found

    def take_used(self) -> dict[Family, Spent]:
        """Which families were used since somebody last asked, and what that took."""
        used, self._companions.spent = self._companions.spent, {}
        return used

    def _find(self, query: Query) -> Ints:
        match query:
            case All(items=items):
                return self._all(items)
            case Any(items=items):
                return self._any(items)
            case Not(item=item):
                return subtract(self.everything(), self.find(item))
            case Equals():
                return self._equals(query)
            case Starts():
                return self._starts(query)
            case Compares(field=field):
                return self._scan(field, [query])
            case Has(field=field):
                return self._exact.having(field)
            case Words():
                return self._text.find(query)

    @property
    def rows(self) -> int:
        """How many records the build covers."""
        return self._part.rows

    @property
    def spans(self) -> Sequence[tuple[int, int]]:
        """Their seqs, first and last, and perhaps some that are not there."""
        return self._part.spans

    @property
    def several(self) -> frozenset[str]:
        """The fields of which some record has more than one value."""
        return frozenset(self._part.several)

    def everything(self) -> Ints:
        """All records that the build covers."""
        return self._exact.everything()

    def score(self, query: Query, seqs: Ints) -> NDArray[np.float64]:
        """The scores of records that match."""
        scores = np.zeros(len(seqs))
        match query:
            case All(items=items) | Any(items=items):
                for item in items:
                    scores += self.score(item, seqs)
            case Words():
                scores += self._text.score(query, seqs, self.find(query))
        return scores

    def column(self, field: str) -> tuple[Ints, Numbers]:
        """The values of a typed field and whose they are, in the order of records."""
        return self._column(field).items()

    def firsts(self, field: str, seqs: Ints) -> tuple[Numbers, Mask | None]:
        """The first value of a typed field for ascending records, and which have none."""
        return self._column(field).firsts(seqs)

    def latest(self, field: str, spans: Ranges, dead: Ranges) -> int | None:
        """The greatest value of a typed field among the records of some spans that are not dead."""
        live = tuple(
            s for a, b in ranges.pairs(spans) for r in ranges.outside(dead, a, b) for s in r
        )
        key = ("latest", self._part.log, field, live)
        held: tuple[int | None] | None = self._companions.cache.get(key)
        if held is None:
            held = (_greatest(*self.column(field), live),)
            self._companions.cache.put(key, held, 8 * len(live))
        return held[0]

    def ranked(self, field: str) -> Ranked:
        """The values of a keyword field in order, and whose they are."""
        part = self._part
        if field not in part.exact or field in part.several:
            raise NotIndexed(field)  # nothing tells which of several values is the first
        return self._exact.ranked(field)

    def _any(self, items: tuple[Query, ...]) -> Ints:
        held: list[Ints] = []
        count = 0
        for item in items:
            held.append(self.find(item))
            count += len(held[-1])
            if count > _UNITED_AT_ONCE:
                held = [unite(held)]
                count = 0
        return unite(held)

    def _all(self, items: tuple[Query, ...]) -> Ints:
        found: Ints | None = None
        for same in self._together(items):
            if found is not None and not len(found):
                return found
            item = same[0]
            if isinstance(item, Not):
                rest = self.find(item.item)
                found = subtract(self.everything() if found is None else found, rest)
                continue
            if isinstance(item, Compares):
                here = self._scan(item.field, same, found)
            else:
                here = self.find(item)
            found = here if found is None else intersect(found, here)
        return EMPTY if found is None else found

    def _together(self, items: tuple[Query, ...]) -> list[list[Anything]]:
        """Cheap items first; comparisons of a field that has no second values in one."""
        groups: list[list[Anything]] = []
        ranges: dict[str, list[Anything]] = {}
        for item in sorted(items, key=_cost):
            if isinstance(item, Compares) and item.field not in self._part.several:
                if item.field in ranges:
                    ranges[item.field].append(item)
                    continue
                ranges[item.field] = [item]
                groups.append(ranges[item.field])
            else:
                groups.append([item])
        return groups

    def _equals(self, query: Equals) -> Ints:
        if query.field in self._part.exact:
            return self._exact.equal(query.field, query.value)
        return self._scan(query.field, [query])

    def _starts(self, query: Starts) -> Ints:
        if query.field not in self._part.exact:
            raise NotIndexed(query.field)
        return self._exact.starting(query.field, query.text)

    def _scan(
        self, field: str, tests: Sequence[Compares | Equals], among: Ints | None = None
    ) -> Ints:
        """The records, perhaps only of some, that have a value which passes all tests."""

        def test(values: Numbers) -> Mask:
            good = np.ones(len(values), bool)
            for one in tests:
                good &= _compare(one)(values, one.value)
            return good

        if not self._search.fields[field].typed:
            raise NotIndexed(field)
        return self._column(field).pick(test, among)

    def _column(self, field: str) -> Column:
        """The values of a typed field."""
        return self._typed.column(self._search.fields[field])


def _greatest(seqs: Ints, values: Numbers, spans: Ranges) -> int | None:
    """The greatest of the values whose records are in some spans."""
    edges = np.array(spans, np.int64).reshape(-1, 2)
    edges[:, 1] += 1
    cuts = np.searchsorted(seqs, edges)
    cuts = cuts[cuts[:, 0] < cuts[:, 1]].ravel()
    if not len(cuts):
        return None
    # By turns what is in a span and what is behind it; there may be nothing behind the last.
    cuts = cuts[:-1] if cuts[-1] == len(values) else cuts
    return int(np.maximum.reduceat(values, cuts)[::2].max())


def _cost(query: Query) -> int:
    """Cheap and narrow clauses first; what is negated last, because it only takes away."""
    match query:
        case Equals():
            return 0
        case Words():
            return 1
        case Starts():
            return 2
        case Compares() | Has():
            return 3
        case Not():
            return 5
        case _:
            return 4


def _compare(test: Compares | Equals) -> Callable[[Numbers, Anything], NDArray[np.bool_]]:
    return eq if isinstance(test, Equals) else COMPARE[test.operator]
