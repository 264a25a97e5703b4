"""Work on a Spark cluster: one task for each item, answers back to the driver."""

from __future__ import annotations

import pickle
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from headrace.core.batching import batches
from headrace.formats import layout
from headrace.pipeline.errors import JobFailed
from headrace.pipeline.limits import ANSWER_BYTES_MAX, TASK_BYTES, TASK_ITEMS_MAX
from headrace.pipeline.store_location import StoreLocation
from headrace.workers import freeze_gc

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

_ANSWER = "at int, answer binary, stored string"


def run_tasks(
    spark: SparkSession,
    place: StoreLocation,
    work: Callable[[T], R],
    items: Sequence[T],
    job: str | None = None,
    sizes: Sequence[int] | None = None,
) -> list[R]:
    """What `work` makes of each item, in order; a task that fails is tried again by Spark.

    There is one task for each item; where it is known how many bytes each has to read, small ones
    share a task. Items and answers travel pickled, each task has only its own; `work` does too, so
    it is a function of a module that workers can import, or a partial of one.

    What the driver collects goes through the heap of its JVM, and when there is no room for it
    Spark ends the connection as if that were all: so all of them are counted, and those that are
    large go through the object store, as files of `job`, which holds a lease: the janitor would
    remove others. Without a job answers are small.
    """
    if not items:
        return []
    task = _Task(place, work, job, ANSWER_BYTES_MAX)
    shares = share_tasks(sizes) if sizes is not None else list(range(len(items)))
    columns = {
        "at": pa.array(range(len(items)), pa.int32()),
        "item": pa.array([pickle.dumps(item) for item in items], pa.binary()),
        "task": pa.array(shares, pa.int32()),
    }
    rows = spark.createDataFrame(pa.table(columns)).repartitionById(shares[-1] + 1, "task")
    return load_answers(place, rows.mapInArrow(task, _ANSWER).collect(), len(items))


@contextmanager
def describe(spark: SparkSession, step: str) -> Iterator[None]:
    """Say what the jobs of Spark inside are for, on its pages and in its event log: after what this
    thread is at already. A Connect server has no such thing.
    """
    context = getattr(spark, "sparkContext", None)
    before = getattr(_at, "steps", ())
    _at.steps = (*before, step)
    if context is not None:
        context.setJobDescription(": ".join(_at.steps))
    try:
        yield
    finally:
        _at.steps = before
        if context is not None:
            context.setJobDescription(": ".join(before) or None)


_at = threading.local()


def share_tasks(sizes: Sequence[int]) -> list[int]:
    """The task of each item, given its bytes: neighbours that are small share one."""
    shares = batches(sizes, int, TASK_BYTES, TASK_ITEMS_MAX)
    return [task for task, share in enumerate(shares) for _ in share]


def load_answers(place: StoreLocation, rows: Sequence[Any], count: int) -> list[Any]:
    """The answers of so many tasks, in order; `JobFailed` unless each of them answered once."""
    if sorted(row.at for row in rows) != list(range(count)):
        raise JobFailed(
            f"{len({row.at for row in rows})} of {count} tasks answered: the others were lost on "
            "their way to the driver, which may need more memory (spark.driver.memory)"
        )
    objects = place.open()
    answers: list[Any] = []
    for row in sorted(rows, key=lambda row: row.at):
        raw = row.answer
        if row.stored is not None:
            try:
                raw = objects.get(row.stored)
            except FileNotFoundError:
                raise JobFailed(
                    f"{row.stored}, the answer of a task, was removed before it was read: run the "
                    "job again"
                ) from None
            objects.remove(row.stored)
        answers.append(pickle.loads(raw))
    return answers


class _Task:
    """Works on the items of a task; answers that are too large for the driver it stores."""

    def __init__(
        self,
        place: StoreLocation,
        work: Callable[[Any], Any],
        job: str | None,
        answer_bytes_max: int,
    ) -> None:
        self._place = place
        self._work = work
        self._job = job
        self._answer_bytes_max = answer_bytes_max

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc()
        for batch in batches:
            for row in batch.to_pylist():
                answer: bytes | None = pickle.dumps(self._work(pickle.loads(row["item"])))
                assert answer is not None
                stored = None
                if self._job is not None and len(answer) > self._answer_bytes_max:
                    # Tasks may run twice, and both may finish: each has a file of its own.
                    stored = layout.answer(f"{self._job}-{secrets.token_hex(4)}")
                    self._place.open().put(stored, answer)
                    answer = None
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array([row["at"]], pa.int32()),
                        pa.array([answer], pa.binary()),
                        pa.array([stored], pa.string()),
                    ],
                    ["at", "answer", "stored"],
                )


def attempt() -> int:
    """How often this task was tried before; 0 outside of tasks."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.attemptNumber() if context is not None else 0
