"""Running a report over a data directory: choose its records, make its rows, show or keep them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.pipeline.errors import JobFailed
from headrace.pipeline.place import Place, load
from headrace.pipeline.report import Report
from headrace.pipeline.reports import chart
from headrace.pipeline.reports.report import Period, Study, told
from headrace.pipeline.rows import is_live, read
from headrace.printing import count

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_SHOWN_MAX = 40
_JSON, _CSV = ".jsonl", ".csv"
_OUTPUTS = (_JSON, _CSV)


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for beside the report itself."""

    logs: tuple[str, ...] = ()
    """Names, or beginnings of names that end in `*`."""
    from_ts: int | None = None
    to_ts: int | None = None
    period: Period | None = None
    chart: Path | None = None
    to: Path | None = None


def run(spark: SparkSession, place: Place, study: Study, wish: Wish) -> Report:
    """Make the report; its rows are few enough to be held here."""
    if wish.chart is not None:
        chart.check(wish.chart)
    if wish.to is not None and wish.to.suffix not in _OUTPUTS:
        raise JobFailed(f"rows go to a file in {' or '.join(_OUTPUTS)}, not {wish.to.name}")
    made = study.make(_records(spark, place, study, wish), wish.period or study.period)
    rows = rows_of(made)
    if wish.to is not None:
        wish.to.write_text(_lines(made.columns, rows, wish.to.suffix))
    if wish.chart is not None:
        chart.draw(study.chart, rows, wish.chart)
    shown: list[tuple[object, ...]] = [
        tuple(told(value) for value in row.values()) for row in rows[:_SHOWN_MAX]
    ]
    rest = len(rows) - len(shown)
    return Report(
        "  ".join(made.columns),
        shown,
        f"{study.name}: {count(len(rows), 'row')}{f', {rest} of them not shown' if rest else ''}",
    )


def rows_of(made: DataFrame) -> list[dict[str, Any]]:
    """The rows of a report; times know that they are UTC, whatever the zone of this machine."""
    rows: list[dict[str, Any]] = made.toArrow().to_pylist()
    return rows


def _records(spark: SparkSession, place: Place, study: Study, wish: Wish) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    manifest, marks = load(place.open())
    rows = read(spark, place, manifest.segments).where(
        _named(wish.logs or (f"{study.prefix}*",)) & F.col("media").isNull()
    )
    if study.live_only:
        rows = rows.where(is_live(marks))
    if wish.from_ts is not None:
        rows = rows.where(F.col("ts") >= wish.from_ts)
    if wish.to_ts is not None:
        rows = rows.where(F.col("ts") <= wish.to_ts)
    return rows


def _named(logs: Sequence[str]) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    wanted = F.lit(False)
    for log in logs:
        begins = F.startswith(F.col("log"), F.lit(log[:-1]))
        wanted |= begins if log.endswith("*") else F.col("log") == log
    return wanted


def _lines(columns: Sequence[str], rows: Sequence[dict[str, Any]], suffix: str) -> str:
    if suffix == _JSON:
        return "".join(msgspec.json.encode(row).decode() + "\n" for row in rows)
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([told(value) for value in row.values()] for row in rows)
    return text.getvalue()
