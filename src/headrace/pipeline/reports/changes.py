"""Who changed what, when: an audit of tenants' feeds."""

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
    from pyspark.sql import Column, DataFrame

_PREFIX = "feed:"
_EVENT = """
    type string,
    timestamp string,
    resourceRef struct<resourceType: string, resourceId: string, parentRefs: map<string, string>>,
    actor struct<type: string, identifier: string>
"""


def changes(records: DataFrame, period: Period) -> DataFrame:
    """For each tenant and period: who did what to which resource, how often, first and last."""
    from pyspark.sql import functions as F  # noqa: N812

    event = parsed(_EVENT).alias("event")
    events = records.select(
        F.substring("log", len(_PREFIX) + 1, 1 << 10).alias("tenant"),
        event,
        committed().alias("committed"),
    )
    # The time of an event is the system's that made it; without one, when we committed it.
    told = events.where(F.col("event.type").isNotNull()).select(
        "tenant",
        happened("event.timestamp").alias("happened"),
        F.coalesce("event.actor.identifier", F.lit("unknown")).alias("who"),
        F.col("event.type").alias("what"),
        _path().alias("resource"),
    )
    return (
        told.groupBy("tenant", begin(F.col("happened"), period), "who", "what", "resource")
        .agg(
            F.count(F.lit(1)).alias("times"),
            F.min("happened").alias("first"),
            F.max("happened").alias("last"),
        )
        .orderBy("tenant", "at", "who", "what", "resource")
    )


def _path() -> Column:
    """A resource behind its parents: `templateId=invoice/variantId=english/version=3`."""
    from pyspark.sql import functions as F  # noqa: N812

    parents = F.transform(
        F.array_sort(F.map_entries("event.resourceRef.parentRefs")),
        lambda parent: F.concat_ws("=", parent["key"], parent["value"]),
    )
    own = F.concat_ws("=", "event.resourceRef.resourceType", "event.resourceRef.resourceId")
    return F.concat_ws("/", parents, own)


STUDY = Study(
    name="changes",
    help="who changed what, when, by tenant: over feeds",
    prefix=_PREFIX,
    period="day",
    make=changes,
    chart=Chart("Changes by tenant", "bars", "at", "times", "changes", "tenant"),
    records="a change with a type",
)
