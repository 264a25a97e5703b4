"""Groups of segments side by side: each is worked on and published by itself.

A job of Spark ends with its slowest task, and a group goes through several jobs: one group after
the other would leave most of a cluster idle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, Semaphore
from typing import TYPE_CHECKING, TypeVar

from headrace.core.errors import Corrupt
from headrace.pipeline.errors import Damaged, JobFailed, Overtaken
from headrace.pipeline.failures import failure
from headrace.pipeline.limits import GROUP_TASKS, GROUPS_MAX
from headrace.pipeline.report import Progress
from headrace.pipeline.session import is_remote
from headrace.storage.objects import StoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")


def run_groups(
    spark: SparkSession,
    work: Callable[[T], R],
    groups: Sequence[T],
    progress: Progress[T],
    unit: str,
) -> tuple[list[R], list[str]]:
    """What became of the groups, in their order, and what is wrong with others, which stay as they
    are; those that were overtaken are left out.

    When nothing could be done because of something else than damage, that is raised.
    """
    if not groups:
        return [], []
    slots = min(len(groups), count_slots(spark))
    free, broken = Semaphore(slots), Event()

    def begin(group: T) -> R:
        try:
            return work(group)
        except BaseException as error:
            if not isinstance(error, (Overtaken, *_answerable())):
                broken.set()
            raise
        finally:
            free.release()

    pool = ThreadPoolExecutor(slots, "group")
    try:
        begun: list[Future[R]] = []
        chosen = iter(progress(groups, unit))
        # Whoever has no time left for another one is asked when there is room for it.
        while free.acquire() and not broken.is_set():
            try:
                group = next(chosen)
            except StopIteration:
                break
            begun.append(pool.submit(begin, group))
        outcome = _collect(begun)
    except BaseException:
        # Somebody wants us to stop, or Spark is gone: what has begun ends with it.
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    return outcome


def _collect(begun: Sequence[Future[R]]) -> tuple[list[R], list[str]]:
    done: list[R] = []
    problems: list[str] = []
    failures: list[Exception] = []
    for future in begun:
        try:
            done.append(future.result())
        except Overtaken:
            continue  # the server dropped one of them meanwhile; the next time will see
        except Damaged as damaged:
            problems += damaged.problems
        except _answerable() as error:
            failures.append(error)
            problems.append(str(failure(error)))
    if failures and not done:
        raise failures[0]
    return done, problems


def _answerable() -> tuple[type[Exception], ...]:
    """What may befall one group and not another. That Spark's JVM is gone is not among it."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return JobFailed, Corrupt, StoreError, PySparkException, Py4JJavaError


def count_slots(spark: SparkSession) -> int:
    """How many groups keep every core at work; one more than that, for what the driver does."""
    if is_remote(spark):
        from pyspark.sql import functions as F  # noqa: N812

        # There is nobody to ask how many cores there are: a range has a part for each.
        parts = spark.range(GROUPS_MAX * GROUP_TASKS).select(F.spark_partition_id())
        cores = parts.distinct().count()
    else:
        cores = spark.sparkContext.defaultParallelism
    return min(GROUPS_MAX, cores // GROUP_TASKS + 1)
