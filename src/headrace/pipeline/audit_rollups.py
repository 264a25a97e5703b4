"""Audit of rollups: every window and combination of dimensions, counted again from the records.

Typed columns are compared with the same records, so windows and columns agree when both do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from headrace.formats.companion import Family
from headrace.pipeline.audit_rows import (
    BUILD,
    AuditView,
    Known,
    Telling,
    batches_of,
    documents_of,
    know,
    log_of,
    rows_of,
)
from headrace.pipeline.kernels.build import Documents
from headrace.pipeline.problems import ProblemKind, tally_rows
from headrace.pipeline.store_location import StoreLocation
from headrace.search import histogram
from headrace.search.config import Count, Parts, Rollup, Search, Summary
from headrace.search.families.rollup import roll_key
from headrace.search.parts import Summed, paths_of, read_parts
from headrace.search.pointers import Path
from headrace.search.values import PathReader, format_date, shown, values_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CELL = [BUILD, "k", "start", "dims"]
_COLUMNS = ["k", "start", "dims", "count", "sum", "min", "max", "hist"]
_SCHEMA = (
    f"{BUILD} int, k binary, start long, dims string, "
    "count long, sum double, min double, max double, hist binary"
)
_SUM_SHARE = 1e-9
"""How far sums of the same numbers in another order may be apart, as a part of the largest."""

Cell = tuple[bytes, int, str]


def check_rollups(spark: SparkSession, place: StoreLocation, view: AuditView) -> None:
    """Counts, sums, extremes and histograms of all windows, against the records."""
    from pyspark.sql import functions as F  # noqa: N812

    known = know(place, view)
    if not any(known.names(Family.ROLL)) and not _any_rollups(known):
        return
    rows = rows_of(spark, place, view.manifest, known)
    told = documents_of(rows, known).mapInArrow(Telling(known, _cells_of), _SCHEMA)
    expected = told.groupBy(*_CELL).agg(*_totals())
    joined = expected.alias("e").join(_stored(spark, place, known).alias("l"), _CELL, "full_outer")
    both: list[Any] = [
        *_CELL,
        *(
            F.col(f"e.{name}").alias(f"e_{name}")
            for name in ("count", "sum", "min", "max", "hists")
        ),
        *(F.col(f"l.{name}").alias(f"l_{name}") for name in ("count", "sum", "min", "max", "hist")),
    ]
    tell = partial(_tell, [build.name for build in known.builds])
    view.tally.join(tally_rows(joined.select(*both), tell, view.tally.examples_max))


def _any_rollups(known: Known) -> bool:
    return any(b'"rollups"' in bytes(plan.search) for plan in known.plans.values())


def _totals() -> list[Any]:
    from pyspark.sql import functions as F  # noqa: N812

    return [
        F.sum("count").alias("count"),
        F.sum("sum").alias("sum"),
        F.min("min").alias("min"),
        F.max("max").alias("max"),
        F.collect_list("hist").alias("hists"),
    ]


def _cells_of(
    build: int, log: int, search: Search, _: pa.RecordBatch, documents: Documents
) -> Iterator[pa.RecordBatch]:
    """What some documents add to windows."""
    cells: dict[Cell, Summed | int] = {}
    for rollup in search.rollups.values():
        for stamp, dims, found in _contributions(rollup, search, documents):
            text = msgspec.json.encode(dims).decode()
            for interval in rollup.intervals:
                start = stamp // interval.ms * interval.ms
                for measure in rollup.measures:
                    cell = roll_key(log, rollup.name, interval.ms, measure.name), start, text
                    summed = found[measure.name]
                    held = cells.get(cell)
                    if isinstance(measure, Count):
                        cells[cell] = (held if isinstance(held, int) else 0) + summed.count
                    elif isinstance(held, Summed):
                        held.add(summed)
                    else:
                        cells[cell] = msgspec.structs.replace(
                            summed, histogram=_copied(summed.histogram)
                        )
    yield _batch(build, [(*cell, *_row(summed)) for cell, summed in cells.items()])


def _contributions(
    rollup: Rollup, search: Search, documents: Documents
) -> Iterator[tuple[int, tuple[object, ...], dict[str, Summed]]]:
    """Time, dimensions and measures of each document that counts; one by one, as it is written."""
    fields = [search.fields[name] for name in (rollup.timestamp, *rollup.dimensions)]
    paths: list[Path] = [field.path() for field in fields]
    for measure in rollup.measures:
        if isinstance(measure, Summary):
            paths.append(search.fields[measure.field].path())
        elif isinstance(measure, Parts):
            paths += paths_of(measure)
    for row in zip(*PathReader(paths).read(documents), strict=True):
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
    """The measures of a document; none when one of them has no single value."""
    measured: dict[str, Summed] = {}
    for measure in rollup.measures:
        match measure:
            case Count():
                measured[measure.name] = Summed(1)
            case Summary(field=name):
                values = values_of(search.fields[name], found.pop(0))
                if len(values) != 1:
                    return None
                value = float(values[0])
                shape = {histogram.bucket(value): 1} if measure.histogram else None
                measured[measure.name] = Summed(1, value, value, value, shape)
            case Parts():
                width = len(paths_of(measure))
                parts, found = read_parts(found[:width]), found[width:]
                if parts is None:
                    return None
                measured[measure.name] = parts
    return measured


def _copied(shape: histogram.Histogram | None) -> histogram.Histogram | None:
    return None if shape is None else dict(shape)  # one document counts in several windows


def _row(summed: Summed | int) -> tuple[object, ...]:
    if isinstance(summed, int):
        return summed, None, None, None, None
    shape = None if summed.histogram is None else histogram.encode(summed.histogram)
    return summed.count, summed.sum, summed.min, summed.max, shape


_TYPES = [pa.binary(), pa.int64(), pa.string(), pa.int64(), *[pa.float64()] * 3, pa.binary()]


def _batch(build: int, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = [*zip(*rows, strict=True)] or [()] * len(_TYPES)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, _TYPES, strict=True)]
    builds = pa.array(np.full(len(rows), build, np.int32))
    return pa.RecordBatch.from_arrays([builds, *arrays], [BUILD, *_COLUMNS])


def _stored(spark: SparkSession, place: StoreLocation, known: Known) -> DataFrame:
    """The rows of rollup files, of logs whose plan is known."""
    names, planned = known.names(Family.ROLL), frozenset(known.plans)

    def fetch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at in batch.column(0).to_pylist():
                for found in batches_of(place, names, at, _COLUMNS):
                    keys = found.column("k").to_pylist()
                    own = pa.array([(at, log_of(key)) in planned for key in keys], pa.bool_())
                    chosen = found.filter(own)
                    builds = pa.array(np.full(len(chosen), at, np.int32))
                    yield pa.RecordBatch.from_arrays([builds, *chosen.columns], [BUILD, *_COLUMNS])

    return spark.range(0, len(names), 1, len(names)).mapInArrow(fetch, _SCHEMA)


# --- the comparison ---


def _tell(names: Sequence[str], row: dict[str, Any]) -> tuple[ProblemKind, str] | None:
    what = _difference(row)
    return (
        None
        if what is None
        else (ProblemKind.ROLLUP, f"{names[row[BUILD]]}, {_describe(row)}: {what}")
    )


def _difference(row: dict[str, Any]) -> str | None:
    """What is wrong with a window."""
    if row["e_count"] is None or row["l_count"] is None:
        return "not in the records" if row["e_count"] is None else "missing"
    for name in ("count", "min", "max"):
        if row[f"e_{name}"] != row[f"l_{name}"]:
            return f"the {name} is {row[f'l_{name}']}, that of the records {row[f'e_{name}']}"
    total, said = row["e_sum"], row["l_sum"]
    if total is None or said is None:
        return None if total is said else f"the sum is {said}, that of the records {total}"
    largest = max(1.0, row["e_count"] * max(abs(row["e_min"]), abs(row["e_max"])), abs(total))
    if not abs(total - said) <= _SUM_SHARE * largest:
        return f"the sum is {said}, that of the records {total}"
    shape = row["l_hist"]
    if (histogram.merged(row["e_hists"]) if row["e_hists"] else None) != shape:
        return "the histogram is not that of the records"
    return None


def _describe(row: dict[str, Any]) -> str:
    rollup, _, rest = row["k"][8:].partition(b"\0")
    interval_ms, measure = int.from_bytes(rest[:8], "big"), rest[9:].decode()
    return (
        f"log {log_of(row['k'])}, rollup {rollup.decode()}, {measure} of the {interval_ms} ms "
        f"from {format_date(row['start'])} on, dimensions {row['dims']}"
    )
