"""Index companions of segments, read by tasks: which rows of which logs lie where.

A segment may hold hundreds of thousands of logs. So what is asked of all segments is answered where
their indexes are read, and the driver only hears of segments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.core.errors import Corrupt
from headrace.core.name_patterns import NamePatterns
from headrace.formats.manifest import Segment
from headrace.pipeline.marks import Deaths, MarksCopy
from headrace.pipeline.store_location import StoreLocation
from headrace.pipeline.tasks import run_tasks
from headrace.storage import manifests
from headrace.storage.companions import load_index
from headrace.storage.objects import Objects, StoreError
from headrace.storage.replaced_objects import Vanished
from headrace.storage.segments import UNREADABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PIECE_BYTES = 16
"""What a row of a segment comes to in its index at most: mostly less, for pieces have many."""
SPANNED = ("log_id", "first_seq", "last_seq")
"""Where the rows of a piece lie in their log."""


def read_index(objects: Objects, segment: Segment) -> pa.Table:
    """The index companion of a segment."""
    raw = load_index(objects, segment)
    return pq.read_table(pa.BufferReader(raw), use_threads=False)


def index_bytes(segment: Segment) -> int:
    """About what there is to read of the index of a segment."""
    return segment.rows * _PIECE_BYTES


Chosen = tuple[list[Segment], list[str]]
"""Segments, and what is wrong with those of which nothing can be said."""
Test = Callable[[StoreLocation, Segment], bool]


def dead_segments(
    spark: SparkSession, place: StoreLocation, segments: Sequence[Segment], marks: MarksCopy
) -> Chosen:
    """The segments in which nothing is live."""
    return _chosen(spark, place, segments, partial(_is_dead, marks))


def touched_segments(
    spark: SparkSession,
    place: StoreLocation,
    segments: Sequence[Segment],
    marks: MarksCopy,
    logs: NamePatterns,
) -> Chosen:
    """The segments with dead rows, of these logs if any are named.

    One whose rows cannot be read is among them: who rewrites it finds out what is wrong.
    """
    return _chosen(spark, place, segments, partial(_is_touched, marks, logs))


def _chosen(
    spark: SparkSession, place: StoreLocation, segments: Sequence[Segment], test: Test
) -> Chosen:
    sizes = [index_bytes(segment) for segment in segments]
    answers = run_tasks(spark, place, partial(_choose, place, test), segments, sizes=sizes)
    said = {segment.number: answer for segment, answer in zip(segments, answers, strict=True)}
    problems = {number: answer for number, answer in said.items() if isinstance(answer, str)}
    chosen = [segment for segment in segments if said[segment.number] is True]
    return chosen, [*still_named(place, problems).values()]


def still_named(place: StoreLocation, problems: dict[int, str]) -> dict[int, str]:
    """The problems of segments, without those that left the manifest meanwhile."""
    if not problems:
        return {}
    there = manifests.load(place.open()).numbers
    return {number: problem for number, problem in problems.items() if number in there}


def _choose(place: StoreLocation, test: Test, segment: Segment) -> bool | str:
    """The task: what the test says; or what is wrong with the index."""
    try:
        return test(place, segment)
    except (Corrupt, Vanished) as damage:
        return str(damage)


def _is_dead(marks: MarksCopy, place: StoreLocation, segment: Segment) -> bool:
    index = read_index(place.open(), segment)
    return bool(marks.deaths().covers(*_spans(index)).all())


def _spans(index: pa.Table) -> tuple[np.ndarray, ...]:
    return tuple(index.column(name).to_numpy() for name in SPANNED)


def _is_touched(
    marks: MarksCopy, logs: NamePatterns, place: StoreLocation, segment: Segment
) -> bool:
    objects, known = place.open(), marks.deaths()
    index = read_index(objects, segment)
    touched = known.touches(*_spans(index))
    if not touched.any():
        return False
    if not logs and known.covers(*_spans(index)).any():
        return True
    # Of what is dead perhaps nothing was ever here: a range has holes.
    groups = np.unique(index.column("row_group").to_numpy()[touched]).tolist()
    try:
        file = pq.ParquetFile(objects.open(segment.name))
        return any(_holds_dead(file, group, known, logs) for group in groups)
    except FileNotFoundError:
        return True
    except StoreError:
        raise
    except UNREADABLE:
        return True


def _holds_dead(file: pq.ParquetFile, group: int, known: Deaths, logs: NamePatterns) -> bool:
    columns = ["log_id", "seq", *(["log"] if logs else [])]
    rows = file.read_row_group(group, columns, use_threads=False)
    dead = known.dead(rows.column("log_id").to_numpy(), rows.column("seq").to_numpy())
    if not logs or not dead.any():
        return bool(dead.any())
    return any(map(logs.takes, rows.filter(pa.array(dead)).column("log").unique().to_pylist()))
