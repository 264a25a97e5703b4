"""Aggregating the records of a log: windows of builds where they are whole, else columns of builds,
else documents.

Windows know nothing of records that died since, nor of a query beyond dimensions, nor of a part of
a window; columns do. What columns cannot tell is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.core import ranges
from headrace.core.digits import parse_digits
from headrace.core.errors import refuse_invalid
from headrace.core.limits import AGGREGATE_GROUPS_MAX, I64_MAX
from headrace.engine.live import Live
from headrace.engine.plans import Searchable, searchable
from headrace.engine.searching.coverage import Coverage
from headrace.engine.searching.request import parse_timeout_ms
from headrace.engine.searching.scope import Cold, Scope
from headrace.engine.searching.turns import Deadline, in_turns
from headrace.search.aggregate import Buckets, aligned, fixed_dimensions, within
from headrace.search.companions import NotIndexed
from headrace.search.config import Rollup, Search
from headrace.search.lookup import Lookup
from headrace.search.query import Query, parse_query
from headrace.search.values import DATE_MS_MAX, parse_date_ms

if TYPE_CHECKING:
    from headrace.engine.engine import Engine

_KNOWN = ("rollup", "from", "to", "interval", "q", "group_by", "measures", "timeout_ms")
_COMPACT_CELLS = 65_536
"""So many cells may be there more than once before they are made one."""
_BATCH_ROWS = 2048
"""Documents that are looked at between two turns."""
_NS = 1_000_000


class Request(msgspec.Struct, frozen=True):
    """An aggregate that is asked for."""

    rollup: Rollup
    start_ms: int
    stop_ms: int
    interval: str
    interval_ms: int
    query: Query | None
    group_by: tuple[str, ...]
    measures: tuple[str, ...]
    timeout_ms: int


class Aggregated(msgspec.Struct, frozen=True):
    """The answer."""

    request: Request
    timed_out: bool
    """Whether it counts only what `coverage` says was looked at."""
    coverage: Coverage
    used_rollups: bool
    buckets: list[dict[str, Any]]


async def aggregate(engine: Engine, live: Live, raw: object) -> Aggregated:
    """Aggregate a log, to its head."""
    deadline = Deadline(parse_request(raw, searchable(live.log).search).timeout_ms)

    async def take() -> Aggregated:
        await engine.reader.prepare(live)
        asked = searchable(live.log)
        request = parse_request(raw, asked.search)
        scope = Scope(engine, live, asked.plan.hash, deadline)
        tally = Tally(scope, asked, request, deadline)
        await in_turns(engine.pool, tally.run())
        engine.check_alive(live)
        await engine.settle(live)
        return tally.answer()

    return await engine.fetcher.again(take)


class Tally:
    """One aggregate in one scope."""

    def __init__(
        self, scope: Scope, asked: Searchable, request: Request, deadline: Deadline
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

    def run(self) -> Iterator[None]:
        """All of it, in units; reads files."""
        yield from self.coverage.watch(self._gather())
        self._buckets.compact()
        self._check()
        self._told = self._buckets.report()

    def _gather(self) -> Iterator[None]:
        self._deadline.check()
        for cold in list(self._scope.colds):
            self._ask(cold)
            self._compact()
            yield
            self._deadline.check()
        for _ in self._look():
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

    # --- cold ------------------------------------------------------------------------------------

    def _ask(self, cold: Cold) -> None:
        """What a build knows. What it cannot answer is looked at instead."""
        scope, search, request = self._scope, self._search, self._request
        with scope.companions(cold) as companions, self._buckets.whole():
            lookup = Lookup(companions, cold.log, search)
            start, stop = self._windows(cold, lookup)
            edges = [(request.start_ms, request.stop_ms)]
            if start < stop:
                edges = [(request.start_ms, start), (stop, request.stop_ms)]
            try:
                chosen = [
                    scope.only(cold, lookup.find(within(request.rollup, *edge, request.query)))
                    for edge in edges
                    if edge[0] < edge[1]
                ]
                self.coverage.note_newest(lookup.latest(search.primary, cold.spans, scope.dead))
                for seqs in chosen:
                    if len(seqs):
                        self._buckets.add_columns(lookup, search, seqs)
            except NotIndexed:
                scope.expose(cold)
                return
            if start < stop:
                self._buckets.add_windows(companions, cold.log, start, stop, self._fixed)
                self._used_rollups = True
            self.coverage.note_families(lookup.take_used())
        self.coverage.saw_cold(cold)

    def _windows(self, cold: Cold, lookup: Lookup) -> tuple[int, int]:
        """Which windows of a build can be taken as they are; none, as a rule, when some of its
        records are not to be counted.
        """
        request = self._request
        start, stop = aligned(request.start_ms, request.stop_ms, request.interval_ms)
        if self._fixed is None or start >= stop or not self._is_whole(cold, lookup):
            return 0, 0
        return start, stop

    def _is_whole(self, cold: Cold, lookup: Lookup) -> bool:
        """Whether everything that a build covers is to be counted."""
        scope = self._scope
        covered: list[int] = []
        for low, high in ranges.pairs(cold.spans):
            ranges.add(covered, low, high)
        known = all(
            low >= scope.floor
            and high <= scope.head
            and next(ranges.outside(covered, low, high), None) is None
            and not ranges.touches(scope.dead, low, high)
            for low, high in lookup.spans
        )
        return known or len(scope.only(cold, lookup.everything())) == lookup.rows

    # --- hot -------------------------------------------------------------------------------------

    def _look(self) -> Iterator[None]:
        """Look at every record that no build speaks for."""
        request = self._request
        for batch in self._scope.batches(rows=_BATCH_ROWS):
            newest = self._buckets.add_documents(
                self._search, batch.raws, request.start_ms, request.stop_ms, request.query
            )
            self.coverage.note_newest(newest)
            self.coverage.saw_hot(batch)
            yield


# --- what is asked --------------------------------------------------------------------------------


def parse_request(raw: object, search: Search) -> Request:
    """An aggregate as it was posted."""
    if not isinstance(raw, dict):
        refuse_invalid("an aggregate is a JSON object")
    for key in raw:
        if key not in _KNOWN:
            refuse_invalid(f"{str(key)[:80]} is not supported")
    rollup = search.rollups.get(_text(raw, "rollup"))
    if rollup is None:
        refuse_invalid(f"unknown rollup {_text(raw, 'rollup')[:80]}")
    interval = rollup.interval(_text(raw, "interval"))
    if interval is None:
        known = ", ".join(each.text for each in rollup.intervals)
        refuse_invalid(f"interval must be one of {known}")
    start_ms, stop_ms = _time_ms(raw, "from"), _time_ms(raw, "to")
    if start_ms >= stop_ms:
        refuse_invalid("from must be before to")
    query = raw.get("q")
    if query is not None and not isinstance(query, str):
        refuse_invalid("q must be a string")
    measures = [measure.name for measure in rollup.measures]
    return Request(
        rollup,
        start_ms,
        stop_ms,
        interval.text,
        interval.ms,
        parse_query(query, search) if query and query.strip() else None,
        _names(raw.get("group_by", []), "group_by", "dimensions", rollup.dimensions),
        _names(raw.get("measures", measures), "measures", "measures", measures, some=True),
        parse_timeout_ms(raw),
    )


def _text(raw: dict[str, Any], name: str) -> str:
    value = raw.get(name)
    if not isinstance(value, str) or not value:
        refuse_invalid(f"{name} must be a non-empty string")
    return value


def _time_ms(raw: dict[str, Any], name: str) -> int:
    """A date, milliseconds as a number, or nanoseconds as digits."""
    value, ms = raw.get(name), None
    if isinstance(value, str):
        ns = parse_digits(value, I64_MAX)
        ms = parse_date_ms(value) if ns is None else ns // _NS
    elif isinstance(value, int | float) and not isinstance(value, bool):
        ms = int(value) if abs(value) <= DATE_MS_MAX else None
    if ms is None:
        refuse_invalid(f"{name} must be a time: RFC 3339, or milliseconds since 1970")
    return ms


def _names(
    raw: object, name: str, what: str, known: Sequence[str], *, some: bool = False
) -> tuple[str, ...]:
    if not isinstance(raw, list) or not all(isinstance(item, str) for item in raw):
        refuse_invalid(f"{name} must be an array of strings")
    if some and not raw:
        refuse_invalid(f"{name} must not be empty")
    for item in raw:
        if item not in known:
            refuse_invalid(f"{name} must name {what} of the rollup; {item[:80]} is none")
    if len(set(raw)) < len(raw):
        refuse_invalid(f"{name} must not have duplicates")
    return tuple(raw)
