"""Several jobs of Spark in flight: while one waits for its slowest task, others use the cores."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, TypeVar

from headrace.pipeline.limits import GROUP_MIN, INTERRUPT_S, JOBS_MAX, POLL_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")


def share(parallelism: int) -> tuple[int, int]:
    """(jobs in flight, tasks of a job): twice as many tasks as run at once, in jobs that are small,
    so that a task that is slow holds up few others.
    """
    jobs = min(JOBS_MAX, 1 + ceil(parallelism / GROUP_MIN))
    return jobs, max(GROUP_MIN, ceil(2 * parallelism / jobs))


def run_jobs(
    spark: SparkSession,
    work: Callable[[T], R],
    items: Iterable[T],
    jobs: int,
    tick: Callable[[], None] = lambda: None,
) -> Iterator[R]:
    """What `work` makes of each item, as it comes; it runs in threads, so many at a time.

    `tick` is called at least every second meanwhile, in the caller's thread. Whatever it raises, or
    one of the jobs, ends all of them.
    """
    tag = f"jobs-{secrets.token_hex(4)}"

    def tagged(item: T) -> R:
        spark.addTag(tag)
        try:
            return work(item)
        finally:
            with suppress(Exception):  # Spark may be gone, and why is known by now
                spark.removeTag(tag)

    pool = ThreadPoolExecutor(jobs, thread_name_prefix=tag)
    waiting, running = iter(items), set[Future[R]]()
    try:
        while True:
            running |= {pool.submit(tagged, item) for item in islice(waiting, jobs - len(running))}
            if not running:
                return
            done, running = wait(running, POLL_S, FIRST_COMPLETED)
            tick()
            for job in done:
                yield job.result()
    finally:
        # Threads that do not end in time do so with their session.
        _interrupt(spark, tag, running)
        pool.shutdown(wait=not running)


def _interrupt(spark: SparkSession, tag: str, running: set[Future[R]]) -> None:
    """End these jobs; again and again, for each may be between two of Spark's."""
    deadline_s = time.monotonic() + INTERRUPT_S
    while running and time.monotonic() < deadline_s:
        try:
            spark.interruptTag(tag)
        except Exception:
            return  # nobody is there to be asked
        _, left = wait(running, POLL_S)
        running.intersection_update(left)
