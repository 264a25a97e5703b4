"""How queues fare: how long jobs took, and how many of them ended as dead letters.

Jobs are records of a queue, acked ones too as long as they are in the bytes; dead letters are
records whose stamps name the queue they failed in. How long jobs took is told by records of the
metrics profile, metric `queue.latency` with the queue in its attributes: an ack leaves no time
behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.core.dead_letter import DELIVERIES, FROM
from headrace.pipeline.reports.report import (
    LAST_MS,
    Chart,
    Period,
    Study,
    begin,
    committed,
    parsed,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

METRIC = "queue.latency"
_INTERVAL = """
    kind string, metric string, windowStart long, count long, sum double, max double,
    attributes map<string, string>
"""


def failures(records: DataFrame, period: Period) -> DataFrame:
    """For each queue and period: jobs, dead letters and their share, and how long jobs took."""
    from pyspark.sql import functions as F  # noqa: N812

    letters, jobs = _letters(records, period), _jobs(records, period)
    latency = _latency(records, period)
    joined = jobs.join(letters, ["queue", "at"], "full").join(latency, ["queue", "at"], "full")
    queues = letters.select("queue").union(latency.select("queue")).distinct()
    dead = F.coalesce("dead", F.lit(0))
    return (
        joined.join(queues, "queue", "left_semi")
        .select(
            "queue",
            "at",
            F.coalesce("jobs", F.lit(0)).alias("jobs"),
            dead.alias("dead"),
            F.when(F.col("jobs") > 0, F.round(dead / F.col("jobs"), 4)).alias("dead_share"),
            "deliveries",
            "acked",
            "mean_ms",
            "max_ms",
        )
        .orderBy("queue", "at")
    )


def _stamp(name: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.get_json_object("meta", f"$['{name}']")


def _letters(records: DataFrame, period: Period) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    stamped = records.where(_stamp(FROM).isNotNull())
    return stamped.groupBy(_stamp(FROM).alias("queue"), begin(committed(), period)).agg(
        F.count(F.lit(1)).alias("dead"),
        F.round(F.avg(_stamp(DELIVERIES).cast("double")), 2).alias("deliveries"),
    )


def _jobs(records: DataFrame, period: Period) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    own = records.where(_stamp(FROM).isNull())
    return own.groupBy(F.col("log").alias("queue"), begin(committed(), period)).agg(
        F.count(F.lit(1)).alias("jobs")
    )


def _latency(records: DataFrame, period: Period) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    told = records.select(parsed(_INTERVAL).alias("told")).where(
        (F.col("told.metric") == METRIC) & F.col("told.windowStart").between(0, LAST_MS)
    )
    window = begin(F.timestamp_millis("told.windowStart"), period)
    return told.groupBy(F.col("told.attributes")["queue"].alias("queue"), window).agg(
        F.sum("told.count").alias("acked"),
        F.round(F.sum("told.sum") / F.sum("told.count"), 3).alias("mean_ms"),
        F.max("told.max").alias("max_ms"),
    )


STUDY = Study(
    name="failures",
    help="jobs, dead letters and latency, by queue",
    prefix="",
    period="hour",
    make=failures,
    chart=Chart("Dead letters by queue", "bars", "at", "dead", "dead letters", "queue"),
    records="a dead letter, or an interval of queue.latency",
    live_only=False,
)
