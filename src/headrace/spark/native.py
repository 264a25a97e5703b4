"""Segments as Spark itself reads Parquet: only columns that are used, pushed filters and all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.client.store import Store
from headrace.core.name_patterns import parse_patterns, unsealed_log
from headrace.core.owners import HIDDEN
from headrace.formats.segment import SCHEMA
from headrace.spark.catalog import EVERY_LOG, Catalog
from headrace.spark.options import Where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SPARK_TYPES = {"string": "string", "int64": "bigint", "int32": "int", "binary": "binary"}


def segments(spark: SparkSession, path: str, log: str | None = None) -> DataFrame:
    """See `headrace.spark.segments`."""
    store, catalog = Store(path), Catalog(Where(None, path, None, 0.0))
    names = [store.native(segment.name) for segment in catalog.manifest().segments]
    meant = parse_patterns([] if log is None else [log])
    if log is not None and not catalog.sealed_names(meant):
        raise LookupError(unsealed_log(log, sorted(catalog.sealed_names(EVERY_LOG)), path))
    schema = ", ".join(f"{each.name} {_SPARK_TYPES[str(each.type)]}" for each in SCHEMA)
    if not names:
        return spark.createDataFrame([], schema)
    rows = spark.read.schema(schema).parquet(*names)
    for prefix in HIDDEN:
        rows = rows.where(~rows.log.startswith(prefix))
    for name in meant.names:
        rows = rows.where(rows.log == name)
    for prefix in meant.prefixes:
        rows = rows.where(rows.log.startswith(prefix))
    return rows
