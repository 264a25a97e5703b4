"""Erasure: records that are dead leave the bytes.

Segments with dead rows are rewritten without them, one for one; indexes that have seen them go and
are made anew; and the old objects are removed, at once if asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.core.name_patterns import NamePatterns
from headrace.formats.manifest import Manifest, Segment
from headrace.formats.marks import Marks
from headrace.pipeline import crash_points
from headrace.pipeline.commit import replace_segments
from headrace.pipeline.errors import JobFailed, Overtaken
from headrace.pipeline.janitor import remove_now, retired_names
from headrace.pipeline.logs import check_logs, is_meant, parse_logs
from headrace.pipeline.proof import find_damages, prove
from headrace.pipeline.remains import tell_remains
from headrace.pipeline.report import Progress, Report, no_progress
from headrace.pipeline.rewrite import rewrite
from headrace.pipeline.rows import is_live, read
from headrace.pipeline.segment_index import touched_segments
from headrace.pipeline.store_location import StoreLocation, load
from headrace.printing import count
from headrace.storage.leases import hold_lease
from headrace.storage.objects import Objects

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_GROUP = 4
"""Segments rewritten together."""


def find_dead(
    spark: SparkSession, place: StoreLocation, manifest: Manifest, marks: Marks, logs: NamePatterns
) -> tuple[list[tuple[Segment, int]], list[str]]:
    """Segments with rows that are dead, and how many; of these logs, if any are named.

    And what is wrong with segments of which nobody can tell.
    """
    # The index companions tell which segments are worth reading.
    suspects, problems = touched_segments(spark, place, manifest.segments, marks)
    damages = find_damages(spark, place, suspects)
    suspects = [segment for segment in suspects if segment.number not in damages]
    rows = read(spark, place, suspects).where(~is_live(marks)).where(is_meant(logs))
    dead = {row.segment: row["count"] for row in rows.groupBy("segment").count().collect()}
    found = [(segment, dead[segment.number]) for segment in suspects if segment.number in dead]
    return found, [*problems, *damages.values()]


def erase(
    spark: SparkSession,
    place: StoreLocation,
    *,
    now: bool = False,
    logs: tuple[str, ...] = (),
    progress: Progress[Sequence[tuple[Segment, int]]] = no_progress,
) -> Report:
    """Rewrite every segment with dead rows, each with a commit of its own; only those with dead
    rows of some logs, if names or prefixes are given.
    """
    meant = parse_logs(logs)
    objects = place.open()
    manifest, marks = load(objects)
    check_logs(spark, place, manifest, meant)
    if manifest.marks is None:
        what = "the server has marked nothing as dead yet"
        return Report("", [], f"{place}: {what}", notes=tell_remains(place))
    done: list[tuple[object, ...]] = []
    retired: set[str] = set()
    found, problems = find_dead(spark, place, manifest, marks, meant)
    for group in progress(
        [found[at : at + _GROUP] for at in range(0, len(found), _GROUP)], "group"
    ):
        for row, gone in _erase(spark, place, objects, group, marks):
            done.append((*row, "removed" if now else "after the grace"))
            retired |= gone
    if now:
        # What earlier jobs left for readers of older manifests may hold dead records, too.
        remove_now(objects, retired | retired_names(objects))
        _require_gone(objects, retired)
    rows = sum(row[2] for row in done)  # type: ignore[misc]
    what = f"{count(rows, 'dead record')} left {count(len(done), 'segment')}"
    if done:
        what += "; every new file was read again and holds none of them"
        what += ", and the old objects are removed" if now else "; the janitor removes the old ones"
    else:
        what = f"no sealed record{f' of {meant}' if meant else ''} is dead"
    if problems:
        what += f"; {count(len(problems), 'segment')} could not be looked at"
    titles, summary = "segment became dead kept old", f"{place}: {what}"
    return Report(titles, done, summary, problems, tell_remains(place))


def _erase(
    spark: SparkSession,
    place: StoreLocation,
    objects: Objects,
    group: Sequence[tuple[Segment, int]],
    marks: Marks,
) -> Iterator[tuple[tuple[object, ...], frozenset[str]]]:
    """Rewrite some segments together and commit them one by one."""
    there = load(objects)[0].numbers
    group = [(segment, dead) for segment, dead in group if segment.number in there]
    sources = [segment for segment, _ in group]
    with hold_lease(objects, "erase") as lease:
        written = rewrite(spark, place, sources, marks, lease)
        prove(spark, place, sources, [one.segment for one in written], marks, lease)
        crash_points.point("proved")
        for at, (segment, dead) in enumerate(group):
            outputs = [one.segment for one in written if one.output == at]
            try:
                published = replace_segments(objects, [segment], outputs, lease)
            except Overtaken:
                continue  # dropped or rewritten by somebody else meanwhile
            new = [s.number for s in published.manifest.segments if segment.number in s.sources]
            kept = sum(output.rows for output in outputs)
            row = segment.number, str(new[0]) if new else "nothing", dead, kept
            yield row, published.gone


def _require_gone(objects: Objects, retired: set[str]) -> None:
    left = [name for name in retired if objects.look(name) is not None]
    if left:
        raise JobFailed(f"{left[0]} and {len(left) - 1} more objects could not be removed")
