"""Aggregating the records of a log: windows of builds where they are whole, else columns of builds,
else documents.

Windows know nothing of records that died since, nor of a query beyond dimensions, nor of a part of
a window; columns do. What columns cannot tell is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.core import ranges
from headrace.core.errors import refuse_invalid
from headrace.core.limits import AGGREGATE_GROUPS_MAX
from headrace.engine.open_log import OpenLog
from headrace.engine.search.coverage import Coverage
from headrace.engine.search.scope import IndexedSpan, SearchScope
from headrace.engine.search.search_configs import Searchable, searchable
from headrace.engine.search.time_slices import Deadline, in_slices
from headrace.search.aggregate import Buckets, aligned, fixed_dimensions, within
from headrace.search.companions import NotIndexed
from headrace.search.lookup import IndexLookup
from headrace.search.requests import AggregateRequest, ReadAggregate

if TYPE_CHECKING:
    from headrace.engine.engine import Engine

_COMPACT_CELLS = 65_536
"""So many cells may be there more than once before they are made one."""
_BATCH_ROWS = 2048
"""Documents that are looked at between two turns."""


class Aggregated(msgspec.Struct, frozen=True):
    """The answer."""

    request: AggregateRequest
    timed_out: bool
    """Whether it counts only what `coverage` says was looked at."""
    coverage: Coverage
    used_rollups: bool
    buckets: list[dict[str, Any]]


async def aggregate(engine: Engine, live: OpenLog, read: ReadAggregate) -> Aggregated:
    """Aggregate a log, to its head."""
    configured = searchable(live.log).search
    request = read(configured)
    deadline = Deadline(request.timeout_ms)

    async def take() -> Aggregated:
        await engine.reader.prepare(live)
        asked = searchable(live.log)
        current = request if asked.search is configured else read(asked.search)
        scope = SearchScope(engine, live, asked.plan.hash, deadline)
        run = AggregateRun(scope, asked, current, deadline)
        await in_slices(engine.pool, run.units())
        engine.check_alive(live)
        await engine.settle(live)
        return run.answer()

    return await engine.fetcher.again(take)


class AggregateRun:
    """One aggregate in one scope."""

    def __init__(
        self, scope: SearchScope, asked: Searchable, request: AggregateRequest, deadline: Deadline
    ) -> None:
        self._scope = scope
        self._search = asked.search
        self._request = request
        self._deadline = deadline
        self._fixed = fixed_dimensions(request.query, request.rollup)
        self._buckets = Buckets(
            request.rollup, request.interval_ms, request.measures, request.group_by
        )
        self._cells_max = _COMPACT_CELLS
        self._used_rollups = False
        self._told: list[dict[str, Any]] = []
        self.coverage = Coverage(scope)

    def units(self) -> Iterator[None]:
        """All of it, in units; reads files."""
        yield from self.coverage.watch(self._gather())
        self._buckets.compact()
        self._check()
        self._told = self._buckets.report()

    def _gather(self) -> Iterator[None]:
        self._deadline.check()
        for indexed in list(self._scope.indexed_spans):
            self._ask(indexed)
            self._compact()
            yield
            self._deadline.check()
        for _ in self._scan():
            self._compact()
            yield

    def answer(self) -> Aggregated:
        coverage = self.coverage
        return Aggregated(
            self._request, not coverage.complete, coverage, self._used_rollups, self._told
        )

    def _compact(self) -> None:
        if self._buckets.cells > self._cells_max:
            self._buckets.compact()
            self._check()  # there will not be fewer
            self._cells_max = self._buckets.cells + _COMPACT_CELLS

    def _check(self) -> None:
        if self._buckets.cells > AGGREGATE_GROUPS_MAX:
            refuse_invalid(
                f"there are more than {AGGREGATE_GROUPS_MAX} groups; ask for less at a time"
            )

    # --- indexed ---------------------------------------------------------------------------------

    def _ask(self, indexed: IndexedSpan) -> None:
        """What a build knows. What it cannot answer is looked at instead."""
        scope, search, request = self._scope, self._search, self._request
        with scope.companions(indexed) as companions, self._buckets.whole():
            lookup = IndexLookup(companions, indexed.log, search)
            start, stop = self._windows(indexed, lookup)
            edges = [(request.start_ms, request.stop_ms)]
            if start < stop:
                edges = [(request.start_ms, start), (stop, request.stop_ms)]
            try:
                chosen = [
                    scope.only(indexed, lookup.find(within(request.rollup, *edge, request.query)))
                    for edge in edges
                    if edge[0] < edge[1]
                ]
                self.coverage.note_newest(lookup.latest(search.primary, indexed.spans, scope.dead))
                for seqs in chosen:
                    if len(seqs):
                        self._buckets.add_columns(lookup, search, seqs)
            except NotIndexed:
                scope.fall_back_to_scan(indexed)
                return
            if start < stop:
                self._buckets.add_windows(companions, indexed.log, start, stop, self._fixed)
                self._used_rollups = True
            self.coverage.note_families(lookup.take_used())
        self.coverage.saw_indexed(indexed)

    def _windows(self, indexed: IndexedSpan, lookup: IndexLookup) -> tuple[int, int]:
        """Which windows of a build can be taken as they are; none, as a rule, when some of its
        records are not to be counted.
        """
        request = self._request
        start, stop = aligned(request.start_ms, request.stop_ms, request.interval_ms)
        if self._fixed is None or start >= stop or not self._is_whole(indexed, lookup):
            return 0, 0
        return start, stop

    def _is_whole(self, indexed: IndexedSpan, lookup: IndexLookup) -> bool:
        """Whether everything that a build covers is to be counted."""
        scope = self._scope
        covered: list[int] = []
        for low, high in ranges.pairs(indexed.spans):
            ranges.add(covered, low, high)
        known = all(
            low >= scope.floor
            and high <= scope.head
            and next(ranges.outside(covered, low, high), None) is None
            and not ranges.touches(scope.dead, low, high)
            for low, high in lookup.spans
        )
        return known or len(scope.only(indexed, lookup.everything())) == lookup.rows

    # --- scanned ---------------------------------------------------------------------------------

    def _scan(self) -> Iterator[None]:
        """Look at every record that no build speaks for."""
        request = self._request
        for batch in self._scope.batches(rows=_BATCH_ROWS):
            newest = self._buckets.add_documents(
                self._search, batch.raws, request.start_ms, request.stop_ms, request.query
            )
            self.coverage.note_newest(newest)
            self.coverage.saw_scanned(batch)
            yield
