"""Aggregates: rollup windows from companions, from columns and from documents, merged and told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
import pyarrow.compute as pc

from headrace.formats.leb128 import Ints
from headrace.search import histogram
from headrace.search.cells import NO_HISTOGRAMS, NOTHING, Cells, format_cells, reduce_cells
from headrace.search.companions import Companions, NotIndexed
from headrace.search.config import Parts, Rollup, Search, Summary
from headrace.search.contributions import RollupDocuments
from headrace.search.families.rollup import Dims, Rolled, read_rolled
from headrace.search.histogram import Histograms
from headrace.search.lookup import IndexLookup
from headrace.search.query import All, Compares, Equals, Query
from headrace.search.values import format_date, shown


def fixed_dimensions(query: Query | None, rollup: Rollup) -> dict[str, Any] | None:
    """The dimensions a query pins down, if it does nothing else: then windows can answer it."""
    items = () if query is None else query.items if isinstance(query, All) else (query,)
    found: dict[str, Any] = {}
    for item in items:
        if not isinstance(item, Equals) or item.field not in rollup.dimensions:
            return None
        if found.setdefault(item.field, item.value) != item.value:
            return None
    return found


def aligned(start_ms: int, stop_ms: int, interval_ms: int) -> tuple[int, int]:
    """The whole windows inside [start, stop); empty when the first is not before the second."""
    return -(-start_ms // interval_ms) * interval_ms, stop_ms // interval_ms * interval_ms


def within(rollup: Rollup, start_ms: int, stop_ms: int, query: Query | None) -> Query:
    """The query for records with a time in [start, stop)."""
    since = Compares(rollup.timestamp, ">=", start_ms)
    until = Compares(rollup.timestamp, "<", stop_ms)
    rest = () if query is None else query.items if isinstance(query, All) else (query,)
    return All((since, until, *rest))


class Buckets:
    """Measures by window and dimensions, from any number of sources."""

    def __init__(
        self, rollup: Rollup, interval_ms: int, measures: Sequence[str], group_by: Sequence[str]
    ) -> None:
        self._rollup = rollup
        self._interval_ms = interval_ms
        self._measures = [m for m in rollup.measures if m.name in measures]
        self._kept = [rollup.dimensions.index(name) for name in group_by]
        self._group_by = group_by
        self._groups: dict[Dims, int] = {}
        self._chunks: dict[str, list[Cells]] = {m.name: [] for m in self._measures}
        self._documents: RollupDocuments | None = None

    # --- sources ---------------------------------------------------------------------------------

    @contextmanager
    def whole(self) -> Iterator[None]:
        """What is added meanwhile counts if nothing is raised."""
        counts = {name: len(chunks) for name, chunks in self._chunks.items()}
        try:
            yield
        except BaseException:
            for name, count in counts.items():
                del self._chunks[name][count:]
            raise

    def add_windows(
        self,
        companions: Companions,
        log: int,
        start_ms: int,
        stop_ms: int,
        fixed: dict[str, Any] | None = None,
    ) -> None:
        """What a build has of the windows that start in [start, stop)."""
        pinned = {self._rollup.dimensions.index(name): v for name, v in (fixed or {}).items()}
        for measure in self._measures:
            rolled = read_rolled(
                companions, log, self._rollup.name, self._interval_ms, measure.name
            )
            if rolled is not None:
                self._chunks[measure.name].append(self._cut(rolled, start_ms, stop_ms, pinned))

    def _cut(self, rolled: Rolled, start_ms: int, stop_ms: int, pinned: dict[int, Any]) -> Cells:
        wanted = [all(dims[at] == value for at, value in pinned.items()) for dims in rolled.dims]
        groups = np.array(
            [
                self._group(dims) if good else -1
                for dims, good in zip(rolled.dims, wanted, strict=True)
            ],
            np.int64,
        )[rolled.codes]
        chosen = (rolled.starts >= start_ms) & (rolled.starts < stop_ms) & (groups >= 0)
        shape = rolled.histograms
        inside = chosen[shape.rows]
        places = np.cumsum(chosen) - 1
        return Cells(
            rolled.starts[chosen],
            groups[chosen],
            rolled.counts[chosen],
            rolled.sums[chosen],
            rolled.mins[chosen],
            rolled.maxs[chosen],
            Histograms(places[shape.rows[inside]], shape.ats[inside], shape.counts[inside]),
        )

    def add_columns(self, lookup: IndexLookup, search: Search, seqs: Ints) -> None:
        """What these records of a build add, without their documents; they have a time each.

        Raises `NotIndexed` when there are values that columns do not tell apart.
        """
        rollup = self._rollup
        fields = [rollup.timestamp, *rollup.dimensions]
        fields += [m.field for m in rollup.measures if isinstance(m, Summary)]
        if not lookup.several.isdisjoint(fields):
            raise NotIndexed(rollup.name)
        if any(isinstance(measure, Parts) for measure in rollup.measures):
            raise NotIndexed(rollup.name)
        for measure in rollup.measures:
            if isinstance(measure, Summary):
                seqs = _having(lookup, measure.field, seqs)
        seqs = _having(lookup, rollup.timestamp, seqs)
        stamps = lookup.firsts(rollup.timestamp, seqs)[0].astype(np.int64)
        windows = stamps // self._interval_ms * self._interval_ms
        groups = self._combine(
            len(seqs), [_choices(lookup, search, name, seqs) for name in self._group_by]
        )
        ones = np.ones(len(seqs), np.int64)
        for measure in self._measures:
            values = np.zeros(len(seqs))
            shape = NO_HISTOGRAMS
            if isinstance(measure, Summary):
                values = lookup.firsts(measure.field, seqs)[0].astype(np.float64)
                if measure.histogram:
                    shape = Histograms(np.arange(len(seqs)), histogram.buckets(values), ones)
            chunk = Cells(windows, groups, ones, values, values, values, shape)
            self._chunks[measure.name].append(chunk)

    def _combine(self, count: int, dimensions: list[tuple[Ints, list[Any]]]) -> Ints:
        """The group of each of so many records, given what it has of each dimension and what there
        is.
        """
        codes: Ints = np.zeros(count, np.int64)
        combined: list[Dims] = [()]
        for own, choices in dimensions:
            seen, codes = np.unique(codes * len(choices) + own, return_inverse=True)
            combined = [
                (*combined[at // len(choices)], choices[at % len(choices)]) for at in seen.tolist()
            ]
        known = [self._groups.setdefault(dims, len(self._groups)) for dims in combined]
        return np.array(known, np.int64)[codes]

    def add_documents(
        self,
        search: Search,
        raws: Sequence[bytes | None],
        start_ms: int,
        stop_ms: int,
        query: Query | None = None,
    ) -> int | None:
        """What documents with a time in [start, stop) add, of those that match; returns the latest
        time of all of them, by the field that tells it.
        """
        if self._documents is None or not self._documents.is_for(search, query):
            self._documents = RollupDocuments(self._rollup, search, query)
        read = self._documents.read(raws)
        stamps = read.columns[self._rollup.timestamp].dense(len(raws)).astype(np.int64)
        rows = read.rows[(stamps[read.rows] >= start_ms) & (stamps[read.rows] < stop_ms)]
        rows = self._documents.matching(raws, rows)
        if len(rows):
            windows = stamps[rows] // self._interval_ms * self._interval_ms
            groups = self._combine(
                len(rows), [read.choices(search, name, rows) for name in self._group_by]
            )
            for measure in self._measures:
                self._chunks[measure.name].append(read.cells(measure, rows, windows, groups))
        times = read.columns[search.primary].values
        return pc.max(times).as_py() if len(times) else None

    def _group(self, dims: Dims) -> int:
        return self._groups.setdefault(tuple(dims[at] for at in self._kept), len(self._groups))

    # --- the answer ------------------------------------------------------------------------------

    @property
    def cells(self) -> int:
        """How many cells were added, the same one perhaps more than once."""
        return max(
            (sum(len(c.windows) for c in chunks) for chunks in self._chunks.values()), default=0
        )

    def compact(self) -> None:
        """Make cells that were added more than once one."""
        order = np.arange(len(self._groups))
        for name, chunks in self._chunks.items():
            if chunks:  # one alone may have a cell many times, too
                self._chunks[name] = [reduce_cells(chunks, order)]

    def report(self) -> list[dict[str, Any]]:
        """Buckets by time, groups by key."""
        keys = [dict(zip(self._group_by, dims, strict=True)) for dims in self._groups]
        by_key = sorted(range(len(keys)), key=lambda at: msgspec.json.encode(keys[at]))
        ranks = np.empty(len(keys), np.int64)
        ranks[by_key] = np.arange(len(keys))
        windows, groups = NOTHING, NOTHING
        formatted: list[list[dict[str, Any]]] = []
        for measure in self._measures:
            chunks = self._chunks[measure.name]
            if not any(len(chunk.windows) for chunk in chunks):
                return []
            cells = reduce_cells(chunks, ranks)
            windows, groups = cells.windows, cells.groups
            formatted.append(format_cells(measure, cells))
        names = [measure.name for measure in self._measures]
        told: list[dict[str, Any]] = []
        last: int | None = None
        for window, group, *values in zip(
            windows.tolist(), groups.tolist(), *formatted, strict=True
        ):
            if window != last:
                last = window
                told.append(
                    {
                        "start": format_date(window),
                        "end": format_date(window + self._interval_ms),
                        "groups": [],
                    }
                )
            told[-1]["groups"].append(
                {"key": keys[by_key[group]], "measures": dict(zip(names, values, strict=True))}
            )
        return told


def _having(lookup: IndexLookup, field: str, seqs: Ints) -> Ints:
    """Those of the records that have a value of a typed field."""
    missing = lookup.firsts(field, seqs)[1]
    return seqs if missing is None else seqs[~missing]


def _choices(lookup: IndexLookup, search: Search, name: str, seqs: Ints) -> tuple[Ints, list[Any]]:
    """For each record the place of its value of a field in a list; none is the first."""
    field = search.fields[name]
    texts: Sequence[bytes] | None = None
    if field.typed:
        values, missing = lookup.firsts(name, seqs)
    else:
        ranked = lookup.ranked(name)
        values, missing = ranked.ranks.firsts(seqs)
        texts = ranked.texts
    there = np.ones(len(seqs), bool) if missing is None else ~missing
    seen, places = np.unique(values[there], return_inverse=True)
    codes = np.zeros(len(seqs), np.int64)
    codes[there] = places + 1
    if texts is not None:
        return codes, [None, *(texts[rank // 2].decode() for rank in seen.tolist())]
    return codes, [None, *(shown(field, value) for value in seen.tolist())]
