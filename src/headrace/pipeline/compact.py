"""Compaction: runs of small segments with many logs become large ones, in which each log lies
together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.batching import batches
from headrace.formats.manifest import Manifest, Segment
from headrace.pipeline import crash_points
from headrace.pipeline.commit import replace_segments
from headrace.pipeline.errors import Damaged, JobFailed, Overtaken
from headrace.pipeline.proof import prove, require_sound
from headrace.pipeline.report import Progress, Report, no_progress
from headrace.pipeline.rewrite import SPANS, rewrite
from headrace.pipeline.rows import read
from headrace.pipeline.segment_index import SPANNED, read_spans
from headrace.pipeline.store_location import StoreLocation, load
from headrace.printing import count, size
from headrace.storage import manifests
from headrace.storage.leases import hold_lease

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Sizes(msgspec.Struct, frozen=True):
    """What is small, and what is large enough."""

    output_bytes: int = 128 << 20
    """Record bytes of a segment that compaction makes; half of it is small."""
    run_min: int = 4
    """Segments worth the work."""
    run_max: int = 256
    run_bytes: int = 1 << 30
    """What one run may hold: it goes through one shuffle."""


def find_runs(segments: Sequence[Segment], sizes: Sizes) -> list[list[Segment]]:
    """Neighbours that are small, in runs that are worth the work and not too large for one go."""
    runs: list[list[Segment]] = []
    for small, found in groupby(segments, lambda s: s.record_bytes * 2 < sizes.output_bytes):
        if small:
            runs += batches(found, lambda s: s.record_bytes, sizes.run_bytes, sizes.run_max)
    return [run for run in runs if len(run) >= sizes.run_min]


def plan_spans(pieces: pa.Table, names: Mapping[int, str], output_bytes: int) -> pa.Table:
    """Which seqs of which log go to which output: by name and seq, cut at the size of an output."""
    logs, firsts, lasts, sizes = (pieces.column(name).to_numpy() for name in SPANNED)
    ids, own = np.unique(logs, return_inverse=True)
    places = sorted(range(len(ids)), key=lambda at: (names[int(ids[at])], ids[at]))
    ranks = np.empty(len(ids), np.int64)
    ranks[places] = np.arange(len(ids))
    order = np.lexsort((firsts, ranks[own]))
    outputs = _outputs(np.cumsum(sizes[order]), output_bytes)
    logs, firsts, lasts = logs[order], firsts[order], lasts[order]
    changes = (np.diff(logs, prepend=-1) != 0) | (np.diff(outputs, prepend=-1) != 0)
    starts = np.flatnonzero(changes)
    stops = np.append(starts[1:], len(order))
    columns = logs[starts], firsts[starts], lasts[stops - 1], outputs[starts]
    return pa.Table.from_arrays([pa.array(column) for column in columns], schema=SPANS)


def _outputs(ends: np.ndarray, output_bytes: int) -> np.ndarray:
    """The output of each piece, given where it ends if all lay one behind the other."""
    starts = [0]
    while starts[-1] < len(ends):
        start = starts[-1]
        before = int(ends[start - 1]) if start else 0
        starts.append(max(start + 1, int(np.searchsorted(ends, before + output_bytes, "right"))))
    return np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))


def compact(
    spark: SparkSession,
    place: StoreLocation,
    sizes: Sizes = Sizes(),  # noqa: B008
    progress: Progress[list[Segment]] = no_progress,
) -> Report:
    """Compact every run there is, each with a commit of its own."""
    objects = place.open()
    done: list[tuple[object, ...]] = []
    problems: list[str] = []
    for run in progress(find_runs(manifests.load(objects).segments, sizes), "run"):
        try:
            done.append(_compact(spark, place, run, sizes))
        except Overtaken:
            continue  # the server dropped one of them meanwhile; the next time will see
        except Damaged as damaged:
            problems += damaged.problems  # the run stays as it is
    before, after = (sum(row[at] for row in done) for at in (1, 2))  # type: ignore[misc]
    summary = f"{count(before, 'segment')} became {after}" if done else "nothing to compact"
    return Report("segments from to rows before after logs", done, f"{place}: {summary}", problems)


def _compact(
    spark: SparkSession, place: StoreLocation, run: list[Segment], sizes: Sizes
) -> tuple[object, ...]:
    objects = place.open()
    manifest, marks = load(objects)
    _require(manifest, run)
    require_sound(spark, place, run)
    with hold_lease(objects, "compact") as lease:
        pieces = read_spans(spark, place, run, lease.token)
        names = _names(read(spark, place, run).select("log_id", "log").distinct().collect(), pieces)
        spans = plan_spans(pieces, names, sizes.output_bytes)
        outputs = [one.segment for one in rewrite(spark, place, run, marks, lease, spans)]
        prove(spark, place, run, outputs, marks, lease)
        crash_points.point("proved")
        replace_segments(objects, run, outputs, lease)
    return (
        f"{run[0].number}–{run[-1].number}",
        len(run),
        len(outputs),
        sum(output.rows for output in outputs),
        size(sum(segment.file_bytes for segment in run)),
        size(sum(output.file_bytes for output in outputs)),
        len(names),
    )


def _names(rows: Sequence[Any], pieces: pa.Table) -> dict[int, str]:
    """The names of all logs; what is collected may be less than was found."""
    names = {row.log_id: row.log for row in rows}
    lost = set(pc.unique(pieces.column("log_id")).to_pylist()) - names.keys()
    if lost:
        raise JobFailed(f"log {min(lost)} and {len(lost) - 1} more are in no row of their segments")
    return names


def _require(manifest: Manifest, run: Sequence[Segment]) -> None:
    if not manifest.numbers.issuperset(segment.number for segment in run):
        raise Overtaken("a segment is gone")
