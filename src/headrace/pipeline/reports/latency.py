"""How long requests took: percentiles over `evlog` streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipeline.reports.report import (
    Chart,
    Period,
    Study,
    begin,
    committed,
    happened,
    parsed,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EVENT = "timestamp string, service string, level string, status long, duration double"
_SERVER_ERROR = 500
_ACCURACY = 10_000


def latency(records: DataFrame, period: Period) -> DataFrame:
    """For each stream, service and period: requests, errors, and how long they took."""
    from pyspark.sql import functions as F  # noqa: N812

    event = parsed(_EVENT).alias("event")
    told = records.select(F.col("log").alias("stream"), committed().alias("committed"), event)
    failed = (F.col("event.level") == "error") | (F.col("event.status") >= _SERVER_ERROR)
    duration = F.col("event.duration")
    return (
        told.where(duration.isNotNull())
        .groupBy(
            "stream",
            F.coalesce("event.service", F.lit("unknown")).alias("service"),
            begin(happened("event.timestamp"), period),
        )
        .agg(
            F.count(F.lit(1)).alias("requests"),
            F.count_if(failed).alias("errors"),
            F.round(F.avg(duration), 3).alias("mean_ms"),
            *(
                F.percentile_approx(duration, share, _ACCURACY).alias(f"p{share * 100:.0f}_ms")
                for share in (0.5, 0.95, 0.99)
            ),
            F.max(duration).alias("max_ms"),
        )
        .orderBy("stream", "service", "at")
    )


STUDY = Study(
    name="latency",
    help="requests, errors and latency percentiles of evlog streams, by service",
    prefix="",
    period="minute",
    make=latency,
    chart=Chart("Latency by service, p95", "lines", "at", "p95_ms", "ms", "service"),
    records="a request with a duration",
)
