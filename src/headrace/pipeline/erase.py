"""Erasure: records that are dead leave the bytes.

Segments with dead rows are rewritten without them, each by itself; indexes that have seen them go
and are made anew; and the old objects are removed, at once if asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from headrace.core.batching import batches
from headrace.core.name_patterns import NamePatterns
from headrace.formats.manifest import Segment
from headrace.pipeline import crash_points
from headrace.pipeline.commit import replace_segments
from headrace.pipeline.errors import JobFailed
from headrace.pipeline.groups import run_groups
from headrace.pipeline.janitor import remove_now, retired_names
from headrace.pipeline.limits import GROUP_BYTES, GROUP_OUTPUTS_MAX, SEGMENT_BYTES
from headrace.pipeline.logs import check_logs, parse_logs
from headrace.pipeline.marks import begin_work
from headrace.pipeline.proof import find_damages, prove
from headrace.pipeline.remains import tell_remains
from headrace.pipeline.report import Progress, Report, no_progress
from headrace.pipeline.rewrite import rewrite
from headrace.pipeline.segment_index import touched_segments
from headrace.pipeline.store_location import StoreLocation
from headrace.pipeline.tasks import describe
from headrace.printing import count
from headrace.storage import manifests
from headrace.storage.objects import Objects

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def erase(
    spark: SparkSession,
    place: StoreLocation,
    *,
    now: bool = False,
    logs: tuple[str, ...] = (),
    progress: Progress[list[Segment]] = no_progress,
) -> Report:
    """Rewrite every segment with dead rows, several groups at a time, each with a commit of its
    own; only those with dead rows of some logs, if names or prefixes are given.
    """
    meant = parse_logs(logs)
    objects = place.open()
    manifest = manifests.load(objects)
    check_logs(spark, place, manifest, meant)
    if manifest.marks is None:
        what = "the server has marked nothing as dead yet"
        return Report("", [], f"{place}: {what}", notes=tell_remains(place))
    found, problems = find_dead(spark, place, meant)
    groups = list(batches(found, lambda s: s.record_bytes, GROUP_BYTES, GROUP_OUTPUTS_MAX))
    parts, failures = run_groups(spark, partial(_erase, spark, place), groups, progress, "group")
    problems += [problem for part in parts for problem in part.problems]
    retired = {name for part in parts for name in part.retired}
    if now:
        # What earlier jobs left for readers of older manifests may hold dead records, too.
        remove_now(objects, retired | retired_names(objects))
        _require_gone(objects, retired)
    old = "removed" if now else "after the grace"
    done: list[tuple[object, ...]] = [(*row, old) for part in parts for row in part.rows]
    rows = sum(row[2] for row in done)  # type: ignore[misc]
    what = f"{count(rows, 'dead record')} left {count(len(done), 'segment')}"
    if done:
        what += "; every new file was read again and holds none of them"
        what += ", and the old objects are removed" if now else "; the janitor removes the old ones"
    else:
        what = f"no sealed record{f' of {meant}' if meant else ''} is dead"
    if problems:
        what += f"; {count(len(problems), 'segment')} could not be looked at"
    if failures:
        what += f"; {count(len(failures), 'group')} of segments failed"
    titles, summary = "segment became dead kept old", f"{place}: {what}"
    return Report(titles, done, summary, problems + failures, tell_remains(place))


def find_dead(
    spark: SparkSession, place: StoreLocation, logs: NamePatterns
) -> tuple[list[Segment], list[str]]:
    """Segments with rows that are dead, of these logs if any are named; and what is wrong with
    those of which nobody can tell.
    """
    with describe(spark, "erase: find what is dead"), begin_work(spark, place, "erase") as work:
        segments = manifests.load(place.open()).segments
        return touched_segments(spark, place, segments, work.marks, logs)


class Erased(msgspec.Struct, frozen=True):
    """What became of a group of segments."""

    rows: list[tuple[object, ...]]
    """Segment, what it became, how many records were dead, and how many were not."""
    retired: frozenset[str]
    problems: list[str]


def _erase(spark: SparkSession, place: StoreLocation, group: Sequence[Segment]) -> Erased:
    """Rewrite some segments, each by itself, and publish them together."""
    objects = place.open()
    which = f"{group[0].number}–{group[-1].number}"
    with describe(spark, f"erase in segments {which}"), begin_work(spark, place, "erase") as work:
        damages = find_damages(spark, place, group)
        there = manifests.load(objects).numbers
        sound = [s for s in group if s.number in there and s.number not in damages]
        if not sound:
            return Erased([], frozenset(), [*damages.values()])
        outputs = rewrite(spark, place, [[segment] for segment in sound], work, SEGMENT_BYTES)
        prove(spark, place, sound, [new for made in outputs for new in made], work)
        crash_points.point("proved")
        made = list(zip(([segment] for segment in sound), outputs, strict=True))
        published = replace_segments(objects, made, work.lease)
    became: dict[int, list[int]] = {}
    for segment in published.manifest.segments:
        for source in segment.sources:
            became.setdefault(source, []).append(segment.number)
    rows = [
        _row(segment, became.get(segment.number, []), new)
        for segment, new in zip(sound, outputs, strict=True)
        if segment.number in published.replaced
    ]
    return Erased(rows, published.gone, [*damages.values()])


def _row(segment: Segment, became: Sequence[int], outputs: Sequence[Segment]) -> tuple[object, ...]:
    kept = sum(output.rows for output in outputs)
    numbers = ", ".join(map(str, became)) or "nothing"
    return segment.number, numbers, segment.rows - kept, kept


def _require_gone(objects: Objects, retired: set[str]) -> None:
    left = [name for name in retired if objects.look(name) is not None]
    if left:
        raise JobFailed(f"{left[0]} and {len(left) - 1} more objects could not be removed")
