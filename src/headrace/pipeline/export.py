"""Export: a log, or a selection of records, as files for other tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain
from operator import methodcaller, or_
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from headrace.core.name_patterns import NamePatterns
from headrace.formats.manifest import Manifest
from headrace.pipeline.errors import CannotRun, JobFailed
from headrace.pipeline.export_files import write_part
from headrace.pipeline.export_target import ExportPart, ExportTarget, parse_target
from headrace.pipeline.limits import PROBES
from headrace.pipeline.logs import check_logs, each, is_readable, parse_readable_logs
from headrace.pipeline.proof import require_sound
from headrace.pipeline.report import Report, show_stages
from headrace.pipeline.rows import NUMBER, is_live, is_within, read
from headrace.pipeline.session import is_local
from headrace.pipeline.store_location import StoreLocation, load
from headrace.pipeline.tasks import run_tasks
from headrace.printing import count

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which records; bounds are inclusive, and what is not given selects nothing away."""

    logs: tuple[str, ...] = ()
    """Names, or beginnings of names that end in `*`."""
    from_seq: int | None = None
    to_seq: int | None = None
    from_ts: int | None = None
    to_ts: int | None = None
    keys: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    """A tag that ends in `*` stands for all that begin so."""


def export(
    spark: SparkSession,
    place: StoreLocation,
    selection: Selection,
    to: str | Path,
    format: str | None,
) -> Report:
    """Write the live, sealed records that are selected: to one file if the target looks like one,
    else to a folder of files. Nothing is there under its name until everything is.
    """
    logs, target = check_export(selection, str(to), format)
    with target.begin():
        try:
            _check_workers(spark, place, target)
            manifest, marks = load(place.open())
            check_logs(spark, place, manifest, logs, marks)
            rows = read(spark, place, manifest.segments).where(is_live(marks))
            with show_stages(spark):
                parts, found, numbers = _write(
                    rows.where(is_readable(logs) & _wanted(selection)), logs, target
                )
            check_parts(target, parts)
            # Spark may make something of damaged bytes: nothing of that is published.
            whole = selection == Selection()
            require_sound(
                spark, place, [s for s in manifest.segments if whole or s.number in numbers]
            )
            target.publish(parts)
        except BaseException:
            target.abandon()
            raise
    written = sum(part.rows for part in parts)
    what = f"{target}: {count(written, 'record')} as {target.format}"
    return Report("", [], "; ".join([what, *_nothing_of(found, selection, manifest)]))


def check_export(
    selection: Selection, to: str, format: str | None
) -> tuple[NamePatterns, ExportTarget]:
    """Refuse what cannot be meant, or written to: needs no Spark."""
    for name, low, high in (
        ("seq", selection.from_seq, selection.to_seq),
        ("ts", selection.from_ts, selection.to_ts),
    ):
        if low is not None and high is not None and low > high:
            raise CannotRun(f"--from-{name} {low} is after --to-{name} {high}")
    logs, target = parse_readable_logs(selection.logs), parse_target(to, format)
    target.check()
    return logs, target


def _check_workers(spark: SparkSession, place: StoreLocation, target: ExportTarget) -> None:
    """Refuse, before any work, a target that tasks elsewhere cannot write to."""
    if is_local(spark):
        return
    for problem in run_tasks(spark, place, methodcaller("problem"), [target] * PROBES):
        if problem is not None:
            raise CannotRun(problem)


def check_parts(target: ExportTarget, parts: Sequence[ExportPart]) -> None:
    """Whether everything that tasks wrote is at the target, as the driver sees it."""
    there = target.sizes()
    for part in parts:
        if part.name not in there:
            raise JobFailed(f"{target}: {part.name} was written, but is not there")
        if there[part.name] != part.size_bytes:
            found = f"has {there[part.name]} bytes, not {part.size_bytes}"
            raise JobFailed(f"{target}: {part.name} {found}")


def _nothing_of(
    found: Mapping[str, int], selection: Selection, manifest: Manifest
) -> Iterator[str]:
    """In words, why there is nothing of a log that was named, or nothing at all."""
    if not manifest.segments:
        yield "nothing is sealed yet"
        return
    narrowed = msgspec.structs.replace(selection, logs=()) != Selection()
    none = f"is sealed and live{' in that selection' if narrowed else ''}"
    for pattern, rows in found.items():
        if not rows and selection.logs:
            yield f"log {pattern} is there, but no record of it {none}"
        elif not rows:
            yield f"no record {none}"


def _wanted(selection: Selection) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    wanted = is_within("seq", selection.from_seq, selection.to_seq)
    wanted &= is_within("ts", selection.from_ts, selection.to_ts)
    if selection.keys:
        wanted &= F.col("key").isin(*selection.keys)
    if selection.tags:
        tags = [
            F.startswith(F.col("tag"), F.lit(tag[:-1]))
            if tag.endswith("*")
            else F.col("tag") == tag
            for tag in selection.tags
        ]
        wanted &= reduce(or_, tags)
    return wanted


def _write(
    rows: DataFrame, logs: NamePatterns, target: ExportTarget
) -> tuple[list[ExportPart], dict[str, int], frozenset[int]]:
    """The parts that tasks wrote, how many records there were for each name and prefix, and the
    numbers of the segments they were in.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    rows = rows.orderBy("log", "log_id", "seq")
    rows = rows.coalesce(1) if target.single else rows
    seen = Observation("written")
    conditions = each(logs) or {"any": F.lit(True)}
    counts = [F.count_if(one).alias(f"of {at}") for at, one in enumerate(conditions.values())]
    numbers = F.collect_set(NUMBER).alias("segments")
    rows = rows.observe(seen, F.count(F.lit(1)).alias("rows"), numbers, *counts)
    answers = _shaped(rows, target.format).mapInArrow(_Writer(target), _ANSWER).collect()
    parts = []
    for answer in sorted(answers, key=lambda answer: answer.name):
        if answer.problem is not None:
            raise JobFailed(answer.problem)
        parts.append(ExportPart(answer.name, answer.rows, answer.size_bytes))
    read, written = seen.get["rows"], sum(part.rows for part in parts)
    if read != written:
        raise JobFailed(f"{target}: {written} records were written of {count(read, 'record')}")
    if not parts:
        parts = [write_part(target, 0, [])]  # so that whoever reads it sees columns
    found = {pattern: seen.get[f"of {at}"] for at, pattern in enumerate(conditions)}
    return parts, found, frozenset(seen.get["segments"])


def _shaped(rows: DataFrame, format: str) -> DataFrame:
    """The columns as the format has them."""
    from pyspark.sql import functions as F  # noqa: N812

    # What is not JSON may be any bytes: base64 there, and the media type beside it says so.
    text = F.when(F.col("media").isNull(), F.decode("data", "UTF-8")).otherwise(F.base64("data"))
    data = _on_one_line(text).alias("data")
    time = F.expr("timestamp_micros(ts * 1000 + coalesce(ns, 0) div 1000)").alias("ts")
    plain = [F.col(name) for name in ("key", "tag", "node", "media")]
    match format:
        case "parquet":
            return rows.select("log", "seq", time, *plain, text.alias("data"), "meta")
        case "csv":
            stamp = F.date_format(time, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'").alias("ts")
            return rows.select("log", "seq", stamp, *plain, data, "meta")
        case _:
            return rows.select(_line(data))


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


_ANSWER = "name string, rows long, size_bytes long, problem string"
_ANSWER_SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("rows", pa.int64()),
        ("size_bytes", pa.int64()),
        ("problem", pa.string()),
    ]
)


class _Writer:
    """The task that writes one part."""

    def __init__(self, target: ExportTarget) -> None:
        self._target = target

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        first = next((batch for batch in batches if len(batch)), None)
        if first is None:
            return
        problem = self._target.problem()
        if problem is None:
            context = TaskContext.get()
            at = context.partitionId() if context is not None else 0
            part = write_part(self._target, at, chain([first], batches))
        else:
            part = ExportPart("", 0, 0)
        yield pa.RecordBatch.from_pylist(
            [msgspec.structs.asdict(part) | {"problem": problem}], _ANSWER_SCHEMA
        )
