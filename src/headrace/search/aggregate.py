"""Aggregates: rollup windows from companions and from documents, merged and reported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

import msgspec
import pyarrow as pa

from headrace.formats.companion import Family, roll_key
from headrace.search import histogram
from headrace.search.companions import Companions
from headrace.search.config import Count, Measure, Parts, Rollup, Search, Summary
from headrace.search.evaluate import Matcher
from headrace.search.parts import Summed, paths_of, read_parts
from headrace.search.pointers import Path
from headrace.search.query import All, Equals, Query
from headrace.search.values import Reader, format_date, shown, values_of

Dims = tuple[Any, ...]
PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

_ROLL = ("k", "start", "dims", "count", "sum", "min", "max", "hist")


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
        self._cells: dict[tuple[int, Dims], dict[str, Summed]] = {}

    def add_windows(
        self,
        companions: Companions,
        log: int,
        start_ms: int,
        stop_ms: int,
        fixed: dict[str, Any] | None = None,
    ) -> None:
        """What a build has of the windows that start in [start, stop)."""
        file = companions.file(Family.ROLL)
        if file is None:
            return
        pinned = {self._rollup.dimensions.index(name): v for name, v in (fixed or {}).items()}
        for measure in self._measures:
            key = roll_key(log, self._rollup.name, self._interval_ms, measure.name)
            for table in file.rows(key, key + b"\0", _ROLL):
                starts = table.column("start").to_numpy()
                within = pa.array((starts >= start_ms) & (starts < stop_ms))
                columns = [column.to_pylist() for column in table.filter(within).columns[1:]]
                for start, dims, *row in zip(*columns, strict=True):
                    values = tuple(msgspec.json.decode(dims))
                    if all(values[at] == value for at, value in pinned.items()):
                        self._add(start, values, measure, _stored(*row))

    def add_documents(
        self,
        search: Search,
        raws: Sequence[bytes | None],
        start_ms: int,
        stop_ms: int,
        query: Query | None = None,
    ) -> None:
        """What documents with a time in [start, stop) add, of those that match."""
        if query is not None:
            matched = Matcher(query, search).match(raws)
            raws = [raw for raw, good in zip(raws, matched, strict=True) if good]
        for stamp, dims, found in contributions(self._rollup, search, raws):
            if start_ms <= stamp < stop_ms:
                window = stamp // self._interval_ms * self._interval_ms
                for measure in self._measures:
                    self._add(window, dims, measure, found[measure.name])

    def _add(self, window: int, dims: Dims, measure: Measure, summed: Summed) -> None:
        key = window, tuple(dims[at] for at in self._kept)
        cell = self._cells.setdefault(key, {})
        if measure.name in cell:
            cell[measure.name].add(summed)
        else:
            cell[measure.name] = summed

    def report(self) -> list[dict[str, Any]]:
        """Buckets by time, groups by key."""
        by_window: dict[int, list[tuple[Dims, dict[str, Summed]]]] = {}
        for (window, dims), cell in self._cells.items():
            by_window.setdefault(window, []).append((dims, cell))
        return [
            {
                "start": format_date(window),
                "end": format_date(window + self._interval_ms),
                "groups": self._groups(by_window[window]),
            }
            for window in sorted(by_window)
        ]

    def _groups(self, cells: list[tuple[Dims, dict[str, Summed]]]) -> list[dict[str, Any]]:
        groups = [
            {
                "key": dict(zip(self._group_by, dims, strict=True)),
                "measures": {m.name: _format(m, cell[m.name]) for m in self._measures},
            }
            for dims, cell in cells
        ]
        return sorted(groups, key=lambda group: msgspec.json.encode(group["key"]))


def contributions(
    rollup: Rollup, search: Search, raws: Sequence[bytes | None]
) -> Iterator[tuple[int, Dims, dict[str, Summed]]]:
    """Time, dimensions and measures of each document that counts in a rollup."""
    fields = [search.fields[name] for name in (rollup.timestamp, *rollup.dimensions)]
    paths: list[Path] = [field.path() for field in fields]
    for measure in rollup.measures:
        if isinstance(measure, Summary):
            paths.append(search.fields[measure.field].path())
        elif isinstance(measure, Parts):
            paths += paths_of(measure)
    for row in zip(*Reader(paths).read(raws), strict=True):
        values = [values_of(field, found) for field, found in zip(fields, row, strict=False)]
        if len(values[0]) != 1 or any(len(value) > 1 for value in values[1:]):
            continue
        measured = _measured(rollup, search, list(row[len(fields) :]))
        if measured is not None:
            dims = tuple(
                shown(field, value[0]) if value else None
                for field, value in zip(fields[1:], values[1:], strict=True)
            )
            yield values[0][0], dims, measured


def _measured(rollup: Rollup, search: Search, found: list[object]) -> dict[str, Summed] | None:
    measured: dict[str, Summed] = {}
    at = 0
    for measure in rollup.measures:
        match measure:
            case Count():
                measured[measure.name] = Summed(1)
            case Summary(field=name):
                values = values_of(search.fields[name], found[at])
                at += 1
                if len(values) != 1:
                    return None
                value = float(values[0])
                shape = {histogram.bucket(value): 1} if measure.histogram else None
                measured[measure.name] = Summed(1, value, value, value, shape)
            case Parts():
                count = len(paths_of(measure))
                parts = read_parts(found[at : at + count])
                at += count
                if parts is None:
                    return None
                measured[measure.name] = parts
    return measured


def _stored(
    count: int, total: float | None, low: float | None, high: float | None, hist: bytes | None
) -> Summed:
    if total is None or low is None or high is None:
        return Summed(count)
    return Summed(count, total, low, high, None if hist is None else histogram.decode(hist))


def _format(measure: Measure, summed: Summed) -> dict[str, Any]:
    if isinstance(measure, Count):
        return {"count": summed.count}
    found: dict[str, Any] = {
        "count": summed.count,
        "sum": _number(summed.sum),
        "min": _number(summed.min),
        "max": _number(summed.max),
        "avg": _number(summed.sum / summed.count) if summed.count else None,
    }
    shape, coarse = summed.histogram, isinstance(measure, Parts)
    values: list[float] = []
    if shape is not None:
        parts = list(PERCENTILES.values())
        values = histogram.percentiles(shape, parts, summed.min, summed.max, coarse=coarse)
    for name, value in zip_longest(PERCENTILES, values):
        found[name] = None if value is None else _number(value)
    if shape is not None:
        found["histogram"] = {str(at): n for at, n in histogram.log2_of(shape).items()}
    return found


def _number(value: float) -> int | float:
    return int(value) if value.is_integer() and abs(value) < 2**53 else value
