"""Which task reads what: ranges of logs cut into pieces of segments and pages of the server.

Pure: everything that is known comes in, partitions come out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import msgspec
from pyspark.sql.datasource import InputPartition

from headrace.core import ranges
from headrace.core.ranges import Ranges
from headrace.formats.log_plan import LogPlan
from headrace.spark.catalog import Placed
from headrace.spark.options import RecordSelection

GROUPS_MAX = 8
"""Row groups of a segment that are read in one go."""
TASK_BYTES_MIN, TASK_BYTES_MAX = 4 << 20, 64 << 20
"""Record bytes that one task reads from segments. A Python task costs some 50 ms before it reads
anything, so small pieces are read by one; where there is little, every core still has a task."""
TASKS_A_CORE = 2
PAGE_SEQS_MAX = 131_072
"""Seqs that one task asks the server for."""
CALL_BYTES = 32 << 10
"""What a call to the server weighs, however little it brings."""


class Want(msgspec.Struct, frozen=True):
    """A range of one log that is to be read."""

    plan: LogPlan
    first: int
    last: int

    @property
    def gone(self) -> Ranges:
        """Seqs of it that hold no record."""
        dead: list[int] = []
        for spans in (self.plan.deleted, self.plan.lost):
            if isinstance(spans, list):
                flat = [seq for span in spans for seq in span]
                dead = list(ranges.union(dead, flat))
        return dead


class Rows(msgspec.Struct, frozen=True):
    """Rows of a row group that lie together, and which of their seqs count."""

    log: str
    epoch: int
    group: int
    start: int
    count: int
    first: int
    last: int
    gone: tuple[int, ...]
    """Seqs between them that do not, as ranges."""
    whole: bool
    """All of them count."""
    size_bytes: int = 0


class SegmentPart(InputPartition):
    """Rows of one segment."""

    def __init__(self, segment: str, rows: Sequence[Rows]) -> None:
        self.segment = segment
        self.rows = list(rows)

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.rows)


class ServerPart(InputPartition):
    """A range of one log, from the server."""

    def __init__(self, log: str, epoch: int, first: int, last: int, size_bytes: int = 0) -> None:
        self.log = log
        self.epoch = epoch
        self.first = first
        self.last = last
        self.size_bytes = size_bytes


Part = SegmentPart | ServerPart


class Bundle(InputPartition):
    """Rows of several segments or logs, read by one task."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = list(parts)


def split(
    wants: Iterable[Want],
    placed: Mapping[int, list[Placed]],
    wanted: RecordSelection,
    *,
    served: bool,
) -> list[Part]:
    """Partitions for these ranges; without a server, what is in no segment is not there."""
    by_segment: dict[str, list[Rows]] = {}
    parts: list[Part] = []
    for want in wants:
        gone = want.gone
        covered: list[int] = []
        for place, rows in _sealed(want, placed.get(want.plan.epoch, []), gone):
            covered = list(ranges.union(covered, (place[0], place[1])))
            if rows is not None and not _is_out_of_time(place, wanted):
                by_segment.setdefault(place[2], []).append(rows)
        if served:
            parts += _served(want, covered, gone)
    for segment, rows_of in by_segment.items():
        parts += _tasks(segment, rows_of)
    return parts


_Place = tuple[int, int, str, int, int]
"""(first, last, segment, last time, time of the record before), times in milliseconds"""


def _sealed(
    want: Want, places: Sequence[Placed], gone: Ranges
) -> Iterator[tuple[_Place, Rows | None]]:
    """What of a range lies in segments.

    A span of the plan may hold many pieces, and a piece may lie in several spans; those that are
    outside the range hold nothing of it.
    """
    if not isinstance(want.plan.sealed, list):
        return
    told = ranges.from_pairs(want.plan.sealed)
    before = -1
    for placed in places:
        piece = placed.piece
        for first, last in ranges.overlap(
            told, max(piece.first, want.first), min(piece.last, want.last)
        ):
            place = (first, last, placed.segment, piece.last_ts, before)
            dead = tuple(seq for pair in ranges.overlap(gone, first, last) for seq in pair)
            if dead[:2] == (first, last):
                yield place, None
                continue
            yield (
                place,
                Rows(
                    want.plan.log,
                    want.plan.epoch,
                    piece.row_group,
                    piece.row_start,
                    piece.rows,
                    first,
                    last,
                    dead,
                    not dead and first <= piece.first and last >= piece.last,
                    piece.record_bytes,
                ),
            )
        before = max(before, piece.last_ts)


def _is_out_of_time(place: _Place, wanted: RecordSelection) -> bool:
    """Times never fall inside a log: a piece that ends too early, or begins too late, is out."""
    _, _, _, last_ts, before = place
    return (last_ts + 1) * 1000 <= wanted.since_us or before * 1000 > wanted.until_us


def _served(want: Want, covered: Ranges, gone: Ranges) -> Iterator[ServerPart]:
    known = ranges.union(list(covered), gone)
    record_bytes = want.plan.bytes // max(1, want.plan.count)
    for low, high in ranges.outside(known, want.first, want.last):
        for first in range(low, high + 1, PAGE_SEQS_MAX):
            last = min(high, first + PAGE_SEQS_MAX - 1)
            size_bytes = CALL_BYTES + record_bytes * (last - first + 1)
            yield ServerPart(want.plan.log, want.plan.epoch, first, last, size_bytes)


def _tasks(segment: str, rows: list[Rows]) -> Iterator[SegmentPart]:
    rows.sort(key=lambda each: (each.group, each.start))
    some: list[Rows] = []
    groups = 0
    for _, of_group in groupby(rows, key=lambda each: each.group):
        some += of_group
        groups += 1
        if groups == GROUPS_MAX or sum(each.size_bytes for each in some) >= TASK_BYTES_MAX:
            yield SegmentPart(segment, some)
            some, groups = [], 0
    if some:
        yield SegmentPart(segment, some)


def bundled(parts: Iterable[Part], cores: int) -> list[InputPartition]:
    """One partition for each task: what is small goes together, in order."""
    found: list[InputPartition] = []
    weighed = [(part, part.size_bytes) for part in parts]
    share = sum(size_bytes for _, size_bytes in weighed) / (cores * TASKS_A_CORE)
    enough = min(max(share, TASK_BYTES_MIN), TASK_BYTES_MAX)
    bundle: list[Part] = []
    held = 0
    for part, size_bytes in weighed:
        bundle.append(part)
        held += size_bytes
        if held >= enough:
            found.append(Bundle(bundle))
            bundle, held = [], 0
    return [*found, Bundle(bundle)] if bundle else found


def wants_of(plans: Iterable[LogPlan], wanted: RecordSelection) -> list[Want]:
    """For a batch: all that is there now."""
    found = []
    for plan in plans:
        if not wanted.takes(plan.log):
            continue
        first, last = max(wanted.first, plan.earliest_seq), min(wanted.last, plan.head_seq)
        if first <= last:
            found.append(Want(plan, first, last))
    return found
