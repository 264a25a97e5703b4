"""How often flag manifests change, and how much of them: files that came, changed and went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipeline.reports.report import Chart, Period, Study, begin, committed, parsed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PREFIX = "flags:"
_VERSION = """
    version long,
    closure_hash string,
    files array<struct<path: string, op: string>>
"""
OPS = ("added", "modified", "removed")


def churn(records: DataFrame, period: Period) -> DataFrame:
    """For each namespace and period: versions, distinct closures, and what happened to files."""
    from pyspark.sql import functions as F  # noqa: N812

    name = F.split("log", ":", 3)
    versions = records.select(
        name[1].alias("tenant"),
        name[2].alias("namespace"),
        begin(committed(), period),
        parsed(_VERSION).alias("version"),
    ).where(F.col("version.version").isNotNull())
    return (
        versions.groupBy("tenant", "namespace", "at")
        .agg(
            F.count(F.lit(1)).alias("versions"),
            F.count_distinct("version.closure_hash").alias("closures"),
            *(F.sum(_files(op)).alias(op) for op in OPS),
        )
        .withColumn("files", F.col("added") + F.col("modified") + F.col("removed"))
        .orderBy("tenant", "namespace", "at")
    )


def _files(op: str) -> Column:
    """How many files of a version came, changed or went; a version may be told without files."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.coalesce(
        F.size(F.filter("version.files", lambda file: file["op"] == op)), F.lit(0)
    ).cast("long")


STUDY = Study(
    name="churn",
    help="versions and churn of flag manifests, by namespace",
    prefix=_PREFIX,
    period="day",
    make=churn,
    chart=Chart("Files changed by namespace", "bars", "at", "files", "files", "namespace"),
    records="a version of a flag manifest",
)
