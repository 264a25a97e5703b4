"""Segments as Spark itself reads Parquet: only columns that are used, pushed filters and all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.client.store import Store
from headrace.formats.segment import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SPARK_TYPES = {"string": "string", "int64": "bigint", "int32": "int", "binary": "binary"}


def segments(spark: SparkSession, path: str, log: str | None = None) -> DataFrame:
    """See `headrace.spark.segments`."""
    store = Store(path)
    names = [store.native(segment.name) for segment in store.manifest().segments]
    schema = ", ".join(f"{each.name} {_SPARK_TYPES[str(each.type)]}" for each in SCHEMA)
    if not names:
        return spark.createDataFrame([], schema)
    rows = spark.read.schema(schema).parquet(*names)
    return rows if log is None else rows.where(rows.log == log)
