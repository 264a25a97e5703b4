"""Searching the records of a log: builds answer for what they cover, the rest is looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress, takewhile
from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from headrace.core import ranges
from headrace.core.limits import SEARCH_ANSWER_BYTES
from headrace.core.ranges import Ranges
from headrace.engine.open_log import OpenLog
from headrace.engine.search.coverage import Coverage
from headrace.engine.search.scope import IndexedSpan, ScanBatch, SearchScope
from headrace.engine.search.search_configs import Searchable, searchable
from headrace.engine.search.time_slices import Deadline, in_slices
from headrace.formats.leb128 import Ints
from headrace.search.companions import NotIndexed
from headrace.search.evaluate import Documents, Fields, Presenter, score
from headrace.search.lookup import IndexLookup
from headrace.search.ordering import OFFSET, SCORE, SortKey, first, is_after, merge
from headrace.search.query import clauses, text_fields
from headrace.search.requests import ReadSearch, SearchRequest
from headrace.search.values import shown

if TYPE_CHECKING:
    from headrace.engine.engine import Engine

_KEPT_MAX = 4096
"""Rows beyond a page that are held before the worse of them are let go."""

_FETCHED_AT_ONCE = 16
"""Hits whose documents are read between two looks at the clock."""

_LARGE_BYTES = 64 << 10
"""Where the hits before them have larger documents, hits are read one by one."""

_SOURCE_KEPT_BYTES = 4096
"""Larger documents are fetched once it is known that they are hits."""

Row = tuple[Any, ...]
"""A record that matches: the values it is sorted by, its seq, its score, its document if known."""


class Hit(msgspec.Struct, frozen=True):
    """A record that was found."""

    seq: int
    score: float
    sort: list[Any]
    """The values it is sorted by; its offset as a seq."""
    fields: dict[str, Any]
    source: bytes | None
    """None when it cannot be shown in the current schema version."""


class SearchAnswer(msgspec.Struct, frozen=True):
    """The answer to a search."""

    request: SearchRequest
    head: int
    timed_out: bool
    took_ms: int
    coverage: Coverage
    total: int
    exact: bool
    """Whether that many records match, or at least so many."""
    hits: list[Hit]
    more: list[Any] | None
    """Where the next page goes on, if there may be one."""

    def forget(self, deleted: Ranges) -> None:
        """Leave out what was deleted since the hits were found."""
        self.hits[:] = [hit for hit in self.hits if not ranges.contains(deleted, hit.seq)]


async def search(engine: Engine, live: OpenLog, read: ReadSearch) -> SearchAnswer:
    """Search a log, to its head."""
    configured = searchable(live.log).search
    request = read(configured)
    deadline = Deadline(request.timeout_ms)

    async def take() -> SearchAnswer:
        await engine.reader.prepare(live)
        asked, deletions = searchable(live.log), live.deletions
        current = request if asked.search is configured else read(asked.search)
        scope = SearchScope(engine, live, asked.plan.hash, deadline)
        run = SearchRun(scope, asked, current, deadline)
        await in_slices(engine.pool, run.units())
        engine.check_alive(live)
        found = run.found()
        await engine.settle_deletions(live, deletions, lambda: found.forget(live.log.deleted))
        return found

    return await engine.fetcher.again(take)


class SearchRun:
    """One search in one scope."""

    def __init__(
        self, scope: SearchScope, asked: Searchable, request: SearchRequest, deadline: Deadline
    ) -> None:
        self._scope = scope
        self._search = asked.search
        self._request = request
        self._deadline = deadline
        self._sorts = request.sorts
        self._rows: list[Row] = []
        self._hits: list[Hit] = []
        self._cut = False
        """There was no time for the documents of more hits."""
        self._full = False
        """The answer is large enough without more of them."""
        self.total = 0
        self.coverage = Coverage(scope)

    def units(self) -> Iterator[None]:
        """All of it, in units; reads files."""
        yield from self.coverage.watch(self._gather())
        self._best()
        yield from self._fetch()

    def _gather(self) -> Iterator[None]:
        self._deadline.check()
        for indexed in list(self._scope.indexed_spans):
            self._ask(indexed)
            yield
            self._deadline.check()
        yield from self._scan()

    def found(self) -> SearchAnswer:
        """The answer, without what died meanwhile."""
        log = self._scope.log
        hits = [
            hit
            for hit in self._hits
            if hit.seq >= log.floor and not ranges.contains(log.deleted, hit.seq)
        ]
        more = self._cut or self._full or len(self._rows) == self._request.size
        exact = self.coverage.complete and not self._cut
        return SearchAnswer(
            self._request,
            self._scope.head,
            not exact,
            self._deadline.took_ms,
            self.coverage,
            self.total,
            exact,
            hits,
            self._shown(self._rows[-1]) if more else None,
        )

    # --- indexed ---------------------------------------------------------------------------------

    def _ask(self, indexed: IndexedSpan) -> None:
        """What a build knows. What it cannot answer is looked at instead."""
        started = perf_counter()
        scope, coverage = self._scope, self.coverage
        with scope.lookup(indexed, self._search) as lookup:
            try:
                seqs = scope.only(indexed, lookup.find(self._request.query))
                rows = self._first(lookup, seqs)
                coverage.note_newest(lookup.latest(self._search.primary, indexed.spans, scope.dead))
            except NotIndexed:
                scope.fall_back_to_scan(indexed)
                return
            coverage.note_families(lookup.take_used())
        self.total += len(seqs)
        self._rows += rows
        coverage.saw_indexed(indexed)
        coverage.indexed_s += perf_counter() - started

    def _first(self, lookup: IndexLookup, seqs: Ints) -> list[Row]:
        """The best of these records."""
        if not len(seqs):
            return []
        query, marks = self._request.query, self._request.after
        scores: Any = None
        keys: list[SortKey] = []
        texts: dict[int, Sequence[bytes]] = {}
        for at, (name, descending) in enumerate(self._sorts):
            mark: Any = marks[at] if marks is not None else 0
            if name == OFFSET:
                keys.append(SortKey(seqs, None, descending, mark))
            elif name == SCORE:
                scores = lookup.score(query, seqs)
                keys.append(SortKey(scores, None, descending, mark))
            elif self._search.fields[name].typed:
                values, missing = lookup.firsts(name, seqs)
                keys.append(SortKey(values, missing, descending, mark))
            else:
                ranked = lookup.ranked(name)
                ranks, missing = ranked.ranks.firsts(seqs)
                if marks is not None and mark is not None:
                    mark = ranked.place(mark)
                keys.append(SortKey(ranks, missing, descending, mark))
                texts[at] = ranked.texts
        chosen = first(keys, self._request.size, after=marks is not None)
        if scores is not None:
            scores = scores[chosen]
        else:
            scores = np.zeros(len(chosen))
            if self._request.scored:
                order = np.argsort(seqs[chosen])
                scores[order] = lookup.score(query, seqs[chosen][order])
        columns: list[list[Any]] = []
        for at, key in enumerate(keys):
            column = key.values[chosen].tolist()
            if key.missing is not None:
                gone = key.missing[chosen].tolist()
                column = [None if no else value for no, value in zip(gone, column, strict=True)]
            if (names := texts.get(at)) is not None:
                column = [None if rank is None else names[rank // 2].decode() for rank in column]
            columns.append(column)
        return [
            (*values, seq, each, None)
            for *values, seq, each in zip(
                *columns, seqs[chosen].tolist(), scores.tolist(), strict=True
            )
        ]

    # --- scanned ---------------------------------------------------------------------------------

    def _scan(self) -> Iterator[None]:
        """Look at every record that no build speaks for."""
        request, search, coverage = self._request, self._search, self.coverage
        names = {clause.field for clause in clauses(request.query)}
        names.update(sort.name for sort in self._sorts if sort.name in search.fields)
        fields = Fields(search, sorted({*names, search.primary}))
        started = perf_counter()
        for batch in self._scope.batches():
            self._take(batch, fields)
            coverage.saw_scanned(batch)
            spent = perf_counter() - started
            if batch.sealed:
                coverage.scanned_s += spent
            else:
                coverage.scanned_tail_s += spent
            yield
            started = perf_counter()

    def _take(self, batch: ScanBatch, fields: Fields) -> None:
        raws, seqs = batch.raws, batch.seqs
        documents = fields.columns(raws)
        self.coverage.note_newest(documents.latest(self._search.primary))
        for at in compress(range(len(raws)), documents.match(self._request.query)):
            self.total += 1
            self._add(seqs[at], raws[at], documents, at)
        if len(self._rows) > _KEPT_MAX + self._request.size:
            self._best()

    def _add(self, seq: int, raw: bytes | None, documents: Documents, at: int) -> None:
        points = 0.0
        if self._request.scored:
            query = self._request.query
            points = score(query, documents.values(text_fields(query), at))
        found: list[Any] = []
        for sort in self._sorts:
            if sort.name == OFFSET:
                found.append(seq)
            elif sort.name == SCORE:
                found.append(points)
            else:
                found.append(documents.first(sort.name, at))
        marks = self._request.after
        if marks is None or is_after(found, marks, self._sorts):
            kept = raw if raw is not None and len(raw) <= _SOURCE_KEPT_BYTES else None
            self._rows.append((*found, seq, points, kept))

    # --- both ------------------------------------------------------------------------------------

    def _best(self) -> None:
        self._rows = merge(self._rows, self._sorts)[: self._request.size]

    def _fetch(self) -> Iterator[None]:
        """Make hits of rows, as far as there is time and room for their documents."""
        start = size_bytes = 0
        while start < len(self._rows):
            at_once = _FETCHED_AT_ONCE if size_bytes <= start * _LARGE_BYTES else 1
            rows = self._rows[start : start + at_once]
            if start and self._deadline.over:
                at_hand = list(takewhile(lambda row: row[-1] is not None, rows))
                self._cut = len(at_hand) < len(rows)
                rows = at_hand
            size_bytes += self._present(rows)
            yield
            start += len(rows)
            self._full = size_bytes >= SEARCH_ANSWER_BYTES and start < len(self._rows)
            if self._cut or self._full:
                del self._rows[start:]
                return

    def _present(self, rows: Sequence[Row]) -> int:
        """Make hits of these rows; returns how many bytes their documents have."""
        count = len(self._sorts)
        unknown = sorted(row[count] for row in rows if row[-1] is None)
        sources = dict(self._scope.fetch(unknown))
        for row in rows:
            if row[-1] is not None:
                sources[row[count]] = row[-1]
        rows = [row for row in rows if row[count] in sources]
        shows = Presenter(self._search).read([sources[row[count]] for row in rows])
        self._hits += [
            Hit(row[count], row[count + 1], self._shown(row), fields, sources[row[count]])
            for row, fields in zip(rows, shows, strict=True)
        ]
        return sum(len(sources[row[count]] or b"") for row in rows)

    def _shown(self, row: Row) -> list[Any]:
        return [
            shown(self._search.fields[sort.name], value)
            if sort.name in self._search.fields
            else value
            for sort, value in zip(self._sorts, row, strict=False)
        ]
