"""Makes the class archive: a session that does a little of everything, and is written down as it
ends. Run as a module, with the file to make.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.pipeline.java import find_java
from headrace.pipeline.session import end_gateway, scratch_folder, start
from headrace.pipeline.settings import KERNELS, SparkSettings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def rehearse(spark: SparkSession, folder: Path) -> None:
    """Use what jobs use, so that its classes are loaded."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    numbers = spark.range(0, 100, 1, 2).select("id", (F.col("id") % 7).alias("log"))
    numbers.write.mode("overwrite").parquet(str(folder / "rows"))
    rows = spark.read.parquet(str(folder / "rows"))
    ranked = rows.withColumn("before", F.lag("id").over(Window.partitionBy("log").orderBy("id")))
    ranked.groupBy("log").agg(F.count("*"), F.max("before")).collect()
    rows.repartitionById(2, (F.col("id") % 2).cast("int")).sortWithinPartitions("log").mapInArrow(
        _same, "id long, log long"
    ).join(numbers, "id").orderBy("id").collect()


if __name__ == "__main__":
    with scratch_folder() as scratch:
        flags = f"-XX:ArchiveClassesAtExit={sys.argv[1]}"
        spark = start("archive", SparkSettings({}), KERNELS, find_java(), scratch, flags=flags)
        rehearse(spark, scratch)
        spark.stop()
        end_gateway()
