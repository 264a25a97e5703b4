"""Rows of segments as data frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.formats.manifest import Segment
from headrace.formats.marks import Marks
from headrace.formats.segment import SCHEMA
from headrace.pipeline.limits import TASK_BYTES
from headrace.pipeline.marks import MarksCopy, deaths
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
    """A task for each slice of a segment, or for several small ones; Spark knows nothing of the
    store. Only the footers and the columns that are asked for are read.
    """
    slices = [one for segment in segments for one in slice_segment(segment, TASK_BYTES)]
    shares = share_tasks([one.stop - one.start for one in slices])
    kinds = (pa.string(), pa.int64(), pa.int64(), pa.int64(), pa.int32())
    work = small_table(
        spark,
        [(*msgspec.structs.astuple(one), task) for one, task in zip(slices, shares, strict=True)],
        *zip((*FileSlice.__struct_fields__, "task"), kinds, strict=True),
    )
    shape = ", ".join(f"{name} {TYPES[SCHEMA.field(name).type]}" for name in columns)

    def fetch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        objects = place.open()
        for row in (row for batch in batches for row in batch.drop_columns("task").to_pylist()):
            one = FileSlice(**row)
            file = pq.ParquetFile(objects.open(one.name))
            groups = groups_in(file.metadata, one)
            for rows in file.iter_batches(_READ_ROWS, groups, columns, use_threads=False):
                numbers = pa.array(np.full(len(rows), one.number, np.int64))
                yield rows.append_column(NUMBER, numbers)

    tasks = work.repartitionById(shares[-1] + 1, "task")
    return tasks.mapInArrow(fetch, f"{shape}, {NUMBER} long")


class FileSlice(msgspec.Struct, frozen=True):
    """The row groups of a segment that begin at bytes [start, stop) of its file."""

    name: str
    number: int
    start: int
    stop: int


def slice_segment(segment: Segment, size_bytes: int) -> Iterator[FileSlice]:
    """Slices that together have every row group once, each of about this size."""
    count = max(1, segment.file_bytes // size_bytes)
    ends = [segment.file_bytes * at // count for at in range(count + 1)]
    for start, stop in pairwise(ends):
        yield FileSlice(segment.name, segment.number, start, stop)


def groups_in(file: pq.FileMetaData, one: FileSlice) -> list[int]:
    """The row groups of a slice; whoever wants all slices reads the footer for each."""
    groups = range(file.num_row_groups)
    return [at for at in groups if one.start <= _begin(file.row_group(at)) < one.stop]


def _begin(group: pq.RowGroupMetaData) -> int:
    column = group.column(0)
    begin: int = column.data_page_offset
    return min(begin, column.dictionary_page_offset or begin)


def is_live(marks: Marks | MarksCopy) -> Column:
    """A condition on rows: nobody said that they are dead."""
    from pyspark.sql import functions as F  # noqa: N812

    if isinstance(marks, MarksCopy) and marks.copy is None:
        return F.lit(True)
    # A copy is read by the tasks; other marks travel with them, for what they came from may be
    # replaced meanwhile.
    known = marks if isinstance(marks, MarksCopy) else deaths(marks)

    def alive(logs: pa.Array, seqs: pa.Array) -> pa.Array:
        held = known.deaths() if isinstance(known, MarksCopy) else known
        return pa.array(~held.dead(logs.to_numpy(), seqs.to_numpy()))

    return condition(alive, F.col("log_id"), F.col("seq"))


def is_live_log(marks: Marks) -> Column:
    """A condition on rows: their log was not deleted."""
    from pyspark.sql import functions as F  # noqa: N812

    known = deaths(Marks(marks.live))

    def alive(logs: pa.Array) -> pa.Array:
        return pa.array(~known.dropped(logs.to_numpy()))

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
