"""One log: its seqs, floors, gaps and retained records.

Decisions return entries; `core.apply` alone changes it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from operator import itemgetter

import msgspec

from headrace.core import ranges, retention
from headrace.core.config import Discard, Kind, LogConfig
from headrace.core.contents import Contents
from headrace.core.entry import (
    Reserve,
    Trim,
)
from headrace.core.errors import Code, Refused
from headrace.core.idempotency import Keys
from headrace.core.inbound_route import InboundRoute
from headrace.core.origin import Origins
from headrace.core.queue_state import Queue
from headrace.core.ranges import EMPTY, Ranges
from headrace.core.record import Block, Drafts, block
from headrace.core.retention import Ledger
from headrace.core.stream_state import Stream
from headrace.core.subscription import Subscription
from headrace.core.tracker import Tracker
from headrace.core.transaction import Arrived
from headrace.core.webhook import Webhook

Extent = tuple[int, int, int]
"""(segment, first, last): the segment holds records of a log with these seqs."""
_first = itemgetter(1)


class Log(msgspec.Struct, gc=False, array_like=True):
    """State of one log.

    Not tracked by the garbage collector: a hundred thousand of them cost it nothing.
    """

    id: int
    """Unique for ever; also the epoch of this instance of the name."""
    name: str
    owner: str
    config: LogConfig
    head: int = 0
    """Highest seq given out. Readers see less while commits are under way."""
    last_ts_ms: int = 0
    reserved: int = 0
    """Highest seq that may have been acknowledged without being synced."""
    floor_cap: int = 1
    floor_ttl: int = 1
    floor_lost: int = 1
    """First seq not lost to capacity, to age, to a restart."""
    count: int = 0
    size_bytes: int = 0
    deleted: Ranges = EMPTY
    """Seqs at or above the floor that users deleted."""
    gaps: Ranges = EMPTY
    """Seqs above the floor that a restart took."""
    volatile: Ranges = EMPTY
    """Seqs whose payload only ever lived in memory (class ephemeral); floors do not shorten it."""
    keys: Keys | None = None
    ledger: Ledger | None = None
    """Kept exactly when the config trims."""
    extents: Sequence[Extent] = ()
    """Where sealed records lie, ascending by seq.

    Told by the manifest, not by entries.
    """
    stream: Stream | None = None
    """What it is beside a log, when it is a stream."""
    subscription: Subscription | None = None
    """What it is instead, when it is one: a log without records."""
    queue: Queue | None = None
    """Kept exactly when this is a queue."""
    holes: Ranges = EMPTY
    """Seqs above the floor for records that a source lost before a router could copy them."""
    inbound_routes: dict[str, InboundRoute] | None = None
    """The routers that bring records here, by name; all of them from one source."""
    origins: Origins | None = None
    """Where copies come from; nothing while no router has brought any."""
    search: bytes | None = None
    """How its records can be searched: JSON as sent; nothing for a log without such a plan."""
    arrived: Arrived | None = None
    """How far transactions have come here, those that wrote last."""
    created_by: str = ""
    """Id of the key that made it, for the caps of each key; nothing where nobody knows."""
    contents: Contents | None = None
    """What it holds by digest, when its records are contents that other logs name."""
    created_at_ms: int = 0
    """Kept for owners who tell it (`owners.DATED`)."""
    consumer: Tracker | Webhook | None = None
    """What it is instead, when it reads another log with a cursor of its own."""

    def __post_init__(self) -> None:
        """A decoder makes a list for each empty set; a hundred thousand logs share one tuple."""
        self.deleted = self.deleted or EMPTY
        self.gaps = self.gaps or EMPTY
        self.volatile = self.volatile or EMPTY
        self.extents = self.extents or ()
        if self.queue is None and self.config.kind is Kind.QUEUE:
            self.queue = Queue()
        self.holes = self.holes or EMPTY

    @property
    def floor(self) -> int:
        """The evict floor: everything below was lost involuntarily or is older than such a loss."""
        return max(self.floor_cap, self.floor_ttl, self.floor_lost)

    @property
    def inherited(self) -> int:
        """Seqs up to here are records of the stream this one was forked from."""
        stream = self.stream
        return stream.fork.upto if stream is not None and stream.fork is not None else 0

    @property
    def gone(self) -> Ranges:
        """Seqs at or above the floor that hold no live record."""
        if not self.gaps and not self.holes:
            return self.deleted
        return ranges.union(ranges.union(list(self.deleted), self.gaps), self.holes)

    @property
    def missing(self) -> tuple[Ranges, ...]:
        """The same as sets of which none is empty: nothing is copied, however large they are."""
        return tuple(filter(None, (self.deleted, self.gaps, self.holes)))

    @property
    def earliest(self) -> int:
        """Seq of the first live record, or head + 1."""
        seq = self.floor
        if not (self.deleted or self.gaps or self.holes):
            return min(seq, self.head + 1)
        while True:
            behind = 1 + max(
                ranges.end_of(self.deleted, seq),
                ranges.end_of(self.gaps, seq),
                ranges.end_of(self.holes, seq),
            )
            if behind == seq:
                return min(seq, self.head + 1)
            seq = behind

    @property
    def sealed_last(self) -> int:
        return self.extents[-1][2] if self.extents else 0

    @property
    def jobs(self) -> Queue:
        """Where the jobs are; for queues only."""
        assert self.queue is not None, f"{self.name} is not a queue"
        return self.queue


def check_owner(log: Log, owner: str | None) -> None:
    """Only the surface that made a log changes it; the others may read. We ourselves may."""
    if owner is not None and log.owner != owner:
        raise Refused(
            Code.LOG_INCOMPATIBLE,
            f'"{log.name}" is one of the {log.owner} and can only be read here',
            name=log.name,
            owner=log.owner,
        )


def live_ranges(log: Log, last: int, first: int = 1) -> Iterator[tuple[int, int]]:
    """The live seqs of its own from `first` to `last`, as (first, last), ascending."""
    first = max(first, log.floor, log.inherited + 1)
    if first <= last:
        yield from ranges.outside_all(log.missing, first, last)


def fresh_ranges(log: Log, last: int) -> Iterator[tuple[int, int]]:
    """The jobs up to `last` that were never handed out nor set aside, ascending."""
    queue = log.jobs
    first = max(queue.cursor + 1, log.floor)
    for held in (log.deleted, log.gaps, log.holes, queue.aside):
        if held and held[-1] >= first:
            break
    else:  # as a rule nothing is missing there
        if first <= last:
            yield first, last
        return
    for low, high in live_ranges(log, last, first):
        yield from ranges.outside(queue.aside, low, high)


def numbered(log: Log, drafts: Drafts, now_ms: int) -> Block:
    """The drafts as the next records."""
    return block(drafts, log.head + 1, max(now_ms, log.last_ts_ms))


def all_numbered(log: Log, parts: Iterable[Drafts], now_ms: int) -> list[Block]:
    """The drafts as the next records, a block for each part."""
    blocks: list[Block] = []
    head, ts_ms = log.head, max(now_ms, log.last_ts_ms)
    for drafts in parts:
        blocks.append(block(drafts, head + 1, ts_ms))
        head += drafts.count
    return blocks


def check_room(log: Log, records: int, size_bytes: int) -> None:
    """Refuse what does not fit into a log that rejects."""
    config = log.config
    if config.discard is not Discard.REJECT:
        return
    for cap, held, added, unit in (
        (config.cap_records, log.count, records, "records"),
        (config.cap_bytes, log.size_bytes, size_bytes, "bytes"),
    ):
        if cap and held + added > cap:
            raise Refused(
                Code.LOG_FULL,
                f'"{log.name}" is full: {held} of {cap} {unit} used, {added} more do not fit',
                topic=log.name,
                permanent=added > cap,
            )


def overflow(
    log: Log, new: Block | None = None, superseded: Ranges = EMPTY, superseded_bytes: int = 0
) -> Trim | None:
    """What must go so that the log, with the new block, stays under its caps: oldest first.

    What is superseded goes anyway, and is not counted.
    """
    config = log.config
    if log.ledger is None or config.discard is Discard.REJECT:
        return None
    records, size_bytes = (new.count, new.size_bytes) if new else (0, 0)
    missing = log.missing
    if superseded:
        records -= ranges.count(superseded)
        size_bytes -= superseded_bytes
        missing = (*missing, superseded)
    excess = log.count + records - config.cap_records if config.cap_records else 0
    excess_bytes = log.size_bytes + size_bytes - config.cap_bytes if config.cap_bytes else 0
    if excess <= 0 and excess_bytes <= 0:
        return None
    floor, count, shed = retention.overflow(log.ledger, missing, excess, excess_bytes)
    if new and (count < excess or shed < excess_bytes):
        # The new block alone is over the caps: its own oldest records go at once.
        own = retention.build(iter((new,)))
        floor, own_count, own_shed = retention.overflow(
            own, (superseded,), excess - count, excess_bytes - shed
        )
        count, shed = count + own_count, shed + own_shed
    return Trim(log.id, floor, 0, count, shed)


def growth_bytes(log: Log, records: int, size_bytes: int) -> int:
    """How much larger the log is with so many records more, about: what its caps take is alike."""
    config = log.config
    held = log.size_bytes + size_bytes
    if config.discard is not Discard.REJECT:
        if config.cap_records and log.count + records > config.cap_records:
            held = held * config.cap_records // (log.count + records)
        if config.cap_bytes:
            held = min(held, config.cap_bytes)
    return max(0, held - log.size_bytes)


def expire(log: Log, now_ms: int) -> Trim | None:
    """What is too old now."""
    if not log.config.ttl_ms or log.ledger is None:
        return None
    floor, count, shed = retention.expired(log.ledger, log.missing, log.config.ttl_ms, now_ms)
    return Trim(log.id, 0, floor, count, shed) if floor else None


def reserve(log: Log, last: int, ahead: int) -> Reserve | None:
    """Promise `ahead` more seqs when `last` comes near the end of what was promised."""
    if log.config.synced or last + ahead // 2 <= log.reserved:
        return None
    return Reserve(log.id, last + ahead)


def lost_by_restart(log: Log, *, clean: bool, same_boot: bool) -> tuple[Ranges, int]:
    """(seqs, head): what did not survive, and the highest seq that may have been acknowledged.

    Payloads of class ephemeral never survive. After an unclean stop, seqs promised ahead may have
    been given out: by ephemeral appends, which are not journaled; or by others, when the system
    itself went down and took with it what it had accepted but not yet synced.
    """
    head = log.head
    if not clean and not (same_boot and log.config.journaled) and not log.config.synced:
        head = max(head, log.reserved)
    lost = ranges.union(EMPTY, log.volatile)
    if head > log.head:
        lost = ranges.add(lost, log.head + 1, head)
    return lost, head


def place(log: Log, known: Container[int], new: Iterable[Extent] = ()) -> None:
    """The manifest says where sealed records lie: in segments it knows, and newly in these.

    Saying it twice changes nothing.
    """
    held = [extent for extent in log.extents if extent[0] in known]
    there = {extent[0] for extent in held}
    held += (new_ for new_ in new if new_[0] not in there and new_[2] >= log.floor)
    held.sort(key=_first)
    log.extents = held or ()


def prune_extents(log: Log) -> None:
    """Forget extents in which nothing is live any more."""
    if log.extents:
        missing, floor = log.missing, log.floor
        log.extents = [
            extent
            for extent in log.extents
            if floor <= extent[2]
            and next(ranges.outside_all(missing, max(floor, extent[1]), extent[2]), None)
        ]
