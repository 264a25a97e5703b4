"""What a job says about itself: progress while it works, a table when it is done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, TypeVar

import msgspec
from tqdm import tqdm

from headrace.pipeline.session import is_remote
from headrace.printing import table

if TYPE_CHECKING:
    from pyspark import StatusTracker
    from pyspark.sql import SparkSession

T = TypeVar("T")
Progress = Callable[[Sequence[T], str], Iterable[T]]


def show_progress(items: Sequence[T], unit: str) -> Iterable[T]:
    """The items, with a bar for whoever watches a terminal."""
    quiet = not sys.stderr.isatty()
    bar: Iterable[T] = tqdm(items, unit=f" {unit}", file=sys.stderr, disable=quiet, leave=False)
    return bar


def no_progress(items: Sequence[T], unit: str) -> Iterable[T]:
    """The items alone."""
    return items


_LOOKS_S = 0.2
"""How often a bar of tasks is drawn anew."""


@contextmanager
def show_stages(spark: SparkSession) -> Iterator[None]:
    """A bar of the tasks that Spark runs inside, for whoever watches a terminal."""
    if not sys.stderr.isatty() or is_remote(spark):
        yield
        return
    from py4j.protocol import Py4JError

    tracker = spark.sparkContext.statusTracker()
    ended = Event()
    with tqdm(unit=" task", file=sys.stderr, leave=False, total=0) as bar:
        tasks = StageTasks()

        def watch() -> None:
            while not ended.wait(_LOOKS_S):
                # A JVM that ends under us is the job's to tell about.
                with suppress(Py4JError, OSError):
                    bar.total, bar.n = tasks.look(_active(tracker))
                    bar.refresh()

        watching = Thread(target=watch, daemon=True)
        watching.start()
        try:
            yield
        finally:
            ended.set()
            watching.join()


def _active(tracker: StatusTracker) -> dict[int, tuple[int, int]]:
    """Stages at work: how many tasks they have, and how many of them are done."""
    found = {stage: tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()}
    return {
        stage: (info.numTasks, info.numCompletedTasks)
        for stage, info in found.items()
        if info is not None
    }


class StageTasks:
    """How far Spark's stages came, of those that were seen."""

    def __init__(self) -> None:
        self._tasks: dict[int, int] = {}

    def look(self, active: Mapping[int, tuple[int, int]]) -> tuple[int, int]:
        """(all tasks, those that are done); what was seen once and is not active is done."""
        self._tasks |= {stage: tasks for stage, (tasks, _) in active.items()}
        total = sum(self._tasks.values())
        return total, total - sum(tasks - done for tasks, done in active.values())


class Report(msgspec.Struct):
    """A table of what was done, a last line, and whether all is well."""

    titles: str
    rows: list[tuple[object, ...]]
    summary: str
    problems: list[str] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    """What it did not see, or could not do: nothing is wrong, but whoever reads it must know."""

    def lines(self) -> list[str]:
        shown = [*table(self.titles, self.rows), ""] if self.rows else []
        return [*self.problems, *shown, *self.notes, self.summary]
