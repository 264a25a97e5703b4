"""Index companions of segments, read by tasks: which rows of which logs lie where.

A segment may hold hundreds of thousands of logs. So what is asked of all segments is answered where
their indexes are read, and only what a plan is made of comes to the driver, in columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.core.errors import Corrupt
from headrace.formats.manifest import Segment
from headrace.formats.marks import Marks
from headrace.pipeline.errors import Damaged
from headrace.pipeline.rows import Deaths, deaths
from headrace.pipeline.store_location import StoreLocation
from headrace.pipeline.tasks import run_tasks
from headrace.storage import manifests
from headrace.storage.companions import load_index
from headrace.storage.objects import Objects
from headrace.storage.replaced_objects import Vanished

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PIECE_BYTES = 16
"""What a row of a segment comes to in its index at most: mostly less, for pieces have many."""
SPANNED = ("log_id", "first_seq", "last_seq", "record_bytes")
"""What a plan needs to know of pieces."""


def read_index(objects: Objects, segment: Segment) -> pa.Table:
    """The index companion of a segment."""
    raw = load_index(objects, segment)
    return pq.read_table(pa.BufferReader(raw), use_threads=False)


Chosen = tuple[list[Segment], list[str]]
"""Segments, and what is wrong with those of which nothing can be said."""


def dead_segments(
    spark: SparkSession, place: StoreLocation, segments: Sequence[Segment], marks: Marks
) -> Chosen:
    """The segments in which nothing is live."""
    return _chosen(spark, place, segments, partial(_is_dead, deaths(marks)))


def touched_segments(
    spark: SparkSession, place: StoreLocation, segments: Sequence[Segment], marks: Marks
) -> Chosen:
    """The segments in which something may be dead: some of the seqs they span are."""
    return _chosen(spark, place, segments, partial(_is_touched, deaths(marks)))


def _chosen(
    spark: SparkSession,
    place: StoreLocation,
    segments: Sequence[Segment],
    test: Callable[[pa.Table], bool],
) -> Chosen:
    sizes = [segment.rows * _PIECE_BYTES for segment in segments]
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


def _choose(place: StoreLocation, test: Callable[[pa.Table], bool], segment: Segment) -> bool | str:
    """What the test says; or what is wrong with the index."""
    try:
        return test(read_index(place.open(), segment))
    except (Corrupt, Vanished) as damage:
        return str(damage)


def _is_dead(known: Deaths, index: pa.Table) -> bool:
    logs, firsts, lasts = (index.column(name).to_numpy() for name in SPANNED[:3])
    return bool(known.covers(logs, firsts, lasts).all())


def _is_touched(known: Deaths, index: pa.Table) -> bool:
    logs, firsts, lasts = (index.column(name).to_numpy() for name in SPANNED[:3])
    return bool(known.touches(logs, firsts, lasts).any())


def read_spans(
    spark: SparkSession, place: StoreLocation, segments: Sequence[Segment], job: str
) -> pa.Table:
    """The pieces of these segments: log, first and last seq, and bytes of records."""
    sizes = [segment.rows * _PIECE_BYTES for segment in segments]
    found = run_tasks(spark, place, partial(_read_spans, place), segments, job, sizes)
    damages = [answer for answer in found if isinstance(answer, str)]
    if damages:
        raise Damaged(damages)
    return pa.concat_tables(found)


def _read_spans(place: StoreLocation, segment: Segment) -> pa.Table | str:
    try:
        return read_index(place.open(), segment).select(SPANNED).combine_chunks()
    except (Corrupt, Vanished) as damage:
        return str(damage)
