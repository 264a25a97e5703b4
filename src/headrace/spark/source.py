"""The data source as Spark knows it."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from headrace.spark.options import OptionError, parse_columns, parse_read, parse_write
from headrace.spark.reading import HeadraceReader, PushingReader
from headrace.spark.rows import schema_of
from headrace.spark.streaming import HeadraceStreamReader
from headrace.spark.writing import HeadraceStreamWriter, HeadraceWriter, check_schema


class HeadraceSource(DataSource):
    """`format("headrace")`"""

    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> str:
        return schema_of(parse_columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_read(self.options)
        return PushingReader(options) if options.pushdown else HeadraceReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return HeadraceStreamReader(parse_read(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise OptionError('a log is only appended to: use mode("append")')
        options = parse_write(self.options)
        check_schema(schema, options)
        return HeadraceWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        if overwrite:
            raise OptionError('a log is only appended to: use outputMode("append")')
        options = parse_write(self.options)
        check_schema(schema, options)
        return HeadraceStreamWriter(options)
