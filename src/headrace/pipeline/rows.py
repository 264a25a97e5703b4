"""Rows of segments as data frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.core.ranges import Ranges
from headrace.formats.manifest import Segment
from headrace.formats.marks import Marks
from headrace.formats.segment import SCHEMA
from headrace.pipeline.store_location import StoreLocation
from headrace.pipeline.tasks import share_tasks

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TYPES = {pa.string(): "string", pa.int64(): "long", pa.int32(): "int", pa.binary(): "binary"}
COLUMNS = ", ".join(f"{field.name} {TYPES[field.type]}" for field in SCHEMA)
NUMBER = "segment"
"""The column with the number of the segment a row is in."""
_READ_ROWS = 16_384


def read(
    spark: SparkSession,
    place: StoreLocation,
    segments: Sequence[Segment],
    columns: Sequence[str] = tuple(SCHEMA.names),
) -> DataFrame:
    """All rows of these segments, with the number of theirs; no other columns are read."""
    from pyspark.sql import functions as F  # noqa: N812

    if not segments:
        return spark.range(0).selectExpr(
            *(f"cast(null as {TYPES[SCHEMA.field(name).type]}) as {name}" for name in columns),
            f"id as {NUMBER}",
        )
    paths = [path for segment in segments if (path := place.path(segment.name)) is not None]
    if len(paths) < len(segments):
        return _read_through_objects(spark, place, segments, columns)
    names = [(segment.name.rpartition("/")[2], segment.number) for segment in segments]
    numbers = small_table(spark, names, ("file", pa.string()), (NUMBER, pa.int64()))
    rows = spark.read.schema(COLUMNS).parquet(*paths)
    named = rows.select(*columns, F.col("_metadata.file_name").alias("file"))
    return named.join(F.broadcast(numbers), "file").drop("file")


def small_table(
    spark: SparkSession, rows: Sequence[tuple[object, ...]], *columns: tuple[str, pa.DataType]
) -> DataFrame:
    """A data frame of a few rows that the planner has at hand: no task makes it."""
    values = zip(*rows, strict=True)
    arrays = {
        name: pa.array(column, kind) for (name, kind), column in zip(columns, values, strict=True)
    }
    return spark.createDataFrame(pa.table(arrays))


def _read_through_objects(
    spark: SparkSession, place: StoreLocation, segments: Sequence[Segment], columns: Sequence[str]
) -> DataFrame:
    """A task for each segment, or for several small ones; Spark knows nothing of the store."""
    shares = share_tasks([segment.file_bytes for segment in segments])
    items: list[list[tuple[str, int]]] = [[] for _ in range(shares[-1] + 1)]
    for task, segment in zip(shares, segments, strict=True):
        items[task].append((segment.name, segment.number))
    shape = ", ".join(f"{name} {TYPES[SCHEMA.field(name).type]}" for name in columns)

    def fetch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        objects = place.open()
        for batch in batches:
            for name, number in chain.from_iterable(items[at] for at in batch[0].to_pylist()):
                file = pq.ParquetFile(objects.open(name))
                for rows in file.iter_batches(_READ_ROWS, columns=columns, use_threads=False):
                    numbers = pa.array(np.full(len(rows), number, np.int64))
                    yield rows.append_column(NUMBER, numbers)

    numbers = spark.range(0, len(items), 1, len(items))
    return numbers.mapInArrow(fetch, f"{shape}, {NUMBER} long")


class Deaths(msgspec.Struct, frozen=True):
    """Marks in columns: whether many rows are dead, at once."""

    live_firsts: np.ndarray
    live_lasts: np.ndarray
    logs: np.ndarray
    firsts: np.ndarray
    lasts: np.ndarray
    starts: np.ndarray
    """Where the ranges of each log start."""

    def dead(self, logs: np.ndarray, seqs: np.ndarray) -> np.ndarray:
        """Which of these records are dead."""
        return self.covers(logs, seqs, seqs)

    def covers(self, logs: np.ndarray, firsts: np.ndarray, lasts: np.ndarray) -> np.ndarray:
        """Which of these ranges of seqs are dead from their first to their last."""
        at, known = self._before(logs, firsts)
        gone: np.ndarray = self._dropped(logs) | (known & (lasts <= self.lasts[at]))
        return gone

    def touches(self, logs: np.ndarray, firsts: np.ndarray, lasts: np.ndarray) -> np.ndarray:
        """Of which of these ranges of seqs some are dead."""
        at, known = self._before(logs, lasts)
        some: np.ndarray = self._dropped(logs) | (known & (firsts <= self.lasts[at]))
        return some

    def _dropped(self, logs: np.ndarray) -> np.ndarray:
        return ~_inside(self.live_firsts, self.live_lasts, logs, logs)

    def _before(self, logs: np.ndarray, seqs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each record the last range of its log that begins no later; and if there is one."""
        if not len(self.logs):
            return np.zeros(len(logs), np.int64), np.zeros(len(logs), bool)
        own = np.minimum(np.searchsorted(self.logs, logs), len(self.logs) - 1)
        begin = self.starts[own]
        low, high = begin, self.starts[own + 1]
        while np.any(low < high):  # a search in the ranges of each log, all at once
            middle = (low + high) // 2
            later = self.firsts[np.minimum(middle, len(self.firsts) - 1)] > seqs
            low, high = (
                np.where((low < high) & ~later, middle + 1, low),
                np.where((low < high) & later, middle, high),
            )
        return np.maximum(low - 1, 0), (self.logs[own] == logs) & (low > begin)


def _inside(firsts: np.ndarray, lasts: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Which ranges from low to high lie in one of these ranges."""
    if not len(firsts):
        return np.zeros(len(low), bool)
    at = np.searchsorted(firsts, low, side="right") - 1
    return (at >= 0) & (high <= lasts[np.maximum(at, 0)])


def deaths(marks: Marks) -> Deaths:
    logs = sorted(marks.dead)
    counts = [len(marks.dead[log]) // 2 for log in logs]
    flat = np.array([seq for log in logs for seq in marks.dead[log]], np.int64)
    return Deaths(
        *_split(marks.live),
        np.array(logs, np.int64),
        flat[::2],
        # With one more behind them: a record of which nothing is dead has a place, too.
        np.append(flat[1::2], 0),
        np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]),
    )


def _split(ranges: Ranges) -> tuple[np.ndarray, np.ndarray]:
    flat = np.array(ranges, np.int64)
    return flat[::2], flat[1::2]


def is_live(marks: Marks) -> Column:
    """A condition on rows: nobody said that they are dead."""
    from pyspark.sql import functions as F  # noqa: N812

    # They travel with the tasks: the object they came from may be replaced meanwhile.
    known = deaths(marks)

    def alive(logs: pa.Array, seqs: pa.Array) -> pa.Array:
        return pa.array(~known.dead(logs.to_numpy(), seqs.to_numpy()))

    return condition(alive, F.col("log_id"), F.col("seq"))


def is_live_log(marks: Marks) -> Column:
    """A condition on rows: their log was not deleted."""
    from pyspark.sql import functions as F  # noqa: N812

    firsts, lasts = _split(marks.live)

    def alive(logs: pa.Array) -> pa.Array:
        ids = logs.to_numpy()
        return pa.array(_inside(firsts, lasts, ids, ids))

    return condition(alive, F.col("log_id"))


def is_within(column: str, low: int | None, high: int | None) -> Column:
    """A condition on rows: a column is between two bounds, which are in it, where there are any."""
    from pyspark.sql import functions as F  # noqa: N812

    held = F.col(column)
    above = F.lit(True) if low is None else held >= low
    return above if high is None else above & (held <= high)


def condition(test: Callable[..., pa.Array], *columns: Column) -> Column:
    """What a function of arrays says of each row."""
    from pyspark.sql.pandas.functions import arrow_udf

    said: Column = arrow_udf(test, "boolean")(*columns)  # type: ignore[call-overload]
    return said
