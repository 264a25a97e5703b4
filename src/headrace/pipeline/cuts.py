"""Cuts: where the outputs of a rewrite begin, by log and seq.

Index companions tell how many bytes of which logs lie where, in as many rows as there are logs in
row groups. A task makes a few points of the companion of its segment, each with the bytes from
there to the next; the driver puts those of all segments in order and cuts them into outputs. How
many points it holds depends on outputs and segments, and not on how many logs there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow.parquet as pq

from headrace.core.errors import Corrupt
from headrace.formats.manifest import Segment
from headrace.pipeline.errors import Damaged
from headrace.pipeline.limits import POINTS, POINTS_MAX
from headrace.pipeline.segment_index import index_bytes, read_index
from headrace.pipeline.store_location import StoreLocation
from headrace.pipeline.tasks import run_tasks
from headrace.storage.leases import HeldLease
from headrace.storage.objects import Objects
from headrace.storage.replaced_objects import Vanished, gone_is_vanished

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

Part = Sequence[Segment]
"""Neighbours whose rows go to outputs of their own."""


class Cut(msgspec.Struct, frozen=True, order=True):
    """The least row of an output: all that are no less, up to the next cut, go there."""

    part: int
    log: str = ""
    log_id: int = 0
    seq: int = 0


class Point(msgspec.Struct, frozen=True, order=True, array_like=True):
    """A row of a segment, and the bytes of records from there to the next point."""

    log: str
    log_id: int
    seq: int
    size_bytes: int


def find_cuts(
    spark: SparkSession,
    place: StoreLocation,
    parts: Sequence[Part],
    output_bytes: int,
    lease: HeldLease,
) -> list[Cut]:
    """Where each output but the first begins; `Damaged` when a companion does not tell."""
    outputs = [count_outputs(part, output_bytes) for part in parts]
    large = [
        (at, segment, step_between(segment, len(part), output_bytes))
        for at, part in enumerate(parts)
        for segment in part
        if outputs[at] > 1
    ]
    sizes = [index_bytes(segment) for _, segment, _ in large]
    found: list[Any] = run_tasks(spark, place, partial(_weigh, place), large, lease.token, sizes)
    damages = [answer for answer in found if isinstance(answer, str)]
    if damages:
        raise Damaged(damages)
    cuts = [Cut(at) for at in range(1, len(parts))]
    points: dict[int, list[Point]] = {}
    for (at, _, _), answer in zip(large, found, strict=True):
        points.setdefault(at, []).extend(answer)
    for at, own in points.items():
        cuts += [Cut(at, *key) for key in cut_points(own, outputs[at])]
    return sorted(cuts)


def count_outputs(part: Part, output_bytes: int) -> int:
    """As few outputs as can be of no more than this size."""
    return max(1, -(-sum(segment.record_bytes for segment in part) // output_bytes))


def step_between(segment: Segment, segments: int, output_bytes: int) -> int:
    """The bytes from one point of a segment to the next.

    All of them count where the point is, though they lie behind it: of so many segments at once.
    """
    return max(1, output_bytes // (POINTS * segments), segment.record_bytes // POINTS_MAX)


def cut_points(points: Iterable[Point], outputs: int) -> list[tuple[str, int, int]]:
    """The keys at which points fall into so many outputs of about the same size; fewer, where one
    point is larger than an output.
    """
    ordered = sorted(points)
    total = sum(point.size_bytes for point in ordered)
    cuts: list[tuple[str, int, int]] = []
    before, output = 0, 0
    for point in ordered:
        own = before * outputs // total if total else 0
        if own > output:
            cuts.append((point.log, point.log_id, point.seq))
            output = own
        before += point.size_bytes
    return cuts


def _weigh(place: StoreLocation, item: tuple[int, Segment, int]) -> list[Point] | str:
    """The task: points of a segment; or what is wrong with its companion."""
    _, segment, step_bytes = item
    try:
        return weigh(place.open(), segment, step_bytes)
    except (Corrupt, Vanished) as damage:
        return str(damage)


def weigh(objects: Objects, segment: Segment, step_bytes: int) -> list[Point]:
    """A point for about so many bytes of records, and one for the first row."""
    index = read_index(objects, segment).sort_by(
        [("row_group", "ascending"), ("row_start", "ascending")]
    )
    ends = np.cumsum(index.column("record_bytes").to_numpy())
    # Segments of the same size are not to have their points at the same places.
    steps = (ends + segment.number * 7919 % step_bytes) // step_bytes
    picks = np.flatnonzero(np.diff(steps, prepend=-1))
    stops = np.append(picks[1:], len(ends))
    sizes = np.diff(ends[stops - 1], prepend=0)
    chosen = index.take(picks)
    names = _names(
        objects, segment, *(chosen.column(n).to_pylist() for n in ("row_group", "row_start"))
    )
    ids, seqs = (chosen.column(name).to_pylist() for name in ("log_id", "first_seq"))
    return [Point(*point) for point in zip(names, ids, seqs, sizes.tolist(), strict=True)]


def _names(objects: Objects, segment: Segment, groups: list[int], rows: list[int]) -> list[str]:
    """The names of the logs of these rows; nothing else of the segment is read."""
    with gone_is_vanished(segment.name):
        file = pq.ParquetFile(objects.open(segment.name))
        names: list[str] = []
        held, column = -1, None
        for group, row in zip(groups, rows, strict=True):
            if group != held:
                held = group
                column = file.read_row_group(group, ["log"], use_threads=False).column("log")
            assert column is not None
            names.append(column[row].as_py())
    return names


def output_of(cuts: Sequence[Cut], part: Column) -> Column:
    """The output of each row, by the part it is of."""
    from pyspark.sql import functions as F  # noqa: N812

    row = F.struct(part.cast("int"), "log", "log_id", "seq")

    def search(low: int, high: int) -> Column:
        if low == high:
            return F.lit(low)
        middle = (low + high) // 2
        cut = cuts[middle]
        bound = F.struct(
            F.lit(cut.part),
            F.lit(cut.log),
            F.lit(cut.log_id).cast("long"),
            F.lit(cut.seq).cast("long"),
        )
        return F.when(row < bound, search(low, middle)).otherwise(search(middle + 1, high))

    return search(0, len(cuts))
