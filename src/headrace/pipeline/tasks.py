"""Work on a Spark cluster: one task for each item, answers back to the driver."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from headrace.workers import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")


def run_tasks(spark: SparkSession, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """What `work` makes of each item, in order; a task that fails is tried again by Spark.

    Items and answers travel pickled; `work` does too, so it is a function of a module that workers
    can import, or a partial of one.
    """
    if not items:
        return []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        settle()
        for batch in batches:
            for at in batch.column(0).to_pylist():
                answer = pickle.dumps(work(items[at]))
                columns = [pa.array([at], pa.int64()), pa.array([answer], pa.binary())]
                yield pa.RecordBatch.from_arrays(columns, ["at", "answer"])

    # A range has one number in each of its partitions: exactly one task for each item.
    numbers = spark.range(0, len(items), 1, len(items))
    rows = numbers.mapInArrow(run, "at long, answer binary").collect()
    return [pickle.loads(row.answer) for row in sorted(rows, key=lambda row: row.at)]


def attempt() -> int:
    """How often this task was tried before; 0 outside of tasks."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.attemptNumber() if context is not None else 0
