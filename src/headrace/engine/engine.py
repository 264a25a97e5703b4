"""The engine: every use case that changes or reads a log.

A write decides (pure), applies (pure), puts its entries in journal order, and only then waits for
the commit its durability class asks for. The first three steps contain no await, so they are atomic
on the event loop.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import ParamSpec, TypeVar

import msgspec

from headrace.core import deletion, lease, priority, producer, ranges
from headrace.core import log as one
from headrace.core import read as reading
from headrace.core import state as catalog
from headrace.core.config import LogConfig
from headrace.core.entry import (
    Append,
    Configure,
    Create,
    Delete,
    Drop,
    Entry,
    Follow,
    Forward,
    Open,
    Plan,
    Reserve,
    Route,
    Trim,
    Unroute,
)
from headrace.core.errors import Code, Refused
from headrace.core.limits import READ_SCANNED_MAX
from headrace.core.log import Log, check_owner
from headrace.core.match import TagMatch
from headrace.core.ranges import Ranges
from headrace.core.read import EVERYTHING, Budget, Gathering, Page, Slice, Wanted
from headrace.core.record import Block, Drafts, cut
from headrace.core.retention import Ledger, build
from headrace.core.state import State
from headrace.engine.door import Door
from headrace.engine.live import Live, Promise
from headrace.engine.plans import Plans
from headrace.engine.ports import Clock, Pool
from headrace.engine.queues import Queues
from headrace.engine.routers import Routers
from headrace.engine.streams import Streams
from headrace.engine.subscriptions import Subscriptions
from headrace.engine.turns import Turns
from headrace.storage.journal import Journal
from headrace.storage.segments import Segments, Vanished

P = ParamSpec("P")
T = TypeVar("T")

_FETCH_ROWS = 256
"""Rows to read at a time for records asked for one by one: neighbours are often next."""


class Caps(msgspec.Struct, frozen=True):
    """Limits of the whole instance; 0 means none."""

    logs: Mapping[str, int] = {}
    """Most logs, by owner."""
    routers: int = 0
    total_bytes: int = 0
    tail_bytes: int = 256 << 20


class Cost(msgspec.Struct):
    """Where a request's time went, for the answer."""

    append_ms: float = 0.0
    sync_ms: float = 0.0
    throttle_ms: float = 0.0


class Appended(msgspec.Struct, frozen=True):
    """What an append was given."""

    log: Log
    first: int
    last: int
    head: int
    created: bool
    deduped: bool


class Dropped(msgspec.Struct, frozen=True):
    """What went with a log."""

    routers: list[str]


class Engine:
    """All logs of one data directory, in operation."""

    def __init__(
        self,
        state: State,
        journal: Journal,
        segments: Segments,
        clock: Clock,
        pool: Pool,
        caps: Caps,
    ) -> None:
        self.state = state
        self.journal = journal
        self.segments = segments
        self.clock = clock
        self.caps = caps
        self.lives: dict[int, Live] = {}
        self.touched: dict[int, str] = {}
        """Logs with records in the open journal file, and their names."""
        self.near: dict[int, int] = {}
        """Those logs, and the first of their records in that file: a forward may name them."""
        self.derived_bytes = 0
        """What the forwards in that file will come to in a segment."""
        self.aging: set[int] = set()
        """Logs with a time to live."""
        self.tail_bytes = 0
        self.draining = False
        self.door = Door(journal, clock)
        self.turns = Turns(clock, pool, self.door)
        self.subscriptions = Subscriptions(self)
        self.streams = Streams(self)
        self.on_growth: Callable[[], None] = lambda: None
        """Called after each write; upkeep looks whether there is something to do."""
        self.renew: Callable[[], Awaitable[None]] = _nothing_new
        """Takes over what others have published of segments."""
        self.deaths = 0
        """How often records died; marks tell others which."""
        self.plan_changes = 0
        """How often it changed which logs can be searched, and how."""
        self.on_create: list[Callable[[Live], None]] = []
        """Called for every new log, before anything of it can be seen; must be quick."""
        self._pool = pool
        self.routers = Routers(self)
        self.queues = Queues(self)
        self.plans = Plans(self)

    def adopt(self, log: Log, blocks: list[Block]) -> None:
        """Put a recovered log into operation."""
        live = self.lives[log.id] = Live(log)
        for block in blocks:
            self.tail_bytes += live.tail.add(block)
        if log.config.ttl_ms:
            self.aging.add(log.id)
        if log.stream is not None:
            self.streams.opened(live)
        if log.subscription is not None:
            self.subscriptions.opened(live)

    # --- finding ---------------------------------------------------------------------------------

    def live(self, name: str) -> Live:
        """A log whose records are JSON: a topic, or a stream of JSON."""
        log = self.state.by_name.get(name)
        if log is None or (log.stream is not None and not self.streams.is_there(log)):
            raise Refused(Code.LOG_NOT_FOUND, f'topic "{name}" does not exist', topic=name)
        if log.stream is not None and not log.stream.is_json:
            raise Refused(
                Code.LOG_INCOMPATIBLE,
                f'"{name}" is a stream of {log.stream.content_type}, not of JSON',
                topic=name,
            )
        return self.lives[log.id]

    def check_alive(self, live: Live) -> None:
        """After an await: the log may be gone."""
        if live.log.id not in self.lives:
            raise Refused(Code.LOG_NOT_FOUND, f'topic "{live.log.name}" was deleted')

    def state_of(self, name: str) -> Live:
        """A log with its floors as of now. Whoever tells of it must `settle` before."""
        live = self.live(name)
        self.expire_now(live)
        return live

    async def settle(self, *lives: Live) -> None:
        """Wait until every loss these logs have taken is durable enough to be told.

        What an answer says of floors and deletions must still be true after a crash. The answer is
        made first, and only then held back for what it knows: a log that shrinks all the time
        cannot keep a reader waiting.
        """
        journal = self.journal
        aged = max((live.aged_position for live in lives), default=0)
        synced = [live.shrunk_position for live in lives if live.log.config.synced]
        written = max((live.shrunk_position for live in lives), default=0)
        try:
            if max(aged, *synced, 0) > journal.synced:
                await journal.wait_synced(max(aged, *synced, 0))
            if written > journal.written:
                await journal.wait_written(written)
        except Refused:
            pass  # read-only: what is in memory is all there is to tell

    async def catch_up(self, *lives: Live) -> None:
        """Let routers bring these logs what they have for them, before somebody reads them."""
        if any(live.log.inlets for live in lives):
            await self.routers.forwarder.catch_up(*lives)

    def list_logs(
        self, after: str, prefix: str, count_max: int, wanted: Callable[[str], bool], owner: str
    ) -> tuple[list[Live], bool]:
        """Up to `count_max` logs of this owner by name, and whether there are more."""
        found: list[Live] = []
        more = False
        for name in self.state.names(after, prefix, owner):
            if not wanted(name):
                continue
            if len(found) == count_max:
                more = True
                break
            live = self.lives[self.state.by_name[name].id]
            self.expire_now(live)
            found.append(live)
        return found, more

    # --- creating and configuring ----------------------------------------------------------------

    async def put(self, name: str, owner: str, config: LogConfig) -> tuple[Log, bool]:
        """Create the log or give it this config; says whether it is new."""
        log = self.state.by_name.get(name)
        if log is None:
            self.check_log_cap(owner)
            entry = catalog.create(self.state, name, owner, config, self.clock.now_ms())
            position = self.commit([entry], sync=True)
            log = self.state.logs[entry.log]
            await self.journal.wait_synced(position)
            return log, True
        check_owner(log, owner)
        await self._configure(self.lives[log.id], config)
        return log, False

    async def _configure(self, live: Live, config: LogConfig) -> None:
        log = live.log
        if config.kind is not log.config.kind:
            raise Refused(
                Code.LOG_INCOMPATIBLE,
                f'"{log.name}" is a {log.config.kind.value}; the type of a topic cannot change',
                topic=log.name,
            )
        if config == log.config:
            return
        if config.trims and log.ledger is None:
            await self._build_ledger(live)
        self.check_alive(live)
        self.expire_now(live)
        position = self.commit([Configure(log.id, config, log.head)], sync=True)
        live.config_position = position
        if trim := one.overflow(log):
            position = self.commit([trim], sync=True)
        self.expire_now(live)
        await self.journal.wait_synced(position)

    async def _build_ledger(self, live: Live) -> None:
        """Retention is about to begin: learn the age and size of every record there is."""
        log = live.log
        while True:
            start = live.tail.start
            ledger = await self.sealed(self._sealed_ledger, log, start - 1)
            if live.tail.start == start:
                break
        for block in live.tail.blocks:
            ledger.add(block)
        ledger.drop_below(log.floor)
        log.ledger = ledger

    def _sealed_ledger(self, log: Log, last: int) -> Ledger:
        return build(self.segments.blocks(log, log.floor, last))

    async def drop(self, name: str, *, if_empty: bool, owner: str | None = None) -> Dropped | None:
        """Remove the log with its records and the routers from and to it; None if there is none."""
        if name not in self.state.by_name:
            return None
        await self.routers.forwarder.flush(self.live(name))
        live = self.state_of(name)
        log = live.log
        check_owner(log, owner)
        if if_empty and log.count:
            raise Refused(
                Code.LOG_NOT_EMPTY,
                f'"{name}" holds {log.count} records',
                topic=name,
                count=log.count,
            )
        routers, cuts = self.routers.cut_off(live)
        position = self.commit([*cuts, Drop(log.id)], sync=True, together=True)
        await self.journal.wait_synced(position)
        return Dropped(routers)

    # --- writing ---------------------------------------------------------------------------------

    async def append(
        self,
        name: str,
        drafts: Drafts,
        *,
        owner: str,
        create: LogConfig | None,
        key: str | None = None,
        due_ms: Sequence[int | None] | None = None,
        patient: bool = False,
        cost: Cost | None = None,
    ) -> Appended:
        """Append the drafts, all or none; `create` is the config of a log that is not there yet.

        `due_ms` says of new jobs when they may be claimed.
        """
        cost = cost or Cost()
        if not self.door.open:
            cost.throttle_ms = await self.wait_at_door(name, create, patient=patient)
        self.check_open()
        log = self.state.by_name.get(name)
        now_ms = self.clock.now_ms()
        if log is None:
            return await self._append_new(name, drafts, owner, create, key, due_ms, now_ms, cost)
        check_owner(log, owner)
        live = self.lives[log.id]
        if key is not None:
            window_ms = log.config.idempotency_window_ms
            if known := producer.find(log.keys, key, window_ms, now_ms):
                await self.wait(live, self.journal.tail, known[1], cost)
                return Appended(log, *known, live.visible, created=False, deduped=True)
        if log.config.ttl_ms:
            self.expire_now(live)
        entry = one.append(log, drafts, key, now_ms)
        self.check_total(entry)
        delays = lease.delay(log, entry.block.first, due_ms, now_ms) if due_ms else ()
        position = self.enqueue_append(live, entry, now_ms, delays)
        block = entry.block
        await self.wait(live, position, block.last, cost)
        return Appended(log, block.first, block.last, live.visible, created=False, deduped=False)

    def enqueue_append(
        self, live: Live, entry: Append, now_ms: int, beside: Sequence[Entry] = ()
    ) -> int:
        """Apply an append and put it in journal order, with a promise of further seqs if one is
        due.

        What is decided beside it comes true together with it, or not at all.
        """
        log, journal = live.log, self.journal
        entries = self.journaled(log, entry)
        entries += [other for other in beside if other.log != log.id or log.config.journaled]
        promise = self.promise(live, entry.block.last, now_ms)
        if promise is not None:
            self._apply(promise.entry)
            entries.insert(0, promise.entry)
        self._apply(entry)
        for other in beside:
            self._apply(other)
        if not entries:
            self.on_growth()
            return journal.tail
        # The file an entry lands in is known only once it is enqueued: upkeep looks after that.
        sync = log.config.synced or promise is not None
        position = journal.enqueue(entries, sync=sync, together=bool(beside))
        if entry.trim is not None:
            live.shrunk_position = position
        self.on_growth()
        if promise is not None:
            promise.made(position, journal.synced, now_ms)
        return position

    def promise(self, live: Live, last: int, now_ms: int) -> Promise | None:
        """What must be promised durably before readers may see `last`, if anything."""
        log = live.log
        reserve = one.reserve(log, last, live.reserve_ahead)
        if reserve is None:
            return None
        ahead = live.plan_ahead(now_ms)
        return Promise(live, Reserve(log.id, max(reserve.upto, last + ahead)), log.reserved, ahead)

    async def _append_new(
        self,
        name: str,
        drafts: Drafts,
        owner: str,
        config: LogConfig | None,
        key: str | None,
        due_ms: Sequence[int | None] | None,
        now_ms: int,
        cost: Cost,
    ) -> Appended:
        if config is None:
            raise Refused(Code.LOG_NOT_FOUND, f'topic "{name}" does not exist', topic=name)
        self.check_log_cap(owner)
        create = catalog.create(self.state, name, owner, config, now_ms)
        log = catalog.new_log(create)
        entry = one.append(log, drafts, key, now_ms)
        self.check_total(entry)
        delays = lease.delay(log, entry.block.first, due_ms, now_ms) if due_ms else ()
        live = self.create_now(create)
        position = self.enqueue_append(live, entry, now_ms, delays)
        block = entry.block
        await self.wait(live, position, block.last, cost)
        return Appended(
            live.log, block.first, block.last, live.visible, created=True, deduped=False
        )

    def create_now(self, create: Create) -> Live:
        """Bring a log into existence for an append that follows at once and waits for both."""
        self._apply(create)
        live = self.lives[create.log]
        live.config_position = self.journal.enqueue([create], sync=True)
        return live

    def journaled(self, log: Log, entry: Append) -> list[Entry]:
        """What of an append goes to the journal, by the log's class."""
        if log.config.journaled:
            return [entry]
        # Class ephemeral: nothing, unless it pushed out records that would come back at a restart.
        trim = entry.trim
        if trim and next(ranges.outside(log.volatile, log.floor, trim.floor_cap - 1), None):
            return [trim]
        return []

    async def wait(self, live: Live, position: int, last: int, cost: Cost) -> None:
        """Wait for the commit point of the log's class; then readers may see up to `last`."""
        journal, config = self.journal, live.log.config
        show = partial(live.show, last)
        started = perf_counter()
        if self.needs_sync(live, last):
            await journal.wait_synced(position, show)
            waited_ms = (perf_counter() - started) * 1e3
            if config.synced:
                cost.sync_ms = waited_ms
            else:
                cost.append_ms = waited_ms
        elif not config.journaled:
            show()
        else:
            await journal.wait_written(position, show)
            cost.append_ms = (perf_counter() - started) * 1e3

    async def wait_at_door(
        self, name: str, create: LogConfig | None, *, patient: bool = False
    ) -> float:
        """Wait for a turn to write to this log; returns the milliseconds that took."""
        return await self.door.wait(self._priority(name, create), patient=patient)

    def check_open(self) -> None:
        """Refuse when nothing can be written any more."""
        if self.journal.failure is not None:
            raise self.journal.refusal()
        if self.draining:
            raise Refused(Code.SHUTTING_DOWN, "the server is shutting down")

    def show_when_committed(
        self, position: int, ends: Sequence[tuple[Live, int]]
    ) -> dict[int, asyncio.Future[None]]:
        """Readers may see each log up to its seq when what was journaled of it is committed, class
        ephemeral or not; returns when that is, by log.
        """
        synced: list[tuple[Live, int]] = []
        written: list[tuple[Live, int]] = []
        for end in ends:
            (synced if self.needs_sync(*end) else written).append(end)
        journal = self.journal
        shown: dict[int, asyncio.Future[None]] = {}
        for wait, waiting in ((journal.wait_synced, synced), (journal.wait_written, written)):
            if waiting:
                future = wait(position, partial(_show, waiting))
                future.add_done_callback(read_exception)
                shown |= dict.fromkeys((live.log.id for live, _ in waiting), future)
        return shown

    def needs_sync(self, live: Live, last: int) -> bool:
        """Whether records up to `last` are committed only when they are on stable storage."""
        synced = self.journal.synced
        if live.log.config.synced or synced < live.config_position:
            return True
        # The promise comes first, and the records behind it: one sync covers both.
        return last > live.reserved_before and synced < live.reserve_position

    def _priority(self, name: str, create: LogConfig | None) -> int:
        """How important a write to this log is, which may not be there yet."""
        if log := self.state.by_name.get(name):
            config, read_at_ms = log.config, self.lives[log.id].last_read_at_ms
        else:
            config, read_at_ms = create or LogConfig(), None
        return priority.effective(config, read_at_ms, self.clock.now_ms())

    def check_log_cap(self, owner: str, more: int = 1) -> None:
        """Refuse when this owner would have more logs than it may have."""
        limit = self.caps.logs.get(owner, 0)
        if more and limit and self.state.count_of(owner) + more > limit:
            raise Refused(
                Code.THROTTLED,
                f"there are {limit} {owner} already, the most this server keeps",
                limit=f"max_{owner}",
                max=limit,
            )

    def check_total(self, entry: Append) -> None:
        """Refuse what would take the stored records over the limit of the instance."""
        limit = self.caps.total_bytes
        if not limit:
            return
        shed = entry.trim.size_bytes if entry.trim else 0
        if self.state.size_bytes + entry.block.size_bytes - shed > limit:
            raise Refused(
                Code.THROTTLED,
                f"this write would take the stored records over {limit} bytes",
                limit="max_total_bytes",
                max=limit,
            )

    # --- deleting --------------------------------------------------------------------------------

    async def delete(
        self,
        name: str,
        before: int | None,
        match: TagMatch | None,
        cost: Cost | None = None,
        owner: str | None = None,
    ) -> tuple[Live, int]:
        """Delete records below `before` and/or with a matching tag; returns how many there were."""
        cost = cost or Cost()
        await self.catch_up(self.live(name))
        live = self.state_of(name)
        check_owner(live.log, owner)
        bound = live.visible + 1 if before is None else min(before, live.visible + 1)
        if match is None:
            entry = await self._delete_below(live, bound)
        else:
            entry = await self._delete_tagged(live, match, bound)
        self.check_alive(live)
        if entry is None:
            return live, 0
        position = live.shrunk_position = self.commit([entry], sync=live.log.config.synced)
        await self.wait(live, position, live.visible, cost)
        return live, entry.count

    async def _delete_below(self, live: Live, before: int) -> Delete | None:
        log = live.log
        while True:
            found = deletion.live_below(log, before, live.visible)
            size_bytes = await self.measure(live, found)
            if found == deletion.live_below(log, before, live.visible):
                return deletion.delete_ranges(log, found, size_bytes)

    async def measure(self, live: Live, found: Ranges) -> int:
        """Bytes of these live records, wherever they lie."""
        log = live.log
        if ranges.count(found) == log.count:
            return log.size_bytes
        if log.ledger is not None:
            pairs = ranges.pairs(found)
            return sum(log.ledger.measure(low, high, log.gone)[1] for low, high in pairs)
        start = live.tail.start
        cold = [(low, min(high, start - 1)) for low, high in ranges.pairs(found) if low < start]
        warm = [(max(low, start), high) for low, high in ranges.pairs(found) if high >= start]
        total = sum(live.tail.measure(low, high) for low, high in warm)
        if cold:
            total += await self.sealed(self._measure_sealed, log, cold)
        return total

    def _measure_sealed(self, log: Log, parts: list[tuple[int, int]]) -> int:
        return sum(
            block.measure(block.index(low), block.stop_index(high))
            for low, high in parts
            for block in self.segments.blocks(log, low, high)
        )

    async def _delete_tagged(self, live: Live, match: TagMatch, before: int) -> Delete | None:
        log = live.log
        while True:
            start = live.tail.start
            sealed: list[tuple[int, int]] = []
            if log.extents and log.extents[0][1] < start:
                sealed = await self.sealed(self.segments.tagged, log, match, min(before, start))
            if live.tail.start == start:
                return deletion.delete_seqs(log, sealed + live.tail.tagged(match, before), before)

    # --- reading ---------------------------------------------------------------------------------

    async def read(
        self,
        live: Live,
        after: int,
        *,
        records_max: int,
        bytes_max: int,
        wanted: Wanted = EVERYTHING,
        epoch: int | None = None,
        upto: int | None = None,
    ) -> Page:
        """One page of records after `after`, from memory where it can, else from segments.

        `upto` makes it end earlier than at the last record readers may see.
        """
        log = live.log
        if log.inlets:
            await self.catch_up(live)
            self.check_alive(live)
        if log.stream is not None:
            self.streams.use(live)
        self.expire_now(live)
        visible = live.visible if upto is None else min(upto, live.visible)
        plan = reading.plan(log, visible, after, epoch)
        budget = Budget(records_max, bytes_max, READ_SCANNED_MAX)
        page = Gathering(log, plan, budget, wanted)
        if plan.start <= plan.last:
            await self._gather(live, page, plan.last, records_max)
        answer = page.page(visible)
        await self.settle(live)
        return answer

    def glance(
        self,
        live: Live,
        after: int,
        *,
        records_max: int,
        bytes_max: int,
        wanted: Wanted = EVERYTHING,
        upto: int,
    ) -> Page | None:
        """The page that `read` would give, at once, if memory holds all of it.

        None when there is something to wait for: records in segments, or a loss or a deletion on
        the way that must be durable before anybody is told to pass it.
        """
        log = live.log
        first = after + 1
        if first < live.tail.start or ranges.touches(log.deleted, first, upto):
            return None
        if first <= log.inherited:
            return None
        if log.config.ttl_ms:
            aged = one.expire(log, self.clock.now_ms())
            if aged is not None and aged.floor_ttl > first:
                return None
        plan = reading.plan(log, upto, after, None)
        if plan.gap is not None or plan.start != first or plan.last != upto:
            return None
        page = Gathering(log, plan, Budget(records_max, bytes_max, READ_SCANNED_MAX), wanted)
        for block in live.tail.since(first):
            if not page.take(block):
                break
        return page.page(upto)

    async def _gather(self, live: Live, page: Gathering, last: int, rows_max: int) -> None:
        inherited = min(live.log.inherited, last)
        if page.next < inherited:
            await self._gather(self._source(live), page, inherited, rows_max)
            if page.full or page.next < inherited:
                return
        while page.next < last and page.next + 1 < (start := live.tail.start):
            block = await self.read_sealed(live, page.next + 1, rows_max)
            below = block.stop_index(min(live.tail.start - 1, last)) if block is not None else 0
            if block is None or not below:
                if live.tail.start != start:
                    continue  # what left the tail meanwhile is in a segment now
                break  # what is left below the tail is gone
            # The tail knows better than the segment: it may hold records no segment has.
            if not page.take(cut(block, 0, below)):
                return
        for block in live.tail.since(page.next + 1):
            # A fork goes no further here than to where it began.
            below = block.stop_index(last)
            if not below or not page.take(cut(block, 0, below)):
                return

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do what blocks off the event loop."""
        return await self._pool.run(work, *args, **kwargs)

    def _source(self, live: Live) -> Live:
        """The stream that this one was forked from."""
        stream = live.log.stream
        assert stream is not None
        assert stream.fork is not None
        return self.lives[stream.fork.source]

    def fetch_now(self, live: Live, seqs: Sequence[int]) -> list[Slice] | None:
        """These records, ascending, if they are all in memory."""
        tail = live.tail
        if seqs and seqs[0] < tail.start:
            return None
        found: list[Slice] = []
        at = 0
        while at < len(seqs):
            block = next(tail.since(seqs[at]))
            stop = bisect_right(seqs, block.last, at)
            first, last = block.index(seqs[at]), block.index(seqs[stop - 1])
            picks: range | list[int] = range(first, last + 1)
            if last - first != stop - 1 - at:
                picks = [block.index(seq) for seq in seqs[at:stop]]
            found.append(Slice(block, picks))
            at = stop
        return found

    async def fetch(self, live: Live, seqs: Sequence[int]) -> list[Slice]:
        """These records, ascending, wherever they lie; those that are gone by now are left out."""
        found: list[Slice] = []
        at = 0
        while at < len(seqs):
            block = await self._block_of(live, seqs[at])
            if block is None:
                at += 1
                continue
            stop = bisect_right(seqs, block.last, at)
            inside = ((seq, block.index(seq)) for seq in seqs[at:stop])
            picks = [
                index for seq, index in inside if index < block.count and block.seq_at(index) == seq
            ]
            if picks:
                found.append(Slice(block, picks))
            at = max(stop, at + 1)
        return found

    async def _block_of(self, live: Live, seq: int) -> Block | None:
        """A block that reaches this seq."""
        if seq <= live.log.inherited:
            return await self._block_of(self._source(live), seq)
        if seq < live.tail.start:
            return await self.read_sealed(live, seq, _FETCH_ROWS)
        return next(live.tail.since(seq), None)

    async def read_sealed(self, live: Live, seq: int, rows_max: int) -> Block | None:
        """A block of a segment that reaches this seq."""
        return await self.sealed(self.segments.read, live.log, seq, rows_max)

    async def sealed(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Read segments off the event loop; again, when others replaced them meanwhile."""
        while True:
            version = self.segments.version
            try:
                return await self._pool.run(work, *args, **kwargs)
            except Vanished:
                await self.renew()
                if self.segments.version == version:
                    raise  # nobody replaced it: it is lost

    async def read_or_wait(
        self,
        live: Live,
        after: int,
        *,
        wait_ms: int,
        epoch: int | None = None,
        over: Callable[[Live], bool] = lambda live: False,
        **how: object,
    ) -> Page:
        """A page as `read` gives it; when it would be empty, wait for something to deliver.

        Nothing more will come once the log is `over`.
        """
        if not wait_ms:
            return await self.read(live, after, epoch=epoch, **how)  # type: ignore[arg-type]
        deadline = asyncio.get_running_loop().time() + wait_ms / 1000
        while True:
            changed = live.wakeup()
            try:
                page = await self.read(live, after, epoch=epoch, **how)  # type: ignore[arg-type]
                after, epoch = page.next, None
                if page.slices or page.gap or self.draining or over(live):
                    return page
                if not page.caught_up:
                    continue
                async with asyncio.timeout_at(deadline):
                    await changed
            except TimeoutError:
                return page
            finally:
                live.forget(changed)
            self.check_alive(live)

    def drain(self) -> None:
        """The server is about to stop: whoever waits gets an answer now."""
        self.draining = True
        for live in self.lives.values():
            live.wake()

    # --- age -------------------------------------------------------------------------------------

    def expire_now(self, live: Live) -> None:
        """Move the floor past what is too old."""
        trim = one.expire(live.log, self.clock.now_ms())
        if trim is None:
            return
        if self.journal.failure is not None:
            self._apply(trim)  # read-only: the next start works it out again
        else:
            live.aged_position = self.commit([trim], sync=True)

    # --- the one way to change state -------------------------------------------------------------

    def commit(
        self,
        entries: Sequence[Entry],
        *,
        sync: bool,
        together: bool = False,
        stored: Sequence[Entry] | None = None,
    ) -> int:
        """Make entries true and put them in journal order; returns the position to wait for.

        `stored` is what the journal keeps of them, where that is not the same.
        """
        if self.journal.failure is not None:
            raise self.journal.refusal()
        for entry in entries:
            self._apply(entry)
        stored = entries if stored is None else stored
        position = self.journal.enqueue(stored, sync=sync, together=together)
        self.on_growth()
        return position

    def _apply(self, entry: Entry) -> None:
        catalog.apply(self.state, entry)
        match entry:
            case Append():
                live = self.lives[entry.log]
                live.last_write_at_ms = entry.block.ts_ms
                self.tail_bytes += live.tail.add(entry.block)
                if live.log.config.journaled:
                    self.touched[entry.log] = live.log.name
                    self.near.setdefault(entry.log, entry.block.first)
                if entry.trim is not None:
                    self._release_trimmed(live)
            case Forward():
                pass
            case Trim():
                self._release_trimmed(self.lives[entry.log])
            case Delete():
                self.deaths += 1
            case Plan():
                self.plan_changes += 1
            case Drop():
                live = self.lives.pop(entry.log)
                self.deaths += 1
                if live.log.search is not None:
                    self.plan_changes += 1
                self.tail_bytes -= live.tail.drop_to(live.log.head)
                self.aging.discard(entry.log)
                self.routers.forget(live)
                self.subscriptions.dropped(live)
                live.wake()
            case Open():
                live = self.lives[entry.log]
                live.visible = live.log.head
                self.streams.opened(live)
            case Route():
                self.routers.attach(entry.router, self.lives[entry.log])
            case Unroute():
                self.routers.detach(entry.router)
            case Follow() if entry.following is not None:
                self.subscriptions.opened(self.lives[entry.log])
            case _ if entry.log in self.state.logs:
                self._note(self.state.logs[entry.log])

    def _note(self, log: Log) -> None:
        if log.id not in self.lives:
            live = self.lives[log.id] = Live(log)
            for note in tuple(self.on_create):
                note(live)
        if log.config.ttl_ms:
            self.aging.add(log.id)
        else:
            self.aging.discard(log.id)

    def _release_trimmed(self, live: Live) -> None:
        """Blocks wholly below the floor need no memory, sealed or not."""
        self.deaths += 1
        blocks = live.tail.blocks
        if blocks and blocks[0].last < live.log.floor:
            self.tail_bytes -= live.tail.drop_to(live.log.floor - 1)


async def _nothing_new() -> None:
    pass


def _show(ends: Sequence[tuple[Live, int]]) -> None:
    for live, last in ends:
        live.show(last)


def read_exception(future: asyncio.Future[None]) -> None:
    """Nobody else will ask how it ended."""
    if not future.cancelled():
        future.exception()
