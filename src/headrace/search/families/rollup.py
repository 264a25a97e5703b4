"""Rollups: measures of the records of each window and combination of dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.companion import SCHEMAS, Family, log_key
from headrace.formats.leb128 import Ints
from headrace.formats.postings import cut
from headrace.search import histogram
from headrace.search.cells import Numbers
from headrace.search.companions import Companions
from headrace.search.config import Count, Parts, Rollup, Search, Summary
from headrace.search.contributions import contributing
from headrace.search.extraction import Column
from headrace.search.families.groups import FamilyRows, PlanRecords, ranks
from headrace.search.histogram import Histogram, Histograms, decode_many
from headrace.search.parts import paths_of, read_parts
from headrace.search.pointers import Path
from headrace.search.values import shown

Dims = tuple[Any, ...]

_COLUMNS = ("k", "start", "dims", "count", "sum", "min", "max", "hist")
_DIMS_BYTES = 200
"""What a combination of dimensions takes as objects."""


def roll_key(log: int, rollup: str, interval_ms: int, measure: str) -> bytes:
    """The windows of a measure."""
    return log_key(log) + b"\0".join(
        (rollup.encode(), interval_ms.to_bytes(8, "big"), measure.encode())
    )


class _Values(NamedTuple):
    """A measure of each record that counts."""

    counts: Ints
    sums: Numbers
    mins: Numbers
    maxs: Numbers
    histograms: list[Histogram] | None


class _Cells(NamedTuple):
    """Groups of records with the same log, window and dimensions."""

    order: Ints
    starts: Ints
    logs: Ints
    windows: Ints
    dims: pa.Array


def extra_paths(search: Search) -> list[Path]:
    """What rollups need of documents beside the values of fields."""
    return [
        path
        for rollup in search.rollups.values()
        for measure in rollup.measures
        if isinstance(measure, Parts)
        for path in paths_of(measure)
    ]


def roll_pieces(
    records: PlanRecords, search: Search, columns: dict[str, Column], extra: list[list[Any]]
) -> Iterator[FamilyRows]:
    """The rows of all rollups, by ascending key within each log."""
    taken = 0
    found: dict[str, dict[str, list[Any]]] = {}
    for rollup in search.rollups.values():
        for measure in rollup.measures:
            if isinstance(measure, Parts):
                count = len(paths_of(measure))
                rows = zip(*extra[taken : taken + count], strict=True)
                found.setdefault(rollup.name, {})[measure.name] = [read_parts([*r]) for r in rows]
                taken += count
    for name in sorted(search.rollups):
        yield from _rollup(records, search, search.rollups[name], columns, found.get(name, {}))


def _rollup(
    records: PlanRecords,
    search: Search,
    rollup: Rollup,
    columns: dict[str, Column],
    parts: dict[str, list[Any]],
) -> Iterator[FamilyRows]:
    rows = np.flatnonzero(contributing(len(records.seqs), rollup, columns, parts))
    if not len(rows):
        return
    stamps = columns[rollup.timestamp].dense(len(records.seqs))[rows].astype(np.int64)
    dims, names = _dimensions(search, rollup, columns, len(records.seqs))
    values = {
        measure.name: _measured(measure, rows, columns, parts, len(records.seqs))
        for measure in rollup.measures
    }
    for interval in sorted(rollup.intervals, key=lambda interval: interval.ms):
        cells = _cells(records.logs[rows], stamps // interval.ms, dims[rows], names)
        for measure in rollup.measures:
            keys = pa.array(
                [roll_key(int(log), rollup.name, interval.ms, measure.name) for log in records.ids],
                pa.binary(),
            )
            table = pa.table(
                {
                    "k": keys.take(pa.array(cells.logs)),
                    "start": cells.windows * interval.ms,
                    "dims": cells.dims,
                    **_reduced(values[measure.name], cells),
                },
                schema=SCHEMAS[Family.ROLL],
            )
            yield FamilyRows(records.ids[cells.logs], table)


def _dimensions(
    search: Search, rollup: Rollup, columns: dict[str, Column], count: int
) -> tuple[Ints, list[str]]:
    """For each record a number for its dimensions, and what the numbers stand for; both sorted."""
    codes = np.zeros(count, np.int64)
    combined: list[tuple[object, ...]] = [()]
    for dimension in rollup.dimensions:
        coded = columns[dimension].values.dictionary_encode()
        own = np.zeros(count, np.int64)
        own[columns[dimension].rows] = coded.indices.to_numpy(zero_copy_only=False) + 1
        field = search.fields[dimension]
        choices = [None, *(shown(field, value) for value in coded.dictionary.to_pylist())]
        seen, codes = np.unique(codes * len(choices) + own, return_inverse=True)
        combined = [
            (*combined[at // len(choices)], choices[at % len(choices)]) for at in seen.tolist()
        ]
    texts = [msgspec.json.encode(dims).decode() for dims in combined]
    order = sorted(range(len(texts)), key=lambda at: texts[at].encode())
    ranks = np.empty(len(texts), np.int64)
    ranks[order] = np.arange(len(texts))
    return ranks[codes], [texts[at] for at in order]


def _cells(logs: Ints, windows: Ints, dims: Ints, names: list[str]) -> _Cells:
    order = np.lexsort((dims, windows, logs))
    logs, windows, dims = logs[order], windows[order], dims[order]
    changes = np.ones(len(order), bool)
    changes[1:] = (np.diff(logs) != 0) | (np.diff(windows) != 0) | (np.diff(dims) != 0)
    starts = np.flatnonzero(changes)
    texts = pa.array(names, pa.string()).take(pa.array(dims[starts]))
    return _Cells(order, starts, logs[starts], windows[starts], texts)


def _measured(
    measure: Count | Summary | Parts,
    rows: Ints,
    columns: dict[str, Column],
    parts: dict[str, list[Any]],
    count: int,
) -> _Values | None:
    if isinstance(measure, Count):
        return None
    if isinstance(measure, Summary):
        values = columns[measure.field].dense(count)[rows].astype(np.float64)
        ones = np.ones(len(rows), np.int64)
        wanted: list[Histogram] | None = [] if measure.histogram else None
        return _Values(ones, values, values, values, wanted)
    found = [parts[measure.name][row] for row in rows.tolist()]
    return _Values(
        np.array([one.count for one in found], np.int64),
        np.array([one.sum for one in found], np.float64),
        np.array([one.min for one in found], np.float64),
        np.array([one.max for one in found], np.float64),
        [one.histogram for one in found] if measure.histogram is not None else None,
    )


def _reduced(values: _Values | None, cells: _Cells) -> dict[str, Any]:
    """The columns of a measure, one row for each cell."""
    rows = len(cells.starts)
    if values is None:
        counts = np.diff(cells.starts, append=len(cells.order))
        empty = pa.nulls(rows, pa.float64())
        return {"count": counts, "sum": empty, "min": empty, "max": empty, "hist": _no_bytes(rows)}
    return {
        "count": np.add.reduceat(values.counts[cells.order], cells.starts),
        "sum": np.add.reduceat(values.sums[cells.order], cells.starts),
        "min": np.minimum.reduceat(values.mins[cells.order], cells.starts),
        "max": np.maximum.reduceat(values.maxs[cells.order], cells.starts),
        "hist": _histograms(values, cells),
    }


def _histograms(values: _Values, cells: _Cells) -> pa.Array:
    if values.histograms is None:
        return _no_bytes(len(cells.starts))
    if not values.histograms:
        return _counted(histogram.buckets(values.sums[cells.order]), cells.starts)
    stops = np.append(cells.starts[1:], len(cells.order)).tolist()
    raws = []
    for start, stop in zip(cells.starts.tolist(), stops, strict=True):
        total: Histogram = {}
        for at in cells.order[start:stop].tolist():
            histogram.merge(total, values.histograms[at])
        raws.append(histogram.encode(total))
    return pa.array(raws, pa.binary())


def _counted(ats: Ints, starts: Ints) -> pa.Array:
    """Histograms of the buckets of each cell."""
    low = int(ats.min())
    width = int(ats.max()) - low + 1
    cells = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(ats)))
    seen, counts = np.unique(cells * width + (ats - low), return_counts=True)
    firsts = np.searchsorted(seen, np.arange(len(starts)) * width)
    octets, cuts = histogram.encode_many(seen % width + low, counts, firsts)
    return cut(octets, cuts)


def _no_bytes(rows: int) -> pa.Array:
    return pa.nulls(rows, pa.binary())


def merge_rollups(table: pa.Table) -> pa.Table:
    """Each window and combination of dimensions once."""
    starts_ms = table.column("start").to_numpy()
    keys = ranks(table.column("k").combine_chunks())
    dims = ranks(table.column("dims").combine_chunks())
    order = np.lexsort((dims, starts_ms, keys))
    table = table.take(pa.array(order)).combine_chunks()
    again = np.zeros(len(order), bool)
    for numbers in (keys[order], starts_ms[order], dims[order]):
        again[1:] |= np.diff(numbers) != 0
    again[1:] = ~again[1:]
    starts = np.flatnonzero(~again)
    firsts = table.take(pa.array(starts))
    plain = pc.is_null(firsts.column("sum")).to_numpy(zero_copy_only=False)

    def reduced(name: str, how: np.ufunc) -> pa.Array:
        numbers = table.column(name).fill_null(0).to_numpy()
        return pa.array(how.reduceat(numbers, starts), mask=plain)

    columns = {
        "k": firsts.column("k"),
        "start": firsts.column("start"),
        "dims": firsts.column("dims"),
        "count": np.add.reduceat(table.column("count").to_numpy(), starts),
        "sum": reduced("sum", np.add),
        "min": reduced("min", np.minimum),
        "max": reduced("max", np.maximum),
        "hist": _merge_histograms(table.column("hist").combine_chunks(), starts),
    }
    return pa.table(columns, schema=SCHEMAS[Family.ROLL])


def _merge_histograms(raws: pa.Array, starts: Ints) -> pa.Array:
    found = raws.take(pa.array(starts)).to_pylist()
    stops = np.append(starts[1:], len(raws))
    for at in np.flatnonzero(stops - starts > 1).tolist():
        if found[at] is not None:
            rows = raws.slice(starts[at], stops[at] - starts[at]).to_pylist()
            found[at] = histogram.merged(rows)
    return pa.array(found, pa.binary())


class Rolled(NamedTuple):
    """The windows of one measure, one row for each window and combination of dimensions."""

    starts: Ints
    codes: Ints
    """Which of `dims` a row has."""
    dims: list[Dims]
    counts: Ints
    sums: Numbers
    mins: Numbers
    maxs: Numbers
    histograms: Histograms

    @property
    def nbytes(self) -> int:
        arrays = (self.starts, self.codes, self.counts, self.sums, self.mins, self.maxs)
        held = sum(array.nbytes for array in arrays) + self.histograms.nbytes
        return held + _DIMS_BYTES * len(self.dims)


def read_rolled(
    companions: Companions, log: int, rollup: str, interval_ms: int, measure: str
) -> Rolled | None:
    """What a build has of a measure; None when it has nothing."""
    key = roll_key(log, rollup, interval_ms, measure)
    held: Rolled | None = companions.cache.get((Family.ROLL, key))
    if held is not None:
        companions.used(Family.ROLL)
        return held
    file = companions.file(Family.ROLL)
    tables = list(file.rows(key, key + b"\0", _COLUMNS)) if file is not None else []
    if not tables:
        return None
    found = _rolled(pa.concat_tables(tables).combine_chunks())
    companions.cache.put((Family.ROLL, key), found, found.nbytes)
    return found


def _rolled(table: pa.Table) -> Rolled:
    dims = table.column("dims").chunk(0).dictionary_encode()
    return Rolled(
        table.column("start").to_numpy(),
        dims.indices.to_numpy().astype(np.int64),
        [tuple(msgspec.json.decode(text)) for text in dims.dictionary.to_pylist()],
        table.column("count").to_numpy(),
        table.column("sum").to_numpy(),
        table.column("min").to_numpy(),
        table.column("max").to_numpy(),
        decode_many(table.column("hist").chunk(0)),
    )
