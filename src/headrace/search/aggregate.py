"""Aggregates: rollup windows from companions, from columns and from documents, merged and told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.formats.leb128 import Ints
from headrace.search import histogram
from headrace.search.companions import Companions
from headrace.search.config import Count, Measure, Parts, Rollup, Search, Summary
from headrace.search.evaluate import Matcher
from headrace.search.extraction import Column, read_columns
from headrace.search.histogram import Histograms
from headrace.search.lookup import Lookup, NotIndexed
from headrace.search.parts import Summed, paths_of, read_parts
from headrace.search.query import All, Compares, Equals, Query
from headrace.search.rolled import Dims, Numbers, Rolled, read_rolled
from headrace.search.values import Reader, format_date, shown

PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_NOTHING: Ints = np.zeros(0, np.int64)
_NO_HISTOGRAMS = Histograms(_NOTHING, _NOTHING, _NOTHING)


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


class _Cells(NamedTuple):
    """Cells of a measure: a window and a group each, perhaps the same one more than once."""

    windows: Ints
    groups: Ints
    counts: Ints
    sums: Numbers
    mins: Numbers
    maxs: Numbers
    histograms: Histograms


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
        self._chunks: dict[str, list[_Cells]] = {m.name: [] for m in self._measures}
        self._documents: _Documents | None = None

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

    def _cut(self, rolled: Rolled, start_ms: int, stop_ms: int, pinned: dict[int, Any]) -> _Cells:
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
        return _Cells(
            rolled.starts[chosen],
            groups[chosen],
            rolled.counts[chosen],
            rolled.sums[chosen],
            rolled.mins[chosen],
            rolled.maxs[chosen],
            Histograms(places[shape.rows[inside]], shape.ats[inside], shape.counts[inside]),
        )

    def add_columns(self, lookup: Lookup, search: Search, seqs: Ints) -> None:
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
            shape = _NO_HISTOGRAMS
            if isinstance(measure, Summary):
                values = lookup.firsts(measure.field, seqs)[0].astype(np.float64)
                if measure.histogram:
                    shape = Histograms(np.arange(len(seqs)), histogram.buckets(values), ones)
            chunk = _Cells(windows, groups, ones, values, values, values, shape)
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
            self._documents = _Documents(self._rollup, search, query)
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
                self._chunks[name] = [_reduce(chunks, order)]

    def report(self) -> list[dict[str, Any]]:
        """Buckets by time, groups by key."""
        keys = [dict(zip(self._group_by, dims, strict=True)) for dims in self._groups]
        by_key = sorted(range(len(keys)), key=lambda at: msgspec.json.encode(keys[at]))
        ranks = np.empty(len(keys), np.int64)
        ranks[by_key] = np.arange(len(keys))
        windows, groups = _NOTHING, _NOTHING
        formatted: list[list[dict[str, Any]]] = []
        for measure in self._measures:
            chunks = self._chunks[measure.name]
            if not any(len(chunk.windows) for chunk in chunks):
                return []
            cells = _reduce(chunks, ranks)
            windows, groups = cells.windows, cells.groups
            formatted.append(_format(measure, cells))
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


def _having(lookup: Lookup, field: str, seqs: Ints) -> Ints:
    """Those of the records that have a value of a typed field."""
    missing = lookup.firsts(field, seqs)[1]
    return seqs if missing is None else seqs[~missing]


def _choices(lookup: Lookup, search: Search, name: str, seqs: Ints) -> tuple[Ints, list[Any]]:
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


def _ready(summed: list[Summed], windows: Ints, groups: Ints) -> _Cells:
    shapes = [
        (row, at, n) for row, one in enumerate(summed) for at, n in (one.histogram or {}).items()
    ]
    rows, ats, counts = np.array(shapes, np.int64).reshape(-1, 3).T
    return _Cells(
        windows,
        groups,
        np.array([one.count for one in summed], np.int64),
        np.array([one.sum for one in summed], np.float64),
        np.array([one.min for one in summed], np.float64),
        np.array([one.max for one in summed], np.float64),
        Histograms(rows, ats, counts),
    )


def _reduce(chunks: Sequence[_Cells], ranks: Ints) -> _Cells:
    """Each cell once, by window and rank of its group."""
    windows, groups, counts, sums, mins, maxs = (
        np.concatenate([chunk[column] for chunk in chunks]) for column in range(6)
    )
    groups = ranks[groups]
    order = np.lexsort((groups, windows))
    windows, groups = windows[order], groups[order]
    fresh = np.ones(len(order), bool)
    fresh[1:] = (np.diff(windows) != 0) | (np.diff(groups) != 0)
    starts = np.flatnonzero(fresh)
    cell_of = np.empty(len(order), np.int64)
    cell_of[order] = np.cumsum(fresh) - 1
    bases = np.cumsum([0, *(len(chunk.windows) for chunk in chunks)])
    shapes = [
        chunk.histograms._replace(rows=cell_of[base + chunk.histograms.rows])
        for base, chunk in zip(bases.tolist(), chunks, strict=False)
    ]
    if not len(starts):
        return _Cells(windows, groups, counts, sums, mins, maxs, _NO_HISTOGRAMS)
    return _Cells(
        windows[starts],
        groups[starts],
        np.add.reduceat(counts[order], starts),
        np.add.reduceat(sums[order], starts),
        np.minimum.reduceat(mins[order], starts),
        np.maximum.reduceat(maxs[order], starts),
        histogram.merge_many(shapes),
    )


class _Documents:
    """Reads what documents contribute to a rollup, of those that match."""

    def __init__(self, rollup: Rollup, search: Search, query: Query | None) -> None:
        self._asked = (search, query)
        self._rollup = rollup
        self._matcher = None if query is None else Matcher(query, search)
        summed = [m.field for m in rollup.measures if isinstance(m, Summary)]
        names = dict.fromkeys((rollup.timestamp, *rollup.dimensions, *summed, search.primary))
        self._fields = [search.fields[name] for name in names]
        self._parts = [measure for measure in rollup.measures if isinstance(measure, Parts)]
        ready = [path for measure in self._parts for path in paths_of(measure)]
        self._reader = Reader([*(field.path() for field in self._fields), *ready])

    def is_for(self, search: Search, query: Query | None) -> bool:
        return self._asked[0] is search and self._asked[1] is query

    def read(self, raws: Sequence[bytes | None]) -> _Read:
        count = len(raws)
        found, extra = read_columns(self._fields, self._reader, raws)
        columns = {f.name: column for f, column in zip(self._fields, found, strict=True)}
        parts: dict[str, list[Summed | None]] = {}
        taken = 0
        for measure in self._parts:
            width = len(paths_of(measure))
            ready = zip(*extra[taken : taken + width], strict=True)
            parts[measure.name] = [read_parts([*row]) for row in ready]
            taken += width
        good = contributing(count, self._rollup, columns, parts)
        return _Read(columns, parts, np.flatnonzero(good), count)

    def matching(self, raws: Sequence[bytes | None], rows: Ints) -> Ints:
        """Those of some documents that match."""
        if self._matcher is None:
            return rows
        good = self._matcher.match([raws[row] for row in rows.tolist()])
        found: Ints = rows[np.array(good, bool)]
        return found


class _Read(NamedTuple):
    """The values of some documents."""

    columns: dict[str, Column]
    parts: dict[str, list[Summed | None]]
    rows: Ints
    """Those that count."""
    documents: int

    def choices(self, search: Search, name: str, rows: Ints) -> tuple[Ints, list[Any]]:
        """For each row the place of its value of a field in a list; none is the first."""
        column = self.columns[name]
        coded = column.values.dictionary_encode()
        codes = np.zeros(self.documents, np.int64)
        codes[column.rows] = coded.indices.to_numpy(zero_copy_only=False) + 1
        field = search.fields[name]
        return codes[rows], [None, *(shown(field, v) for v in coded.dictionary.to_pylist())]

    def cells(self, measure: Measure, rows: Ints, windows: Ints, groups: Ints) -> _Cells:
        """A cell for each row."""
        if isinstance(measure, Parts):
            ready = self.parts[measure.name]
            return _ready([one for row in rows.tolist() if (one := ready[row])], windows, groups)
        ones = np.ones(len(rows), np.int64)
        values, shape = np.zeros(len(rows)), _NO_HISTOGRAMS
        if isinstance(measure, Summary):
            values = self.columns[measure.field].dense(self.documents)[rows].astype(np.float64)
            if measure.histogram:
                shape = Histograms(np.arange(len(rows)), histogram.buckets(values), ones)
        return _Cells(windows, groups, ones, values, values, values, shape)


def contributing(
    count: int,
    rollup: Rollup,
    columns: Mapping[str, Column],
    parts: Mapping[str, Sequence[Summed | None]],
) -> NDArray[np.bool_]:
    """Which documents count: one time, at most one of each dimension, one of each measure."""
    good: NDArray[np.bool_] = columns[rollup.timestamp].counts(count) == 1
    for dimension in rollup.dimensions:
        good &= columns[dimension].counts(count) <= 1
    for measure in rollup.measures:
        if isinstance(measure, Summary):
            good &= columns[measure.field].counts(count) == 1
        elif isinstance(measure, Parts):
            good &= np.fromiter((p is not None for p in parts[measure.name]), bool, count)
    return good


def _format(measure: Measure, cells: _Cells) -> list[dict[str, Any]]:
    counts = cells.counts.tolist()
    if isinstance(measure, Count):
        return [{"count": count} for count in counts]
    shaped = measure.histogram is not None and measure.histogram is not False
    averages = np.divide(
        cells.sums, cells.counts, out=np.full(len(counts), np.nan), where=cells.counts > 0
    )
    columns: dict[str, list[Any]] = {
        "count": counts,
        "sum": _numbers(cells.sums),
        "min": _numbers(cells.mins),
        "max": _numbers(cells.maxs),
        "avg": _numbers(averages),
    }
    coarse = isinstance(measure, Parts)
    values = histogram.percentiles_of(
        cells.histograms, list(PERCENTILES.values()), cells.mins, cells.maxs, coarse=coarse
    )
    for name, line in zip(PERCENTILES, values, strict=True):
        columns[name] = _numbers(line)
    if shaped:
        columns["histogram"] = histogram.log2_of_many(cells.histograms, len(counts))
    names = list(columns)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _numbers(values: NDArray[np.float64]) -> list[int | float | None]:
    """Whole ones as whole ones; what is not there as nothing."""
    return [
        None
        if value != value
        else int(value)
        if value.is_integer() and abs(value) < 2**53
        else value
        for value in values.tolist()
    ]
