"""What documents contribute to a rollup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.formats.leb128 import Ints
from headrace.search import histogram
from headrace.search.cells import NO_HISTOGRAMS, Cells, ready_cells
from headrace.search.config import Measure, Parts, Rollup, Search, Summary
from headrace.search.evaluate import Matcher
from headrace.search.extraction import Column, read_columns
from headrace.search.histogram import Histograms
from headrace.search.parts import Summed, paths_of, read_parts
from headrace.search.query import Query
from headrace.search.values import PathReader, shown


class RollupDocuments:
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
        self._reader = PathReader([*(field.path() for field in self._fields), *ready])

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

    def cells(self, measure: Measure, rows: Ints, windows: Ints, groups: Ints) -> Cells:
        """A cell for each row."""
        if isinstance(measure, Parts):
            ready = self.parts[measure.name]
            return ready_cells(
                [one for row in rows.tolist() if (one := ready[row])], windows, groups
            )
        ones = np.ones(len(rows), np.int64)
        values, shape = np.zeros(len(rows)), NO_HISTOGRAMS
        if isinstance(measure, Summary):
            values = self.columns[measure.field].dense(self.documents)[rows].astype(np.float64)
            if measure.histogram:
                shape = Histograms(np.arange(len(rows)), histogram.buckets(values), ones)
        return Cells(windows, groups, ones, values, values, values, shape)


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
