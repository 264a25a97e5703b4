"""How many notifications there were, by event type and area."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipeline.reports.report import Chart, Period, Study, begin, committed, parsed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PREFIX = "notify:"
_NOTIFICATION = "identifier map<string, string>"
_AREAS = ("region", "area", "country", "domain")
"""Identifiers that name an area."""
_CELL = 10
"""Degrees: without a named area, a polygon counts for the cell that its middle is in."""


def volume(records: DataFrame, period: Period) -> DataFrame:
    """For each event type, area and period: how many, and how many bytes."""
    from pyspark.sql import functions as F  # noqa: N812

    told = records.select(
        F.substring("log", len(_PREFIX) + 1, 1 << 10).alias("event_type"),
        begin(committed(), period),
        parsed(_NOTIFICATION)["identifier"].alias("identifier"),
        F.octet_length("data").alias("size"),
    )
    return (
        told.where(F.col("identifier").isNotNull())
        .groupBy("event_type", _area(F.col("identifier")).alias("area"), "at")
        .agg(F.count(F.lit(1)).alias("notifications"), F.sum("size").alias("bytes"))
        .orderBy("event_type", "area", "at")
    )


def _area(identifier: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.coalesce(
        *(identifier[name] for name in _AREAS), _cell(identifier["polygon"]), F.lit("anywhere")
    )


def _cell(polygon: Column) -> Column:
    """`50..60,0..10` for the middle of a polygon, told as text or as pairs: `lat,lon,lat,lon,…`.

    Its middle is that of its box.
    """
    from pyspark.sql import functions as F  # noqa: N812

    numbers = F.transform(
        F.regexp_extract_all(polygon, F.lit(r"(-?[0-9]+(?:\.[0-9]+)?)"), 1),
        lambda number: number.cast("double"),
    )
    latitudes = F.filter(numbers, lambda _, at: at % 2 == 0)
    longitudes = F.filter(numbers, lambda _, at: at % 2 == 1)
    # Nothing, if there is no pair at all.
    return F.when(F.size(longitudes) > 0, F.concat(_band(latitudes), F.lit(","), _band(longitudes)))


def _band(values: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    middle = (F.array_min(values) + F.array_max(values)) / 2
    low = (F.floor(middle / _CELL) * _CELL).cast("int")
    return F.concat(low.cast("string"), F.lit(".."), (low + _CELL).cast("string"))


STUDY = Study(
    name="volume",
    help="notifications by event type and area",
    prefix=_PREFIX,
    period="hour",
    make=volume,
    chart=Chart(
        "Notifications by event type", "bars", "at", "notifications", "notifications", "event_type"
    ),
    records="a notification with an identifier",
)
