"""Headrace as a Spark data source: `spark.read.format("headrace")`, and the same for streams and
writing.

Nothing here imports Spark before Spark imports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def segments(spark: SparkSession, path: str, log: str | None = None) -> DataFrame:
    """The rows of all sealed segments, of one log, or of a prefix (`web-*`), as a native
    Parquet scan.

    Rows that were deleted since they were sealed are still in it, and rows of logs that are gone:
    use `format("headrace")` where that matters.
    """
    from headrace.spark import native

    return native.segments(spark, path, log)


__all__ = ["segments"]
