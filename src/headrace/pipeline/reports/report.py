"""What a report is: whose records it reads, what it makes of them, how it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_YEARS = (1970, 8999)
"""When something can have happened: others are no times, but how some languages write none, and
beyond what can be drawn.
"""
LAST_MS = 221_845_392_000_000 - 1
"""The end of those years."""
Period = Literal["minute", "hour", "day", "week", "month"]


class Chart(msgspec.Struct, frozen=True):
    """Which columns are drawn: one line or stack of bars for each value of `series`."""

    title: str
    kind: Literal["bars", "lines"]
    x: str
    y: str
    y_title: str
    series: str


class Study(msgspec.Struct, frozen=True):
    """One report."""

    name: str
    help: str
    prefix: str
    """The names of the logs it is about begin so, unless the user names others."""
    period: Period
    """How finely it tells the times, unless the user says otherwise."""
    make: Callable[[DataFrame, Period], DataFrame]
    chart: Chart
    records: str
    """What it is made of, for whoever finds none."""
    live_only: bool = True
    """Whether it leaves out records that were deleted or acked but are still in the bytes."""


def begin(time: Column, period: Period) -> Column:
    """The start of the period that a time is in."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.date_trunc(period, time).alias("at")


def committed() -> Column:
    """When a record was committed."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.timestamp_millis("ts")


def happened(said: str) -> Column:
    """When an event says that it happened; else when it was committed, in a column `committed`."""
    from pyspark.sql import functions as F  # noqa: N812

    time = F.try_to_timestamp(F.col(said))
    return F.when(F.year(time).between(*_YEARS), time).otherwise(F.col("committed"))


def parsed(shape: str) -> Column:
    """The payload as a struct of this shape; what is no such JSON has nothing in it."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.from_json(F.decode("data", "UTF-8"), shape)


def told(value: Any) -> str:
    """A value of a report as text: times in UTC, and nothing for what is not known."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return str(value)
