"""Filtered reads: pages with only the records that a query finds.

Builds say which records match without a look at the others. Records that no build speaks for are
looked at one by one, up to a number of bytes for each page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from headrace.core import limits
from headrace.core import read as reading
from headrace.core.errors import Code, Refused
from headrace.core.read import Page, Slice
from headrace.core.record import Block
from headrace.core.selector import ColumnSelector
from headrace.engine.open_log import OpenLog
from headrace.engine.search.scope import IndexedSpan, SearchScope
from headrace.engine.search.search_configs import searchable
from headrace.engine.search.time_slices import Deadline, in_slices
from headrace.formats.leb128 import Ints
from headrace.search.companions import NotIndexed, TimeUp
from headrace.search.config import Search
from headrace.search.docsets import intersect
from headrace.search.evaluate import Matcher
from headrace.search.families.keys import KeyReader
from headrace.search.query import Query, Rules, parse_query

if TYPE_CHECKING:
    from headrace.engine.engine import Engine

_PAGE_MS = 2_500
"""A page that takes longer ends where it is."""


def parse_filter(live: OpenLog, text: str) -> Query:
    """The query of a filter; refuses what cannot be asked of this log."""
    if live.log.search is None:
        raise Refused(Code.INVALID, "filter needs a schema with search fields")
    return parse_query(text, searchable(live.log).search, Rules.FILTER)


class Filter:
    """Reads the records of a log that a query finds."""

    def __init__(self, engine: Engine, text: str) -> None:
        self._engine = engine
        self._text = text
        self.plan: str | None = None
        """The hash of the plan by which it found what the last page has."""

    async def read(
        self,
        live: OpenLog,
        after: int,
        *,
        records_max: int,
        bytes_max: int,
        selector: ColumnSelector,
        epoch: int | None = None,
    ) -> Page:
        """One page of records after `after`."""
        engine, log = self._engine, live.log

        async def take() -> Page:
            await engine.reader.prepare(live)
            query, deletions = parse_filter(live, self._text), live.deletions
            asked = searchable(log)
            self.plan = asked.plan.hash
            plan = reading.plan(log, live.visible, after, epoch)
            scope = SearchScope(engine, live, asked.plan.hash)
            sieve = _Sieve(scope, asked.search, query, selector, records_max, bytes_max)
            if plan.start <= plan.last:
                await in_slices(engine.pool, sieve.units(plan.start, plan.last))
            engine.check_alive(live)
            next = plan.last if sieve.next is None else sieve.next
            earliest = min(log.earliest, scope.head + 1)
            page = Page(
                sieve.slices,
                next,
                scope.head,
                earliest,
                plan.gap,
                sieve.scanned,
                sieve.scanned_bytes,
                sieve.limited,
            )
            await engine.settle_deletions(live, deletions, lambda: page.forget(log.deleted))
            return page

        return await engine.fetcher.again(take)


class _Sieve:
    """Gathers one page."""

    def __init__(
        self,
        scope: SearchScope,
        search: Search,
        query: Query,
        selector: ColumnSelector,
        records_max: int,
        bytes_max: int,
    ) -> None:
        self._scope = scope
        self._search = search
        self._query = query
        self._matcher = Matcher(query, search)
        self._key = selector.key
        self._records_left = records_max
        self._bytes_left = bytes_max
        self._deadline = Deadline(_PAGE_MS)
        self.slices: list[Slice] = []
        self.next: int | None = None
        """Where it ended; None: everything was looked at."""
        self.scanned = 0
        self.scanned_bytes = 0
        self.limited = False
        """Whether it ended because enough was looked at."""

    def units(self, first: int, last: int) -> Iterator[None]:
        """All of it, in units; reads files."""
        known: dict[tuple[int, str], Ints | None] = {}
        for low, high, indexed in self._scope.pieces(first, last):
            matching: Ints | None = None
            if indexed is not None:
                which = indexed.log, indexed.build.name
                if which not in known:
                    known[which] = self._ask(indexed)
                    yield
                matching = known[which]
            if matching is None:
                units = self._scan(low, high)
            else:
                units = self._pick(_between(matching, low, high))
            try:
                for more in units:
                    if not more or self._deadline.over:
                        return
                    yield
            except TimeUp:
                return
        self.next = None

    def _scan(self, low: int, high: int) -> Iterator[bool]:
        """Look at records; False when the page ends."""
        for batch in self._scope.records(low, high, self._deadline):
            good = iter(self._matcher.match(batch.raws))
            for block in batch.blocks:
                flags = [next(good) for _ in range(block.count)]
                if not self._take(block, range(block.count), flags):
                    yield False
                    return
            yield True

    def _pick(self, seqs: Ints) -> Iterator[bool]:
        """Take records that match; False when the page ends."""
        for block, picks in self._scope.pick(seqs.tolist()):
            yield self._take(block, picks, None)

    def _ask(self, indexed: IndexedSpan) -> Ints | None:
        """What a build says; None when it cannot say."""
        with self._scope.lookup(indexed, self._search) as lookup:
            try:
                found = lookup.find(self._query)
            except NotIndexed:
                return None
        if self._key is not None:
            with self._scope.companions(indexed) as companions:
                found = intersect(found, KeyReader(companions, indexed.log).find(self._key))
        return self._scope.only(indexed, found)

    def _take(self, block: Block, indices: Sequence[int], good: Sequence[bool] | None) -> bool:
        """Take the records that are good, or all; False when the page ends among them."""
        sizes = block.sizes()
        picks: list[int] = []
        full = False
        for index in indices:
            if (good is None or good[index]) and self._is_keyed(block, index):
                if sizes[index] > self._bytes_left and (self.slices or picks):
                    full = True
                    break
                picks.append(index)
                self._records_left -= 1
                self._bytes_left -= sizes[index]
            self.next = block.seq_at(index)
            self.scanned += 1
            self.scanned_bytes += sizes[index] - limits.RECORD_OVERHEAD_BYTES
            self.limited = self.scanned_bytes >= limits.FILTER_SCANNED_BYTES_MAX
            full = self.limited or self._records_left <= 0
            if full:
                break
        if picks:
            self.slices.append(Slice(block, picks))
        return not full

    def _is_keyed(self, block: Block, index: int) -> bool:
        key = self._key
        return key is None or (block.keys is not None and block.keys[index] == key)


def _between(seqs: Ints, low: int, high: int) -> Ints:
    start, stop = np.searchsorted(seqs, [low, high + 1])
    return seqs[start:stop]
