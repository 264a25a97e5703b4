"""Cells of aggregates: what a measure came to in one window and group, merged and told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.formats.leb128 import Ints
from headrace.search import histogram
from headrace.search.config import Count, Measure, Parts
from headrace.search.histogram import Histograms
from headrace.search.parts import Summed

Numbers = NDArray[np.float64]

PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
NOTHING: Ints = np.zeros(0, np.int64)
NO_HISTOGRAMS = Histograms(NOTHING, NOTHING, NOTHING)


class Cells(NamedTuple):
    """Cells of a measure: a window and a group each, perhaps the same one more than once."""

    windows: Ints
    groups: Ints
    counts: Ints
    sums: Numbers
    mins: Numbers
    maxs: Numbers
    histograms: Histograms


def ready_cells(summed: list[Summed], windows: Ints, groups: Ints) -> Cells:
    shapes = [
        (row, at, n) for row, one in enumerate(summed) for at, n in (one.histogram or {}).items()
    ]
    rows, ats, counts = np.array(shapes, np.int64).reshape(-1, 3).T
    return Cells(
        windows,
        groups,
        np.array([one.count for one in summed], np.int64),
        np.array([one.sum for one in summed], np.float64),
        np.array([one.min for one in summed], np.float64),
        np.array([one.max for one in summed], np.float64),
        Histograms(rows, ats, counts),
    )


def reduce_cells(chunks: Sequence[Cells], ranks: Ints) -> Cells:
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
        return Cells(windows, groups, counts, sums, mins, maxs, NO_HISTOGRAMS)
    return Cells(
        windows[starts],
        groups[starts],
        np.add.reduceat(counts[order], starts),
        np.add.reduceat(sums[order], starts),
        np.minimum.reduceat(mins[order], starts),
        np.maximum.reduceat(maxs[order], starts),
        histogram.merge_many(shapes),
    )


def format_cells(measure: Measure, cells: Cells) -> list[dict[str, Any]]:
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
