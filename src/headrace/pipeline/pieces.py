"""Index companions of segments, read by tasks: which rows of which logs lie where."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.core import ranges
from headrace.core.ranges import EMPTY
from headrace.formats.manifest import Segment
from headrace.formats.marks import Marks
from headrace.formats.segment import Piece
from headrace.pipeline.place import Place
from headrace.pipeline.tasks import run_tasks
from headrace.storage.companions import load_index
from headrace.storage.objects import Objects

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASK_SEGMENTS = 64
"""Indexes are small: a task reads many."""


def read_index(objects: Objects, segment: Segment) -> pa.Table:
    """The index companion of a segment."""
    raw = load_index(objects, segment)
    return pq.read_table(pa.BufferReader(raw), use_threads=False)


def read_pieces(objects: Objects, segment: Segment) -> list[Piece]:
    """The pieces of a segment, sorted by log and seq."""
    columns = [column.to_pylist() for column in read_index(objects, segment).columns]
    return [Piece(*row) for row in zip(*columns, strict=True)]


def all_pieces(
    spark: SparkSession, place: Place, segments: Sequence[Segment]
) -> dict[int, list[Piece]]:
    """The pieces of many segments by their number."""
    parts = [segments[at : at + _TASK_SEGMENTS] for at in range(0, len(segments), _TASK_SEGMENTS)]
    found = run_tasks(spark, partial(_read_many, place), parts)
    return {number: pieces for part in found for number, pieces in part}


def _read_many(place: Place, segments: Sequence[Segment]) -> list[tuple[int, list[Piece]]]:
    objects = place.open()
    return [(segment.number, read_pieces(objects, segment)) for segment in segments]


def dead_seqs(piece: Piece, marks: Marks) -> int:
    """How many seqs between the first and the last of a piece are dead, with rows or without."""
    whole = piece.last - piece.first + 1
    if not ranges.contains(marks.live, piece.log):
        return whole
    gone = marks.dead.get(piece.log, EMPTY)
    return sum(last - first + 1 for first, last in ranges.overlap(gone, piece.first, piece.last))


def is_dead(pieces: Sequence[Piece], marks: Marks) -> bool:
    """Whether nothing in these pieces is live."""
    return all(dead_seqs(piece, marks) == piece.last - piece.first + 1 for piece in pieces)
