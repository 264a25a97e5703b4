"""The data source as Spark knows it.

Spark loads this module in several processes of its own for every query: it imports as it goes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from headrace.spark.options import OptionError, parse_columns, parse_read, parse_write, schema_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class HeadraceSource(DataSource):
    """`format("headrace")`"""

    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> str:
        return schema_of(parse_columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from headrace.spark.reading import HeadraceReader, PushingReader

        options = parse_read(self.options)
        return PushingReader(options) if options.pushdown else HeadraceReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from headrace.spark.streaming import HeadraceStreamReader

        return HeadraceStreamReader(parse_read(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headrace.spark.writing import HeadraceWriter, check_schema

        if overwrite:
            raise OptionError('a log is only appended to: use mode("append")')
        options = parse_write(self.options)
        check_schema(schema, options)
        return HeadraceWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from headrace.spark.writing import HeadraceStreamWriter, check_schema

        if overwrite:
            raise OptionError('a log is only appended to: use outputMode("append")')
        options = parse_write(self.options)
        check_schema(schema, options)
        return HeadraceStreamWriter(options)
