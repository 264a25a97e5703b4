"""Rewriting: the rows of some segments, without the dead ones, in other files of the same format.

Cuts say which rows go to which output; Spark brings them there in order; a task writes an output
with its companions, exactly as the server seals. What is written counts once a manifest names it.
"""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.record import Block
from headrace.formats import layout
from headrace.formats.manifest import Segment
from headrace.formats.segment import SCHEMA, LogRows, block_of, build
from headrace.pipeline import crash_points
from headrace.pipeline.cuts import Part, find_cuts, output_of
from headrace.pipeline.marks import Work
from headrace.pipeline.rows import NUMBER, is_live, read
from headrace.pipeline.store_location import StoreLocation
from headrace.pipeline.tasks import describe
from headrace.storage.objects import Objects

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OUTPUT = "output"
_WANTED = [field.name for field in SCHEMA]


class RewrittenSegment(msgspec.Struct, frozen=True):
    """An output as its task left it: a segment without a number, a place in the journal, a past."""

    output: int
    segment: Segment


def rewrite(
    spark: SparkSession,
    place: StoreLocation,
    parts: Sequence[Part],
    work: Work,
    output_bytes: int,
) -> list[list[Segment]]:
    """Write the live rows of each of these parts to new files, in order and of about this size."""
    from pyspark.sql import functions as F  # noqa: N812

    with describe(spark, "plan"):
        cuts = find_cuts(spark, place, parts, output_bytes, work.lease)
    numbers = (
        F.lit(value)
        for at, part in enumerate(parts)
        for segment in part
        for value in (segment.number, at)
    )
    own = F.create_map(*numbers)[F.col(NUMBER)] if len(parts) > 1 else F.lit(0)
    rows = read(spark, place, [segment for part in parts for segment in part])
    with describe(spark, "rewrite"):
        answers = (
            rows.where(is_live(work.marks))
            .select(*_WANTED, output_of(cuts, own).alias(OUTPUT))
            .repartitionById(len(cuts) + 1, OUTPUT)
            .sortWithinPartitions("log", "log_id", "seq")
            .mapInArrow(_Writer(place, work.lease.token), "answer binary")
            .collect()
        )
    written: list[RewrittenSegment] = [pickle.loads(row.answer) for row in answers]
    crash_points.point("rewritten")
    outputs: list[list[Segment]] = [[] for _ in parts]
    begins = [cut.part for cut in cuts]
    for one in sorted(written, key=lambda one: one.output):
        outputs[begins[one.output - 1] if one.output else 0].append(one.segment)
    return outputs


class _Writer:
    """The task that writes one output."""

    def __init__(self, place: StoreLocation, token: str) -> None:
        self._place = place
        self._token = token

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next((batch for batch in batches if len(batch)), None)
        if first is None:
            return
        output = first.column(OUTPUT)[0].as_py()
        # Tasks may run twice, and both may finish: each has files of its own.
        name = f"{self._token}-{secrets.token_hex(3)}-{output}"
        segment = write(self._place.open(), name, map(_rows, chain([first], batches)))
        answer = pickle.dumps(RewrittenSegment(output, segment))
        yield pa.RecordBatch.from_arrays([pa.array([answer], pa.binary())], ["answer"])


def _rows(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch]).select(_WANTED).cast(SCHEMA).combine_chunks()


def write(objects: Objects, name: str, tables: Iterable[pa.Table]) -> Segment:
    """A segment and its companions of rows in order, stored under names of the pipeline."""
    built = build(_log_rows(tables))
    names = layout.rewritten(name)
    for path, content in built.contents(names).items():
        objects.put(path, content)
    return built.described(names)


def _log_rows(tables: Iterable[pa.Table]) -> Iterator[LogRows]:
    """Logs whose blocks are to be taken before the next log is: no more than a table is held."""
    runs = (run for table in tables if len(table) for run in _runs(table))
    for (log, name), found in groupby(runs, key=lambda run: run[:2]):
        yield LogRows(log, name, (block for _, _, block in found))


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
