"""Export: a log, or a selection of records, as files for other tools."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from headrace.pipeline.errors import CannotRun, JobFailed
from headrace.pipeline.limits import FORMATS
from headrace.pipeline.place import Place, load
from headrace.pipeline.report import Report
from headrace.pipeline.rows import is_live, read
from headrace.printing import count

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which records; bounds are inclusive, and what is not given selects nothing away."""

    logs: tuple[str, ...] = ()
    from_seq: int | None = None
    to_seq: int | None = None
    from_ts: int | None = None
    to_ts: int | None = None
    keys: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    """A tag that ends in `*` stands for all that begin so."""


def export(
    spark: SparkSession, place: Place, selection: Selection, target: Path, format: str
) -> Report:
    """Write the live, sealed records that are selected: to one file if the target looks like one,
    else to a folder of files. Nothing is there under its name until everything is.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    if target.exists():
        raise CannotRun(f"{target} exists; name something that does not")
    manifest, marks = load(place.open())
    rows = read(spark, place, manifest.segments).where(is_live(marks)).where(_wanted(selection))
    single = target.suffix.lstrip(".") in FORMATS
    aside = target.with_name(f".{target.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    seen = Observation("written")
    rows = rows.orderBy("log", "log_id", "seq")
    rows = (rows.coalesce(1) if single else rows).observe(seen, F.count(F.lit(1)).alias("rows"))
    try:
        _write(rows, aside, format)
        written = seen.get["rows"]
        if single:
            _one_of(aside).rename(target)
        else:
            for extra in (*aside.glob(".*.crc"), aside / "_SUCCESS"):
                extra.unlink(missing_ok=True)
            aside.rename(target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return Report("", [], f"{target}: {count(written, 'record')} as {format}")


def _wanted(selection: Selection) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    seq, ts = F.col("seq"), F.col("ts")
    conditions = [F.lit(True)]
    if selection.logs:
        conditions.append(F.col("log").isin(*selection.logs))
    if selection.keys:
        conditions.append(F.col("key").isin(*selection.keys))
    for column, low, high in (
        (seq, selection.from_seq, selection.to_seq),
        (ts, selection.from_ts, selection.to_ts),
    ):
        if low is not None:
            conditions.append(column >= low)
        if high is not None:
            conditions.append(column <= high)
    if selection.tags:
        tags = [
            F.startswith(F.col("tag"), F.lit(tag[:-1]))
            if tag.endswith("*")
            else F.col("tag") == tag
            for tag in selection.tags
        ]
        any_tag = tags[0]
        for tag in tags[1:]:
            any_tag |= tag
        conditions.append(any_tag)
    wanted = conditions[0]
    for condition in conditions[1:]:
        wanted &= condition
    return wanted


def _write(rows: DataFrame, folder: Path, format: str) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    text = _on_one_line(F.decode("data", "UTF-8"))
    # What is not JSON may be any bytes: base64 there, and the media type beside it says so.
    data = F.when(F.col("media").isNull(), text).otherwise(F.base64("data")).alias("data")
    time = F.expr("timestamp_micros(ts * 1000 + coalesce(ns, 0) div 1000)").alias("ts")
    plain = [F.col(name) for name in ("key", "tag", "node", "media")]
    match format:
        case "parquet":
            rows.select("log", "seq", time, *plain, F.col("data"), "meta").write.parquet(
                str(folder), compression="zstd"
            )
        case "csv":
            stamp = F.date_format(time, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'").alias("ts")
            rows.select("log", "seq", stamp, *plain, data, "meta").write.csv(
                str(folder), header=True, escape='"', nullValue="", emptyValue='""'
            )
        case _:
            rows.select(_line(data)).write.text(str(folder))


def _on_one_line(json: Column) -> Column:
    """The same JSON: line ends can only be between its tokens."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.translate(json, "\r\n", "  ")


def _line(data: Column) -> Column:
    """One JSON object: the payload in it is the JSON that was sent."""
    from pyspark.sql import functions as F  # noqa: N812

    head = F.to_json(F.struct("log", "seq", "ts", "key", "tag", "node", "media"))
    value = F.when(F.col("media").isNull(), data).otherwise(F.concat(F.lit('"'), data, F.lit('"')))
    meta = F.when(F.col("meta").isNull(), F.lit("")).otherwise(
        F.concat(F.lit(',"meta":'), _on_one_line(F.col("meta")))
    )
    opened = F.substr(head, F.lit(1), F.length(head) - 1)
    return F.concat(opened, F.lit(',"data":'), value, meta, F.lit("}")).alias("value")


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*"))


def _one_of(folder: Path) -> Path:
    parts = _parts(folder)
    if len(parts) != 1:
        raise JobFailed(f"Spark wrote {len(parts)} files where one was expected")
    return parts[0]
