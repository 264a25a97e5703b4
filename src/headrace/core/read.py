"""What one read may return: where it starts and stops, and which loss it reports first."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from enum import Enum
from functools import partial

import msgspec

from headrace.core import ranges
from headrace.core.limits import PICKED_ROWS, RECORD_OVERHEAD_BYTES
from headrace.core.log import Log
from headrace.core.ranges import EMPTY, Ranges
from headrace.core.record import Block
from headrace.core.selector import Picks, Selector


class Loss(Enum):
    """Why records are missing."""

    CAP = "cap"
    TTL = "ttl"
    MIXED = "mixed"
    RECREATED = "recreated"
    RESTART = "restart"
    SOURCE_TRIM = "source_trim"


class Gap(msgspec.Struct, frozen=True):
    """What retention, a crash or a new instance of the log took: [first, last], inclusive."""

    first: int
    last: int
    reason: Loss


class Slice(msgspec.Struct, frozen=True, gc=False):
    """Records of one block, by index."""

    block: Block
    picks: range | list[int]


class Page(msgspec.Struct, gc=False):
    """Result of one read."""

    slices: list[Slice]
    next: int
    head: int
    earliest: int
    gap: Gap | None
    scanned: int
    scanned_bytes: int = 0
    """Of payload, where somebody counted."""
    limited: bool = False
    """Whether it ended because enough was looked at."""

    @property
    def caught_up(self) -> bool:
        return self.next == self.head

    @property
    def count(self) -> int:
        return sum(len(piece.picks) for piece in self.slices)

    def shorten(self, count_max: int) -> None:
        """Leave out all but the first so many records."""
        kept: list[Slice] = []
        for piece in self.slices:
            if not count_max:
                break
            picks = piece.picks[:count_max]
            kept.append(Slice(piece.block, picks))
            count_max -= len(picks)
        self.slices = kept

    def forget(self, deleted: Ranges) -> None:
        """Leave out what was deleted since the page was made."""
        self.slices = without(self.slices, deleted)


def without(slices: list[Slice], deleted: Ranges) -> list[Slice]:
    """The slices, less what was deleted since they were made."""
    return [left for piece in slices if (left := _without(piece, deleted)).picks]


def _without(piece: Slice, deleted: Ranges) -> Slice:
    block, picks = piece.block, piece.picks
    if not ranges.touches(deleted, block.seq_at(picks[0]), block.seq_at(picks[-1])):
        return piece
    return Slice(block, [at for at in picks if not ranges.contains(deleted, block.seq_at(at))])


class ReadPlan(msgspec.Struct, frozen=True):
    """Look at [start, last]; `gap` was passed on the way to `start`."""

    start: int
    last: int
    gap: Gap | None


def plan(log: Log, visible: int, after: int, epoch: int | None) -> ReadPlan:
    """Where a read after `after` begins, and how far it may go before it meets the next gap.

    It never goes past `visible`, though appends under way may have moved the floor beyond that.
    """
    gap: Gap | None = None
    start = min(log.earliest, visible + 1)
    if after > visible or (epoch is not None and epoch != log.id):
        gap = Gap(1, visible, Loss.RECREATED)
    elif after + 1 < log.floor:
        if after + 1 < start:
            gap = Gap(after + 1, start - 1, _reason(log, after + 1))
    else:
        gap, start = _skip(log, after + 1, visible)
    last = visible
    for lost in (log.gaps, log.holes):
        if lost and (behind := next(ranges.overlap(lost, start, last), None)):
            last = behind[0] - 1
    return ReadPlan(start, last, gap)


def _skip(log: Log, seq: int, visible: int) -> tuple[Gap | None, int]:
    """Past deleted seqs in silence, past the first lost range with a word about it."""
    gap = None
    while seq <= visible and log.missing:
        if (end := min(ranges.end_of(log.deleted, seq), visible)) >= seq:
            seq = end + 1  # more of it may be superseded by what came with it
        elif gap is None and (end := ranges.end_of(log.gaps, seq)) >= seq:
            gap = Gap(seq, end, Loss.RESTART)
            seq = end + 1
        elif gap is None and (end := min(ranges.end_of(log.holes, seq), visible)) >= seq:
            gap = Gap(seq, end, Loss.SOURCE_TRIM)  # more of it may not be committed yet
            seq = end + 1
        else:
            break
    return gap, seq


def _reason(log: Log, first: int) -> Loss:
    by_cap, by_ttl = log.floor_cap > first, log.floor_ttl > first
    if by_cap and by_ttl:
        return Loss.MIXED
    if by_cap:
        return Loss.CAP
    return Loss.TTL if by_ttl else Loss.RESTART


class Budget(msgspec.Struct, frozen=True):
    """How much one read may return and examine."""

    records: int
    size_bytes: int
    scanned: int


class Gathering:
    """Takes blocks in ascending order and keeps what one page may hold.

    Skipped records move the cursor; a record that does not fit the byte budget stops it. At least
    one record is always kept, so that a reader makes progress. Should the floor overtake a read
    under way, the page ends there, and the next read reports the gap.
    """

    def __init__(
        self,
        log: Log,
        plan: ReadPlan,
        budget: Budget,
        selector: Selector,
        *,
        takes_deleted: bool = False,
    ) -> None:
        self._log = log
        self._takes_deleted = takes_deleted
        """Whether what is given was not deleted by anybody, only superseded."""
        self._plan = plan
        self._budget = budget
        self._selector = selector.bind(log.config)
        self._records = 0
        self._bytes = 0
        self.slices: list[Slice] = []
        self.scanned = 0
        self.next = plan.start - 1
        self.full = False

    def take(self, block: Block) -> bool:
        """Look at a block; False when the page is full or the plan's end is reached."""
        if self._overtaken():
            return False
        start, stop = block.index(self.next + 1), block.stop_index(self._plan.last)
        if start < stop:
            clean = not ranges.touches(self._deleted, block.seq_at(start), block.seq_at(stop - 1))
            if clean and self._selector.takes_all(block):
                self._take_all(block, start, stop)
            else:
                self._take_each(block, start, stop)
        if not self.full and block.last >= self.next:
            self.next = min(block.last, self._plan.last)
        return not self.full and self.next < self._plan.last

    def _take_all(self, block: Block, start: int, stop: int) -> None:
        wanted = min(stop, start + self._budget.records - self._records)
        size = block.measure(start, wanted)
        room = self._budget.size_bytes - self._bytes
        if size > room:
            wanted = self._fit(block, start, wanted, room)
            size = block.measure(start, wanted)
        if wanted > start:
            self.slices.append(Slice(block, range(start, wanted)))
            self._records += wanted - start
            self._bytes += size
            self.scanned += wanted - start
            self.next = block.seq_at(wanted - 1)
        self.full = wanted < stop or self._records >= self._budget.records or self._spent()

    def _fit(self, block: Block, start: int, stop: int, room: int) -> int:
        """How many of the records go into the room; the first of a page always does."""
        fit = bisect_right(range(start + 1, stop + 1), room, key=partial(block.measure, start))
        return start + (fit or self._records == 0)

    def _take_each(self, block: Block, start: int, stop: int) -> None:
        taken: list[int] = []
        deleted, budget = self._deleted, self._budget
        cuts, base, metas = block.cuts(), block.base, block.metas
        while start < stop and not self.full:
            rows = max(1, min(PICKED_ROWS, budget.scanned - self.scanned))
            end = min(stop, start + rows)
            for at in self._selector.pick(block, range(start, end)):
                if deleted and ranges.contains(deleted, block.seq_at(at)):
                    continue
                # Of those alone that are picked: a block may have many that are not.
                size = cuts[at] - (cuts[at - 1] if at else base) + RECORD_OVERHEAD_BYTES
                if metas is not None:
                    size += len(metas[at] or b"")
                if self._records and self._bytes + size > budget.size_bytes:
                    end, self.full = at, True
                    break
                taken.append(at)
                self._records += 1
                self._bytes += size
                if self._records >= budget.records:
                    end, self.full = at + 1, True
                    break
            if end > start:
                self.next = block.seq_at(end - 1)
            self.scanned += end - start
            self.full = self.full or self._spent()
            start = end
        if taken:
            self.slices.append(Slice(block, taken))

    @property
    def _deleted(self) -> Ranges:
        return EMPTY if self._takes_deleted else self._log.deleted

    def _spent(self) -> bool:
        return self.scanned >= self._budget.scanned

    def _overtaken(self) -> bool:
        return self._log.floor > self.next + 1

    def page(self, visible: int) -> Page:
        """The page as gathered; the cursor rests at the plan's end when nothing more can follow."""
        if not self.full and not self._overtaken():
            self.next = max(self.next, self._plan.last)
        earliest = min(self._log.earliest, visible + 1)
        return Page(self.slices, self.next, visible, earliest, self._plan.gap, self.scanned)


def gather_known(
    log: Log,
    picked: Iterable[tuple[Block, Picks]],
    plan: ReadPlan,
    budget: Budget,
) -> Page:
    """The page of what was picked before, block by block; nothing in the plan is gone or deleted.

    The same as a `Gathering` with its selector gives, without a look at what was not picked.
    """
    slices: list[Slice] = []
    records = size_bytes = 0
    start, last, next = plan.start, plan.last, plan.last
    pieces: list[tuple[Block, Picks]] = []
    for block, picks in picked:
        if block.last < start:
            continue
        if block.first < start or block.last > last:
            picks = [at for at in picks if start <= block.seq_at(at) <= last]
        pieces.append((block, picks))
        records += len(picks)
        size_bytes += block.size_bytes
    if records < budget.records and size_bytes <= budget.size_bytes:
        # All of it, as nearly always: whole blocks would go in.
        slices = [Slice(block, picks) for block, picks in pieces if picks]
        pieces = []
    records = size_bytes = 0
    for block, picks in pieces:
        cuts, base, metas = block.cuts(), block.base, block.metas
        count = len(picks)
        for place, at in enumerate(picks):
            size = cuts[at] - (cuts[at - 1] if at else base) + RECORD_OVERHEAD_BYTES
            if metas is not None:
                size += len(metas[at] or b"")
            size_bytes += size
            if records + place and size_bytes > budget.size_bytes:
                count, next = place, block.seq_at(at) - 1
                break
            if records + place + 1 >= budget.records:
                count, next = place + 1, block.seq_at(at)
                break
        if count:
            slices.append(Slice(block, picks[:count]))
            records += count
        if next < last:
            break
    earliest = min(log.earliest, last + 1)
    return Page(slices, next, last, earliest, None, records)
