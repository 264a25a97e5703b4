"""Rewriting: the rows of some segments, without the dead ones, in other files of the same format.

A plan says which rows go to which output; Spark brings them there in order; a task writes an output
with its companions, exactly as the server seals. What is written counts once a manifest names it.
"""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.record import Block
from headrace.formats import layout
from headrace.formats.manifest import Segment
from headrace.formats.marks import Marks
from headrace.formats.segment import SCHEMA, LogRows, block_of, build
from headrace.pipeline import crash_points
from headrace.pipeline.rows import NUMBER, is_live, read
from headrace.pipeline.store_location import StoreLocation
from headrace.storage.leases import HeldLease
from headrace.storage.objects import Objects

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OUTPUT = "output"
SPANS = pa.schema(
    [
        ("span_log", pa.int64()),
        ("span_first", pa.int64()),
        ("span_last", pa.int64()),
        (OUTPUT, pa.int32()),
    ]
)
"""Which rows of a log, by seq, go to which output."""
_WANTED = [field.name for field in SCHEMA]


class RewrittenSegment(msgspec.Struct, frozen=True):
    """An output as its task left it: a segment without a number, a place in the journal, a past."""

    output: int
    segment: Segment


def by_span(spark: SparkSession, rows: DataFrame, spans: pa.Table) -> DataFrame:
    """The rows with their outputs."""
    from pyspark.sql import functions as F  # noqa: N812

    plan = spark.createDataFrame(spans)
    where = (F.col("log_id") == F.col("span_log")) & F.col("seq").between(
        F.col("span_first"), F.col("span_last")
    )
    return rows.join(F.broadcast(plan), where).drop("span_log", "span_first", "span_last")


def by_segment(rows: DataFrame, numbers: Sequence[int]) -> DataFrame:
    """The rows of each segment to an output of its own."""
    from pyspark.sql import functions as F  # noqa: N812

    places = F.create_map(*(F.lit(v) for at, n in enumerate(numbers) for v in (n, at)))
    return rows.withColumn(OUTPUT, places[F.col(NUMBER)].cast("int"))


def rewrite(
    spark: SparkSession,
    place: StoreLocation,
    segments: Sequence[Segment],
    marks: Marks,
    lease: HeldLease,
    spans: pa.Table | None = None,
) -> list[RewrittenSegment]:
    """Write the live rows of these segments to new files: as planned, or each segment by itself."""
    rows = read(spark, place, segments).where(is_live(marks))
    if spans is None:
        numbers = [segment.number for segment in segments]
        placed, count = by_segment(rows, numbers), len(numbers)
    else:
        placed, count = by_span(spark, rows, spans), pc.max(spans.column(OUTPUT)).as_py() + 1
    answers = (
        placed.select(*_WANTED, OUTPUT)
        .repartitionById(count, OUTPUT)
        .sortWithinPartitions("log", "log_id", "seq")
        .mapInArrow(_Writer(place, lease.token), "answer binary")
        .collect()
    )
    written: list[RewrittenSegment] = [pickle.loads(row.answer) for row in answers]
    crash_points.point("rewritten")
    return sorted(written, key=lambda one: one.output)


class _Writer:
    """The task that writes one output."""

    def __init__(self, place: StoreLocation, token: str) -> None:
        self._place = place
        self._token = token

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = [pa.Table.from_batches([batch]) for batch in batches if len(batch)]
        if not tables:
            return
        output = tables[0].column(OUTPUT)[0].as_py()
        # Tasks may run twice, and both may finish: each has files of its own.
        name = f"{self._token}-{secrets.token_hex(3)}-{output}"
        rows = [table.select(_WANTED).cast(SCHEMA).combine_chunks() for table in tables]
        segment = write(self._place.open(), name, rows)
        answer = pickle.dumps(RewrittenSegment(output, segment))
        yield pa.RecordBatch.from_arrays([pa.array([answer], pa.binary())], ["answer"])


def write(objects: Objects, name: str, tables: Iterable[pa.Table]) -> Segment:
    """A segment and its companions of rows in order, stored under names of the pipeline."""
    built = build(_log_rows(tables))
    names = layout.rewritten(name)
    for path, content in built.contents(names).items():
        objects.put(path, content)
    return built.described(names)


def _log_rows(tables: Iterable[pa.Table]) -> Iterator[LogRows]:
    runs = (run for table in tables for run in _runs(table))
    for (log, name), found in groupby(runs, key=lambda run: run[:2]):
        yield LogRows(log, name, [block for _, _, block in found])


def _runs(table: pa.Table) -> Iterator[tuple[int, str, Block]]:
    """Blocks of rows of one log and one media type."""
    logs = table.column("log_id").to_numpy()
    medias = pc.fill_null(table.column("media"), "").combine_chunks().dictionary_encode()
    kinds = medias.indices.to_numpy()
    changes = (logs[1:] != logs[:-1]) | (kinds[1:] != kinds[:-1])
    starts = [0, *(np.flatnonzero(changes) + 1).tolist()]
    names, media = table.column("log"), table.column("media")
    for start, stop in zip(starts, [*starts[1:], len(table)], strict=True):
        block = block_of(table, start, stop)
        block.media = media[start].as_py()
        yield int(logs[start]), names[start].as_py(), block
