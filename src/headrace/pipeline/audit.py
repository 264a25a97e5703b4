"""Audit: do the segments, their companions and the manifest say the same?

Spark SQL reads every row of every segment. A mismatch is a problem with its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.formats.manifest import Manifest, Segment
from headrace.formats.marks import Marks
from headrace.pipeline.audit_builds import check_build_files
from headrace.pipeline.audit_postings import check_postings
from headrace.pipeline.audit_rollups import check_rollups
from headrace.pipeline.limits import PROBLEMS_MAX
from headrace.pipeline.place import Place, load
from headrace.pipeline.report import Progress, Report, no_progress
from headrace.pipeline.rows import NUMBER, condition, counted_size, deaths, read, small_table
from headrace.pipeline.tasks import run_tasks
from headrace.printing import count
from headrace.storage.checks.agreement import Agreement
from headrace.storage.checks.segments import SegmentCheck

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Check = Callable[["SparkSession", Place, Manifest], list[str]]


def audit(
    spark: SparkSession, place: Place, progress: Progress[tuple[str, Check]] = no_progress
) -> Report:
    """Run every check over one version of the manifest."""
    manifest, _ = load(place.open())
    problems: list[str] = []
    done: list[tuple[object, ...]] = []
    for title, check in progress(list(CHECKS.items()), "check"):
        found = check(spark, place, manifest)
        problems += found
        done.append((title, len(found), "ok" if not found else "WRONG"))
    rows = sum(segment.rows for segment in manifest.segments)
    what = f"{count(len(problems), 'problem')} in {count(rows, 'record')} of "
    what += f"{count(len(manifest.segments), 'segment')} and {count(len(manifest.builds), 'build')}"
    return Report("check problems verdict", done, f"{place}: {what}", problems)


def check_files(spark: SparkSession, place: Place, manifest: Manifest) -> list[str]:
    """Checksums of segments and companions; order and form of rows; index and tags against rows."""
    found = run_tasks(spark, place, partial(_check_file, place), manifest.segments)
    return [problem for problems in found for problem in problems]


def _check_file(place: Place, segment: Segment) -> list[str]:
    check = SegmentCheck(place.open(), segment, Agreement({}, {}), lambda _: None)
    return [str(finding) for finding in check.run()]


def check_counts(spark: SparkSession, place: Place, manifest: Manifest) -> list[str]:
    """Rows, logs and bytes of each segment against the manifest."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = read(spark, place, manifest.segments)
    found = {
        row.segment: row
        for row in rows.groupBy(NUMBER)
        .agg(
            F.count("*").alias("rows"),
            F.count_distinct("log_id").alias("logs"),
            F.sum(counted_size()).alias("bytes"),
        )
        .collect()
    }
    problems: list[str] = []
    for segment in manifest.segments:
        row = found.get(segment.number)
        said = segment.rows, segment.logs, segment.record_bytes
        held = (row.rows, row.logs, row.bytes) if row is not None else (0, 0, 0)
        problems += [
            f"{segment.name}: {there} {title}; the manifest says {expected}"
            for title, expected, there in zip(
                ("rows", "logs", "record bytes"), said, held, strict=True
            )
            if expected != there
        ]
    return problems


def check_seqs(spark: SparkSession, place: Place, manifest: Manifest) -> list[str]:
    """Each seq of a log is in one segment, along their order; what is missing is dead."""
    if not manifest.segments:
        return []
    steps = _steps(spark, place, manifest.segments).persist()
    try:
        problems = [
            f'log "{row.log}", seq {row.seq}: in segment {row.segment}, and in '
            f"{row.before_segment} as well or after it"
            for row in steps.where("seq <= before or place < before_place")
            .limit(PROBLEMS_MAX)
            .collect()
        ]
        # Loaded after the rows were read: what went missing meanwhile is marked by now.
        gaps = _lasting_gaps(steps, load(place.open())[1])
        problems += [
            f'log "{row.log}", seqs {row.before + 1} to {row.seq - 1}: missing before segment '
            f"{row.segment}, and not marked as dead"
            for row in gaps.limit(PROBLEMS_MAX).collect()
        ]
    finally:
        steps.unpersist()
    return problems


def _steps(spark: SparkSession, place: Place, segments: Sequence[Segment]) -> DataFrame:
    """Each row with the one of its log before it, where there is something to say about them."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    order = [(segment.number, at) for at, segment in enumerate(segments)]
    places = small_table(spark, order, (NUMBER, pa.int64()), ("place", pa.int64()))
    rows = read(spark, place, segments).select("log", "log_id", "seq", NUMBER)
    rows = rows.join(F.broadcast(places), NUMBER)
    by_log = Window.partitionBy("log_id").orderBy("seq", "place")
    return rows.select(
        "*",
        F.lag("seq", 1, 0).over(by_log).alias("before"),
        F.lag(NUMBER).over(by_log).alias("before_segment"),
        F.lag("place").over(by_log).alias("before_place"),
    ).where("seq != before + 1 or place < before_place")


def _lasting_gaps(steps: DataFrame, marks: Marks) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    known = deaths(marks)

    def covered(logs: pa.Array, firsts: pa.Array, lasts: pa.Array) -> pa.Array:
        return pa.array(known.covers(logs.to_numpy(), firsts.to_numpy(), lasts.to_numpy()))

    gaps = steps.where("seq > before + 1")
    missing = F.col("before") + 1, F.col("seq") - 1
    return gaps.where(~condition(covered, F.col("log_id"), *missing))


CHECKS: dict[str, Check] = {
    "files": check_files,
    "counts": check_counts,
    "seqs": check_seqs,
    "builds": check_build_files,
    "postings": check_postings,
    "rollups": check_rollups,
}
