"""Reading a batch: all that is there when the query is planned."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from headrace.spark.catalog import Catalog
from headrace.spark.filters import narrow
from headrace.spark.options import ReadOptions
from headrace.spark.rows import read
from headrace.spark.splits import Bundle, bundled, split, wants_of
from headrace.workers import freeze_gc


class HeadraceReader(DataSourceReader):
    """Plans on the driver, reads in tasks."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        catalog = Catalog(options.where)
        logs = options.wanted.logs
        plans = catalog.plans(logs, extents=catalog.has_store)
        catalog.check_names(logs.names, plans)
        catalog.check_prefixes(logs.prefixes, plans)
        wants = wants_of(plans, options.wanted)
        placed = catalog.placed(want.plan for want in wants)
        parts = split(wants, placed, options.wanted, served=options.where.url is not None)
        return bundled(parts, cores())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_part(self._options, partition)


class PushingReader(HeadraceReader):
    """The same, for sessions that push filters down: Spark refuses this class in others."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        wanted = narrow(self._options.wanted, filters)
        self._options = msgspec.structs.replace(self._options, wanted=wanted)
        return filters  # Spark looks again, so nothing here has to be exact


def read_part(options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a partition; Spark asks for a bare one when there is nothing to read."""
    freeze_gc()
    if isinstance(partition, Bundle):
        yield from read(options.where, options.wanted, options.columns, partition.parts)


def cores() -> int:
    """As many as the driver has: nobody tells a data source what the cluster has."""
    return os.cpu_count() or 1
