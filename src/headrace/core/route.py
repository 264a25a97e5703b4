"""Routers: which records of a source go to a destination, where they may not go, what is lost.

Decisions return entries. What a router knows lives in its destination; `Routes` finds it there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from headrace.core import copies, ranges, supersession
from headrace.core.config import Discard
from headrace.core.copies import Copying
from headrace.core.entry import Append, Forward
from headrace.core.inbound_route import InboundRoute
from headrace.core.keyed_records import KeyedRecords
from headrace.core.limits import FORWARD_BYTES_MAX, FORWARD_RECORDS_MAX, HOPS_MAX
from headrace.core.log import Log
from headrace.core.match import TagMatch
from headrace.core.names import SortedNames
from headrace.core.origin import Path
from headrace.core.ranges import EMPTY, Ranges
from headrace.core.record import Block, cut
from headrace.core.supersession import Admitted


class Routes:
    """Every router, by name and by source: an index of the inbound routes of all logs."""

    def __init__(self) -> None:
        self.dests: dict[str, int] = {}
        """Router → the log it brings records to."""
        self.outbound_routes: dict[int, dict[str, int]] = {}
        """Source → its routers and where they lead."""
        self._names = SortedNames()

    def __len__(self) -> int:
        return len(self.dests)

    def put(self, router: str, source: int, dest: int) -> None:
        if router not in self.dests:
            self._names.add(router)
        self.dests[router] = dest
        self.outbound_routes.setdefault(source, {})[router] = dest

    def remove(self, router: str, source: int) -> None:
        del self.dests[router]
        outbound_routes = self.outbound_routes[source]
        del outbound_routes[router]
        if not outbound_routes:
            del self.outbound_routes[source]
        self._names.remove(router)

    def names(self, after: str, prefix: str) -> Iterator[str]:
        """Names with this prefix that sort after `after`, ascending."""
        return self._names.range(after, prefix)


def find_cycle(routes: Routes, router: str, source: int, dest: int) -> list[int] | None:
    """The way from `source` over `dest` back to `source`, should this router lead to `dest`."""
    came_from = {dest: source}
    waiting = deque((dest,))
    while waiting and source not in came_from:
        log = waiting.popleft()
        for name, onward in routes.outbound_routes.get(log, {}).items():
            if name != router and onward not in came_from:
                came_from[onward] = log
                waiting.append(onward)
    if source not in came_from:
        return None
    way = [source, came_from[source]]
    while way[-1] != source:
        way.append(came_from[way[-1]])
    return way[::-1]


# --- forwarding -----------------------------------------------------------------------------------


class RouteBatch(msgspec.Struct, frozen=True, gc=False):
    """What a router finds in its source: first what is lost, then what is to be copied."""

    upto: int
    holes: int = 0
    picks: Ranges = EMPTY
    parts: tuple[Block, ...] = ()
    """The picked records."""
    path: Path = ()
    """The logs they have been through, the source last."""
    cold: bool = False
    """It ends where records are not in the blocks it was shown."""

    @property
    def idle(self) -> bool:
        """Whether there is nothing in it but the way it went."""
        return not self.holes and not self.picks


class Wants(msgspec.Struct, frozen=True):
    """What a router takes from its source; what two routers want alike is found once."""

    after: int
    match: TagMatch | None = None
    barred: frozenset[Path] = frozenset()
    """Records that came this way are not for it."""
    held: tuple[int, ...] = ()
    """Records its destination has already, as ranges."""
    records_max: int = FORWARD_RECORDS_MAX
    bytes_max: int = FORWARD_BYTES_MAX


def wants(source: Log, visible: int, dest: Log, router: str) -> Wants:
    """What this router takes next."""
    assert dest.inbound_routes is not None
    inbound = dest.inbound_routes[router]
    records_max, bytes_max = _room(dest)
    return Wants(
        inbound.cursor,
        inbound.rule.match,
        _barred(source, dest, inbound),
        tuple(_held(dest, router, inbound, visible)) if inbound.rule.exactly_once else (),
        records_max,
        bytes_max,
    )


def _room(dest: Log) -> tuple[int, int]:
    """How much to bring at a time; at least one record, though the destination may refuse that."""
    config = dest.config
    records_max, bytes_max = FORWARD_RECORDS_MAX, FORWARD_BYTES_MAX
    if config.discard is Discard.REJECT:
        if config.cap_records:
            records_max = min(records_max, max(1, config.cap_records - dest.count))
        if config.cap_bytes:
            bytes_max = min(bytes_max, max(1, config.cap_bytes - dest.size_bytes))
    return records_max, bytes_max


def _barred(source: Log, dest: Log, inbound: InboundRoute) -> frozenset[Path]:
    """Ways after which a record may not go on to `dest`: it was there, or came too far."""
    if source.origins is None:
        return frozenset()
    far = inbound.rule.allow_cycle
    return frozenset(
        path for path in source.origins.paths if dest.id in path or (far and len(path) >= HOPS_MAX)
    )


def _held(dest: Log, router: str, inbound: InboundRoute, visible: int) -> Ranges:
    """Records behind the cursor whose copies are alive in the destination."""
    found: Ranges = EMPTY
    if dest.origins is None:
        return found
    gone, floor = dest.gone, dest.floor
    for first, last, start in dest.origins.copies(router, inbound.source):
        if last > inbound.cursor and first <= visible:
            for low, high in ranges.outside(gone, max(start, floor), start + last - first):
                found = ranges.add(found, first + low - start, first + high - start)
    return ranges.drop_below(found, inbound.cursor + 1)


def look(source: Log, visible: int, wanted: Wants, blocks: Iterable[Block]) -> RouteBatch:
    """What the source has for a router, in blocks that ascend from behind its cursor.

    Records that users deleted are passed in silence. Lost ones are holes; behind the first copy
    they end the batch, so that they lie between copies as they lay between records.
    """
    return _Look(source, visible, wanted, iter(blocks)).run()


class _Look:
    """One walk through a source."""

    def __init__(self, source: Log, visible: int, wanted: Wants, blocks: Iterator[Block]) -> None:
        self._source = source
        self._visible = visible
        self._wanted = wanted
        self._blocks = blocks
        self._block: Block | None = None
        self._seq = wanted.after + 1
        self._scanned = 0
        self._count = 0
        self._size = 0
        self._holes = 0
        self._picks: list[int] = []
        self._parts: list[Block] = []
        self._path: Path | None = None
        self._cold = False

    def run(self) -> RouteBatch:
        while self._seq <= self._visible and self._go_on():
            pass
        path = (*(self._path or ()), self._source.id) if self._picks or self._holes else ()
        upto = max(self._seq - 1, self._wanted.after)
        return RouteBatch(upto, self._holes, self._picks, tuple(self._parts), path, self._cold)

    def _go_on(self) -> bool:
        """Pass the next stretch of records that are all alike; False when the batch ends here."""
        source, seq = self._source, self._seq
        if seq >= source.floor:
            passed = max(ranges.end_of(source.deleted, seq), ranges.end_of(self._wanted.held, seq))
            passed = min(passed, self._visible)
            if passed >= seq:
                self._seq = passed + 1
                return True
        lost = self._lost_to(seq)
        path, last = source.origins.path_of(seq) if source.origins else ((), self._visible)
        last = min(last, self._visible, lost if lost >= seq else self._live_to(seq))
        if path in self._wanted.barred:
            self._seq = last + 1
            return True
        if self._path is None:
            self._path = path
        if path != self._path:
            return False
        return self._take(last) if lost < seq else self._lose(last)

    def _lost_to(self, seq: int) -> int:
        """The last seq of those lost from `seq` on, or seq - 1 when that one is not."""
        source = self._source
        if seq < source.floor:
            return source.floor - 1
        last = max(ranges.end_of(source.gaps, seq), ranges.end_of(source.holes, seq))
        # What a user had deleted before a restart took it is not missed.
        deleted = next(ranges.overlap(source.deleted, seq, last), None)
        return deleted[0] - 1 if deleted else last

    def _live_to(self, seq: int) -> int:
        """The last seq up to which all records are alive and wanted here."""
        source, last = self._source, self._visible
        for ended in (source.deleted, source.gaps, source.holes, self._wanted.held):
            if behind := next(ranges.overlap(ended, seq, last), None):
                last = behind[0] - 1
        return last

    def _lose(self, last: int) -> bool:
        """Records up to `last` are lost; behind a copy that ends the batch."""
        if self._picks:
            return False
        self._holes += last - self._seq + 1
        self._seq = last + 1
        return True

    def _take(self, last: int) -> bool:
        """Look at the live records up to `last`; False when the batch is full."""
        block = self._block_of(self._seq)
        if block is None:
            self._cold = True
            return False
        start, end = block.index(self._seq), block.stop_index(last)
        stop = min(end, start + FORWARD_RECORDS_MAX - self._scanned)
        stop = self._copy(block, start, stop)
        self._scanned += stop - start
        self._seq = min(last, block.last) + 1 if stop == end else block.seq_at(stop)
        return stop == end and self._scanned < FORWARD_RECORDS_MAX

    def _block_of(self, seq: int) -> Block | None:
        while self._block is None or self._block.last < seq:
            self._block = next(self._blocks, None)
            if self._block is None:
                return None
        return self._block if self._block.first <= seq else None

    def _copy(self, block: Block, start: int, stop: int) -> int:
        """Pick what is wanted of these records; returns how far there was room for it."""
        match, tags = self._wanted.match, block.tags
        records, room = self._wanted.records_max - self._count, self._wanted.bytes_max - self._size
        if match is None and stop - start <= records and block.measure(start, stop) <= room:
            self._pick(block, start, stop)
            return stop
        sizes = block.sizes()
        run = start  # what is picked already ends here
        for at in range(start, stop):
            if match is not None and not (tags and match.matches(tags[at])):
                self._pick(block, run, at)
                run = at + 1
                continue
            records, room = records - 1, room - sizes[at]
            if (records < 0 or room < 0) and (self._count or run < at):
                self._pick(block, run, at)
                return at
        self._pick(block, run, stop)
        return stop

    def _pick(self, block: Block, start: int, stop: int) -> None:
        if start < stop:
            ranges.add(self._picks, block.seq_at(start), block.seq_at(stop - 1))
            self._parts.append(cut(block, start, stop))
            self._count += stop - start
            self._size += block.measure(start, stop)


class Forwarding(msgspec.Struct, frozen=True, gc=False):
    """A decision: the router's way, and then the copies, if there are any."""

    forward: Forward
    admitted: Admitted | None


def copying_of(source: Log, inbound: InboundRoute) -> Copying:
    rule = inbound.rule
    return Copying(rule.keep_node, rule.keep_tag, source.name if rule.exactly_once else "")


def forward(
    dest: Log,
    keyed: KeyedRecords | None,
    router: str,
    batch: RouteBatch,
    made: Block | None,
    copying: Copying | None,
    now_ms: int,
) -> Forwarding:
    """Bring a batch to the destination; `made` are its copies.

    With `copying` the copies are to be found again from the source's records alone. A destination
    that is full and rejects refuses.
    """
    assert dest.inbound_routes is not None
    inbound = dest.inbound_routes[router]
    admitted = None
    ts_ms = max(now_ms, dest.last_ts_ms)
    if made is not None:
        placed = copies.place(made, dest.head + 1 + batch.holes, ts_ms)
        admitted = supersession.admit(dest, keyed, placed)
    named = copying is not None or inbound.rule.exactly_once
    entry = Forward(
        dest.id,
        router,
        inbound.source,
        batch.upto,
        dest.head + 1,
        batch.holes,
        made.count if made else 0,
        list(batch.path),
        list(batch.picks) if named else [],
        ts_ms if copying else 0,
        copying,
        admitted.append.trim if admitted and copying else None,
    )
    return Forwarding(entry, admitted)


def remake(entry: Forward, blocks: Iterable[Block]) -> Block | None:
    """The copies that a journaled forward stands for; None when the blocks do not hold them all."""
    assert entry.copying is not None
    parts = copies.parts_of(blocks, entry.picks)
    if not parts or sum(part.count for part in parts) != entry.count:
        return None
    return copies.copy(parts, entry.copying, entry.router, entry.source)


def derived(entry: Forward, made: Block) -> Append:
    """The append of copies that was not journaled."""
    block = copies.place(made, entry.first + entry.holes, entry.ts_ms)
    return Append(entry.log, block, None, entry.trim)


def is_at_hand(source: Log, first: int, picks: Ranges) -> bool:
    """Whether these records were journaled, and from `first` on: then a forward may name them."""
    return picks[0] >= first and not ranges.touches(source.volatile, picks[0], picks[-1])
