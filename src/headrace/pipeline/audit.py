"""Audit: do the segments, their companions and the manifest say the same?

Every file is compared with its checksum first. What is missing or damaged is named and passed over;
Spark SQL reads the rows of everything else. A mismatch is a problem with its place.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from headrace.core import ranges
from headrace.core.errors import Corrupt
from headrace.core.ranges import EMPTY
from headrace.formats.index_plans import IndexPlans, decode_plans
from headrace.formats.manifest import Manifest, Segment
from headrace.formats.marks import Marks, decode_marks
from headrace.pipeline.audit_builds import check_build_files
from headrace.pipeline.audit_postings import check_postings
from headrace.pipeline.audit_rollups import check_rollups
from headrace.pipeline.audit_rows import AuditView, newest
from headrace.pipeline.limits import EXAMPLES_MAX
from headrace.pipeline.marks import deaths
from headrace.pipeline.problems import ProblemKind, Tally, tally_rows
from headrace.pipeline.report import Progress, Report, no_progress
from headrace.pipeline.rows import NUMBER, condition, read, small_table
from headrace.pipeline.segment_index import SPANNED, read_index
from headrace.pipeline.store_location import StoreLocation, load, load_marks
from headrace.pipeline.tasks import run_tasks
from headrace.printing import count
from headrace.storage.checks.agreement import Agreement
from headrace.storage.checks.findings import Finding
from headrace.storage.checks.manifests import check_content, check_manifests, path_of
from headrace.storage.checks.segments import SegmentCheck
from headrace.storage.leases import hold_lease
from headrace.storage.objects import Objects, StoreError
from headrace.storage.segments import UNREADABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Check = Callable[["SparkSession", StoreLocation, AuditView], None]


def audit(
    spark: SparkSession,
    place: StoreLocation,
    progress: Progress[tuple[str, Check]] = no_progress,
    examples_max: int = EXAMPLES_MAX,
) -> Report:
    """Run every check over one version of the manifest."""
    view = AuditView(Manifest(), IndexPlans(), Tally(examples_max))
    done: list[tuple[object, ...]] = []
    with ExitStack() as stack:
        # Who may only read stores no answers, and needs no lease for them.
        with suppress(OSError, Corrupt):
            view.job = stack.enter_context(hold_lease(place.open(), "audit")).token
        for title, check in progress(list(CHECKS.items()), "check"):
            before = view.tally.total
            check(spark, place, view)
            found = view.tally.total - before
            done.append((title, found, "ok" if not found else "WRONG"))
    rows, segments, builds = view.sizes
    what = f"{count(view.tally.total, 'problem')} in {count(rows, 'record')} of "
    what += f"{count(segments, 'segment')} and {count(builds, 'build')}"
    if not segments:
        what += "; nothing is sealed yet"
    return Report("check problems verdict", done, f"{place}: {what}", list(view.tally.lines()))


def check_published(spark: SparkSession, place: StoreLocation, view: AuditView) -> None:
    """Versions of the manifest, one of which is audited: the newest that can be read; its plans and
    marks.
    """
    objects = place.open()
    while True:
        tally = Tally(view.tally.examples_max)
        try:
            manifest = _tallied(tally, check_manifests(objects)) or Manifest()
            plans, marks = manifest.plans, manifest.marks
            if plans is not None:
                content = check_content(objects, plans.name, plans.checksum, decode_plans)
                view.plans = _tallied(tally, content) or IndexPlans()
            if marks is not None:
                _tallied(tally, check_content(objects, marks.name, marks.checksum, decode_marks))
        except FileNotFoundError:
            continue  # a version was forgotten meanwhile: there are newer ones
        if not tally.total or not _is_older(objects, manifest):
            break  # else what is wrong may have been replaced meanwhile
    view.manifest = manifest
    view.sizes = (
        sum(segment.rows for segment in manifest.segments),
        len(manifest.segments),
        len(manifest.builds),
    )
    view.tally.join(tally)


def _tallied(tally: Tally, findings: Generator[Finding, None, Any]) -> Any:
    while True:
        try:
            tally.add(ProblemKind.PUBLISHED, str(next(findings)))
        except StopIteration as end:
            return end.value


def _is_older(objects: Objects, manifest: Manifest) -> bool:
    try:
        return load(objects)[0].version > manifest.version
    except (Corrupt, FileNotFoundError):
        return False


def check_files(spark: SparkSession, place: StoreLocation, view: AuditView) -> None:
    """Checksums of segments and companions; order and form of rows; index and tags against rows;
    totals against the manifest.
    """
    task = partial(_check_file, place, view.tally.examples_max)
    segments = view.manifest.segments
    sizes = [segment.file_bytes for segment in segments]
    found = run_tasks(spark, place, task, segments, view.job, sizes)
    there = newest(place, view).numbers
    sound: list[Segment] = []
    for segment, (tally, readable) in zip(view.manifest.segments, found, strict=True):
        if readable:
            sound.append(segment)
        else:
            _note_lost(place.open(), segment, view.lost)
        if readable or segment.number in there:
            view.tally.join(tally)
    view.manifest = msgspec.structs.replace(view.manifest, segments=tuple(sound))


def _check_file(place: StoreLocation, examples_max: int, segment: Segment) -> tuple[Tally, bool]:
    """What is wrong with a segment, and whether its rows can be read at all."""
    tally, agreement = Tally(examples_max), Agreement({}, {})
    held = f"{count(segment.rows, 'record')} of {count(segment.logs, 'log')}"
    where = path_of(segment.name)
    try:
        for finding in SegmentCheck(place.open(), segment, agreement, lambda _: None).run():
            if finding.where != where:
                tally.add(ProblemKind.COMPANION, str(finding))
            elif agreement.doubts(segment.number):
                tally.add(ProblemKind.SEGMENT, f"{finding}; {held} were in it")
            else:
                tally.add(ProblemKind.ROWS, str(finding))
    except StoreError:
        raise  # nothing can be said about files that cannot be asked for
    except UNREADABLE as error:
        tally.add(ProblemKind.SEGMENT, f"{where}: {error}; {held} were in it")
        return tally, False
    return tally, not agreement.doubts(segment.number)


def _note_lost(objects: Objects, segment: Segment, lost: dict[int, list[int]]) -> None:
    """Which seqs a damaged segment held, if its index is there: they are not missing as well."""
    try:
        index = read_index(objects, segment)
    except (Corrupt, *UNREADABLE):
        return
    for log, first, last in zip(*(index.column(n).to_pylist() for n in SPANNED), strict=True):
        lost[log] = ranges.add(lost.get(log, []), first, last)


def check_seqs(spark: SparkSession, place: StoreLocation, view: AuditView) -> None:
    """Each seq of a log is in one segment, along their order; what is missing is dead."""
    segments, examples_max = view.manifest.segments, view.tally.examples_max
    if not segments:
        return
    steps = _steps(spark, place, segments).persist()
    try:
        twice = steps.where("seq <= before or place < before_place")
        view.tally.join(tally_rows(twice, _tell_twice, examples_max))
        # Loaded after the rows were read: what went missing meanwhile is marked by now.
        marks = _newest_marks(place.open(), view.manifest)
        if marks is not None:
            gaps = _lasting_gaps(steps, _with_lost(marks, view.lost))
            view.tally.join(tally_rows(gaps, _tell_gap, examples_max))
    finally:
        steps.unpersist()


def _tell_twice(row: dict[str, Any]) -> tuple[ProblemKind, str]:
    return ProblemKind.TWICE, (
        f'log "{row["log"]}", seq {row["seq"]}: in segment {row[NUMBER]}, and in '
        f"{row['before_segment']} as well or after it"
    )


def _tell_gap(row: dict[str, Any]) -> tuple[ProblemKind, str]:
    return ProblemKind.MISSING, (
        f'log "{row["log"]}", seqs {row["before"] + 1} to {row["seq"] - 1}: missing before segment '
        f"{row[NUMBER]}, and not marked as dead"
    )


def _newest_marks(objects: Objects, manifest: Manifest) -> Marks | None:
    """What is dead by now, or was in the version at hand; nothing where nobody can tell."""
    try:
        return load(objects)[1]
    except (Corrupt, FileNotFoundError):
        try:
            return load_marks(objects, manifest)
        except (Corrupt, FileNotFoundError):
            return None


def _with_lost(marks: Marks, lost: dict[int, list[int]]) -> Marks:
    dead = dict(marks.dead)
    for log, spans in lost.items():
        held = list(dead.get(log, EMPTY))
        for first, last in ranges.pairs(spans):
            held = ranges.add(held, first, last)
        dead[log] = held
    return Marks(marks.live, dead)


def _steps(spark: SparkSession, place: StoreLocation, segments: Sequence[Segment]) -> DataFrame:
    """Each row with the one of its log before it, where there is something to say about them."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    order = [(segment.number, at) for at, segment in enumerate(segments)]
    places = small_table(spark, order, (NUMBER, pa.int64()), ("place", pa.int64()))
    rows = read(spark, place, segments, ("log", "log_id", "seq"))
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
    "published": check_published,
    "files": check_files,
    "seqs": check_seqs,
    "builds": check_build_files,
    "postings": check_postings,
    "rollups": check_rollups,
}
