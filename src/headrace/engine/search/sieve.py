"""Pages of records that pass a test, of everything there is of a log.

Builds say which records may pass without a look at the others, and only those are read. Records
that no build speaks for are looked at one by one, up to a number of bytes for each page.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np

from headrace.core import limits
from headrace.core import read as reading
from headrace.core.limits import CANDIDATES_KEPT, I64_MAX
from headrace.core.read import Page, Slice
from headrace.core.record import Block
from headrace.engine.open_log import OpenLog
from headrace.engine.search.scope import IndexedSpan, ScanBatch, SearchScope
from headrace.engine.search.time_slices import Deadline, in_slices
from headrace.formats.leb128 import Ints
from headrace.search.companions import NotIndexed, TimeUp
from headrace.search.config import Search
from headrace.search.docsets import EMPTY, intersect
from headrace.search.families.keys import KeyReader
from headrace.search.query import Query

if TYPE_CHECKING:
    from headrace.engine.engine import Engine

_PAGE_MS = 2_500
"""A page that takes longer ends where it is."""


class RecordTest(Protocol):
    """What records must pass."""

    def examine(self, batch: ScanBatch) -> Iterator[tuple[Block, Container[int]]]:
        """For each block of a batch, the records that pass."""
        ...

    def confirm(self, block: Block, picks: list[int]) -> Container[int]:
        """Those of the records that a build named that pass."""
        ...


class PageCriteria(msgspec.Struct, frozen=True):
    """What pages are to have."""

    test: RecordTest
    search: Search | None = None
    plan: str | None = None
    """The hash of the plan that builds must have been made by; None: every build will do."""
    query: Query | None = None
    """What builds are asked, besides the key; every record that passes matches it."""
    key: str | None = None
    """What all records belong to."""

    @property
    def indexed(self) -> bool:
        """Whether builds can be asked."""
        return self.query is not None or self.key is not None


class Candidates:
    """What a build named last, so that it is not asked again for every page."""

    __slots__ = ("first", "last", "seqs", "which")

    def __init__(self) -> None:
        self.which: tuple[int, str] | None = None
        self.first = self.last = 0
        """All that it named of the seqs from here to there is kept."""
        self.seqs: Ints = EMPTY

    def keep(self, which: tuple[int, str], first: int, named: Ints) -> None:
        """As many of them as there is room for, from `first` on."""
        start = int(np.searchsorted(named, first))
        kept = named[start : start + CANDIDATES_KEPT]
        whole = start + len(kept) == len(named)
        self.which, self.first = which, first
        self.last = I64_MAX if whole else int(kept[-1])
        self.seqs = kept if len(kept) == len(named) else kept.copy()

    def have(self, which: tuple[int, str], seq: int) -> bool:
        return self.which == which and self.first <= seq <= self.last

    def between(self, first: int, last: int) -> Ints:
        start, stop = np.searchsorted(self.seqs, [first, last + 1])
        return self.seqs[start:stop]


async def read_page(
    engine: Engine,
    live: OpenLog,
    after: int,
    ask: Callable[[], PageCriteria],
    *,
    records_max: int,
    bytes_max: int,
    epoch: int | None = None,
    upto: int | None = None,
    candidates: Candidates | None = None,
) -> Page:
    """One page of records after `after`, not beyond `upto`; `ask` is called when the log is ready.

    Whoever reads on with the same question brings the same candidates again.
    """
    log = live.log

    async def take() -> Page:
        await engine.reader.prepare(live)
        criteria, deletions = ask(), live.deletions
        visible = live.visible if upto is None else min(upto, live.visible)
        plan = reading.plan(log, visible, after, epoch)
        scope = SearchScope(engine, live, criteria.plan)
        sieve = _Sieve(scope, criteria, candidates or Candidates(), records_max, bytes_max)
        if plan.start <= plan.last:
            await in_slices(engine.pool, sieve.units(plan.start, plan.last))
        engine.check_alive(live)
        page = Page(
            sieve.slices,
            plan.last if sieve.next is None else sieve.next,
            visible,
            min(log.earliest, visible + 1),
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
        criteria: PageCriteria,
        candidates: Candidates,
        records_max: int,
        bytes_max: int,
    ) -> None:
        self._scope = scope
        self._criteria = criteria
        self._candidates = candidates
        self._silent: set[tuple[int, str]] = set()
        """Builds that cannot answer this."""
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
        try:
            for low, high, indexed in self._pieces(first, last):
                for more in self._look(low, high, indexed):
                    if not more or self._deadline.over:
                        return
                    yield
                self.next = high
        except TimeUp:
            return
        self.next = None

    def _pieces(self, first: int, last: int) -> Iterator[tuple[int, int, IndexedSpan | None]]:
        if self._criteria.indexed:
            return self._scope.pieces(first, last)
        return iter([(first, last, None)])

    def _look(self, low: int, high: int, indexed: IndexedSpan | None) -> Iterator[bool]:
        """All of a piece; False when the page ends."""
        while indexed is not None and low <= high:
            which = indexed.log, indexed.build.name
            if which not in self._silent and not self._candidates.have(which, low):
                self._ask(which, low, indexed)
            if which in self._silent:
                break
            reached = min(high, self._candidates.last)
            named = self._scope.alive(self._candidates.between(low, reached))
            yield from self._pick(named)
            self.next, low = reached, reached + 1
            yield True
        if low <= high:
            yield from self._scan(low, high)

    def _scan(self, low: int, high: int) -> Iterator[bool]:
        """Look at records; False when the page ends."""
        for batch in self._scope.records(low, high, self._deadline):
            for block, good in self._criteria.test.examine(batch):
                if not self._take(block, range(block.count), good):
                    yield False
                    return
            yield True

    def _pick(self, seqs: Ints) -> Iterator[bool]:
        """Take records that may pass; False when the page ends."""
        for block, picks in self._scope.pick(seqs.tolist()):
            yield self._take(block, picks, self._criteria.test.confirm(block, picks))

    def _ask(self, which: tuple[int, str], low: int, indexed: IndexedSpan) -> None:
        """What a build names; it may not be able to."""
        try:
            named = self._scope.only(indexed, self._named(indexed))
        except NotIndexed:
            self._silent.add(which)
            return
        self._candidates.keep(which, low, named)

    def _named(self, indexed: IndexedSpan) -> Ints:
        criteria, found = self._criteria, None
        if criteria.query is not None:
            assert criteria.search is not None
            with self._scope.lookup(indexed, criteria.search) as lookup:
                found = lookup.find(criteria.query)
        if criteria.key is not None:
            with self._scope.companions(indexed) as companions:
                keyed = KeyReader(companions, indexed.log).find(criteria.key)
                found = keyed if found is None else intersect(found, keyed)
        assert found is not None
        return found

    def _take(self, block: Block, indices: Sequence[int], good: Container[int]) -> bool:
        """Take those of the records that are good; False when the page ends among them."""
        sizes = block.sizes()
        picks: list[int] = []
        full = False
        for index in indices:
            if index in good:
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
