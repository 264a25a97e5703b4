"""Running a report over a data directory: choose its records, make its rows, show or keep them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.core.name_patterns import NamePatterns
from headrace.formats.manifest import Manifest
from headrace.pipeline.errors import CannotRun
from headrace.pipeline.logs import check_logs, is_readable, parse_readable_logs
from headrace.pipeline.proof import require_sound
from headrace.pipeline.report import Report, show_stages
from headrace.pipeline.reports import chart
from headrace.pipeline.reports.report import Period, Study, told
from headrace.pipeline.rows import NUMBER, is_live, is_within, read
from headrace.pipeline.store_location import StoreLocation, load
from headrace.printing import count

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_SHOWN_MAX = 40
_JSON, _CSV = ".jsonl", ".csv"
_OUTPUTS = (_JSON, _CSV)


class ReportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for beside the report itself."""

    logs: tuple[str, ...] = ()
    """Names, or beginnings of names that end in `*`."""
    from_ts: int | None = None
    to_ts: int | None = None
    period: Period | None = None
    chart: Path | None = None
    to: Path | None = None


def check_options(options: ReportOptions) -> None:
    """Refuse what cannot be meant, or written to: needs no Spark."""
    if options.chart is not None:
        chart.check(options.chart)
    if options.to is not None and options.to.suffix not in _OUTPUTS:
        raise CannotRun(f"rows go to a file in {' or '.join(_OUTPUTS)}, not {options.to.name}")
    for path in (options.chart, options.to):
        if path is not None and not path.parent.is_dir():
            raise CannotRun(f"{path} cannot be written: there is no folder {path.parent}")
    if (
        options.from_ts is not None
        and options.to_ts is not None
        and options.from_ts > options.to_ts
    ):
        raise CannotRun(f"--from-ts {options.from_ts} is after --to-ts {options.to_ts}")
    parse_readable_logs(options.logs)


def run(spark: SparkSession, place: StoreLocation, study: Study, options: ReportOptions) -> Report:
    """Make the report; its rows are few enough to be held here."""
    check_options(options)
    logs = parse_readable_logs(options.logs or (f"{study.prefix}*",))
    manifest, marks = load(place.open())
    if options.logs:
        check_logs(spark, place, manifest, logs)
    period = options.period or study.period
    records = read(spark, place, manifest.segments).where(_wanted(logs, options))
    made = study.make(records.where(is_live(marks)) if study.live_only else records, period)
    with show_stages(spark):
        # Spark may make something of damaged bytes: nobody is told that.
        numbers = {row[NUMBER] for row in records.select(NUMBER).distinct().collect()}
        require_sound(spark, place, [s for s in manifest.segments if s.number in numbers])
        rows = rows_of(made)
    nothing = "" if rows else _nothing(manifest, study, options)
    if options.to is not None:
        options.to.write_text(_lines(made.columns, rows, options.to.suffix))
    if options.chart is not None:
        chart.draw(study.chart, rows, period, options.chart, nothing)
    shown: list[tuple[object, ...]] = [
        tuple(told(value) for value in row.values()) for row in rows[:_SHOWN_MAX]
    ]
    rest = len(rows) - len(shown)
    what = f"{study.name}: {count(len(rows), 'row')}"
    what += f", {rest} of them not shown" if rest else ""
    return Report("  ".join(made.columns), shown, f"{what}; {nothing}" if nothing else what)


def _nothing(manifest: Manifest, study: Study, options: ReportOptions) -> str:
    """In words, why a report is empty."""
    if not manifest.segments:
        return "nothing is sealed yet"
    bounded = options.from_ts is not None or options.to_ts is not None
    when = " in that time" if bounded else ""
    named = ", ".join(options.logs) or (f"{study.prefix}*" if study.prefix else "")
    return f"no sealed record{f' of {named}' if named else ''}{when} is {study.records}"


def rows_of(made: DataFrame) -> list[dict[str, Any]]:
    """The rows of a report; times know that they are UTC, whatever the zone of this machine."""
    rows: list[dict[str, Any]] = made.toArrow().to_pylist()
    return rows


def _wanted(logs: NamePatterns, options: ReportOptions) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    in_time = is_within("ts", options.from_ts, options.to_ts)
    return is_readable(logs) & F.col("media").isNull() & in_time


def _lines(columns: Sequence[str], rows: Sequence[dict[str, Any]], suffix: str) -> str:
    if suffix == _JSON:
        return "".join(msgspec.json.encode(row).decode() + "\n" for row in rows)
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([told(value) for value in row.values()] for row in rows)
    return text.getvalue()
