"""The routing keys of a log's records, each once, ascending: from builds, and from the records that
no build speaks for.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

from headrace.core import ranges
from headrace.core.limits import SEARCH_TIMEOUT_MS
from headrace.engine.open_log import OpenLog
from headrace.engine.search.coverage import Coverage
from headrace.engine.search.scope import IndexedSpan, SearchScope
from headrace.engine.search.time_slices import Deadline, in_slices
from headrace.formats.companion import Family
from headrace.search.companions import NotIndexed
from headrace.search.families.keys import KeyReader, RecordKey

if TYPE_CHECKING:
    from headrace.engine.engine import Engine


class Timing(msgspec.Struct):
    """What it took, in seconds."""

    read_s: float = 0.0
    enumerate_s: float = 0.0
    merge_s: float = 0.0
    scan_segments_s: float = 0.0
    scan_tail_s: float = 0.0
    builds: int = 0


class KeyPage(msgspec.Struct, frozen=True):
    """A page of keys."""

    keys: list[str]
    more: bool
    """Whether there are keys behind it."""
    coverage: Coverage
    timing: Timing
    took_ms: int


async def list_keys(engine: Engine, live: OpenLog, after: str | None, limit: int) -> KeyPage:
    """The next keys of a log's records; those that could be found in the time there is."""
    deadline = Deadline(SEARCH_TIMEOUT_MS)

    async def take() -> KeyPage:
        await engine.reader.prepare(live)
        listing = KeyListing(SearchScope(engine, live, None, deadline), after, limit)
        await in_slices(engine.pool, listing.units())
        engine.check_alive(live)
        await engine.settle(live)
        keys = listing.page
        return KeyPage(
            keys[:limit],
            len(keys) > limit,
            listing.coverage,
            listing.timing,
            deadline.took_ms,
        )

    return await engine.fetcher.again(take)


class KeyListing:
    """One page in one scope."""

    def __init__(self, scope: SearchScope, after: str | None, limit: int) -> None:
        self._scope = scope
        self._after = after
        self._limit = limit
        self._found: set[str] = set()
        self.page: list[str] = []
        """The first keys, and one more if there are more."""
        self.coverage = Coverage(scope)
        self.timing = Timing()

    def units(self) -> Iterator[None]:
        """All of it, in units; reads files."""
        yield from self.coverage.watch(self._gather())
        started = perf_counter()
        self._shorten()
        self.page = sorted(self._found)
        self.timing.merge_s += perf_counter() - started

    def _gather(self) -> Iterator[None]:
        timing = self.timing
        for indexed in list(self._scope.indexed_spans):
            started = perf_counter()
            self._ask(indexed)
            timing.enumerate_s += perf_counter() - started
            yield
        started = perf_counter()
        for batch in self._scope.batches():
            self._keep(key for key in batch.keys if key is not None)
            self.coverage.saw_scanned(batch)
            spent = perf_counter() - started
            if batch.sealed:
                timing.scan_segments_s += spent
            else:
                timing.scan_tail_s += spent
            yield
            started = perf_counter()

    def _keep(self, keys: Iterator[str]) -> None:
        after = self._after
        self._found.update(keys if after is None else (key for key in keys if key > after))
        if len(self._found) > 64 * (self._limit + 1):
            self._shorten()

    def _shorten(self) -> None:
        self._found = set(nsmallest(self._limit + 1, self._found))

    def _ask(self, indexed: IndexedSpan) -> None:
        """The first keys that a build has; what it cannot tell is looked at instead."""
        with self._scope.companions(indexed) as companions:
            try:
                found = list(self._keys(indexed, KeyReader(companions, indexed.log)))
            except NotIndexed:
                self._scope.fall_back_to_scan(indexed)
                return
            spent, companions.spent = companions.spent, {}
        self._keep(iter(found))
        self.coverage.note_families(spent)
        self.coverage.saw_indexed(indexed)
        self.timing.builds += 1
        self.timing.read_s += spent[Family.LEX].read_s if Family.LEX in spent else 0.0

    def _keys(self, indexed: IndexedSpan, reader: KeyReader) -> Iterator[str]:
        live = (key for key in reader.above(self._after) if self._is_live(indexed, reader, key))
        for key in islice(live, self._limit + 1):
            yield key.key.decode()

    def _is_live(self, indexed: IndexedSpan, reader: KeyReader, key: RecordKey) -> bool:
        """Whether some record with this key can be seen."""
        scope = self._scope
        if (
            scope.floor <= key.first
            and key.last <= scope.head
            and not ranges.touches(scope.dead, key.first, key.last)
            and next(ranges.outside(indexed.spans, key.first, key.last), None) is None
        ):
            return True
        return len(scope.only(indexed, reader.postings(key))) > 0
