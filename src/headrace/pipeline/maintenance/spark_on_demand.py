"""A session of Spark for whoever needs one now and then."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from headrace.pipeline.errors import JobFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkOnDemand:
    """Started by the first who asks; started again after it was ended."""

    def __init__(self, start: Callable[[ExitStack], SparkSession]) -> None:
        self._start = start
        self._stack = ExitStack()
        self._spark: SparkSession | None = None

    def __call__(self) -> SparkSession:
        if self._spark is None:
            self._spark = self._start(self._stack)
        return self._spark

    def end(self) -> None:
        """End the session, if there is one, whatever state it is in."""
        self._spark = None
        stack, self._stack = self._stack, ExitStack()
        with suppress(JobFailed, OSError):
            stack.close()

    def __enter__(self) -> SparkOnDemand:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()
