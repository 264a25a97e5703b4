"""The engine: the logs in operation, and the one way to change them.

A write decides (pure), applies (pure), puts its entries in journal order, and only then waits for
the commit its durability class asks for. The first three steps contain no await, so they are atomic
on the event loop. What can be done with logs is in modules of its own: `Logs`, `Appender`,
`Reader`, `Deleter`, `Queues`, `Routers`, `Streams`, `Subscriptions`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from time import perf_counter
from typing import NamedTuple, Protocol

from headrace.core import log as one
from headrace.core import priority
from headrace.core import state as catalog
from headrace.core.config import LogConfig
from headrace.core.entry import (
    Adopt,
    Append,
    Bury,
    Configure,
    Create,
    Delete,
    Dispatch,
    Drop,
    Entry,
    Follow,
    Forward,
    Open,
    Plan,
    Register,
    Route,
    Trim,
    Unroute,
)
from headrace.core.errors import TELLING, Code, Refused
from headrace.core.limits import SETTLE_ROUNDS_MAX
from headrace.core.log import Log
from headrace.core.record import Block
from headrace.core.state import State
from headrace.engine.appender import Appender
from headrace.engine.caps import Caps
from headrace.engine.cost import Cost
from headrace.engine.deleter import Deleter
from headrace.engine.door import Door
from headrace.engine.inspection import Inspection
from headrace.engine.live import Live
from headrace.engine.logs import Logs
from headrace.engine.metering import Meter
from headrace.engine.plans import Plans
from headrace.engine.ports import Clock, Pool
from headrace.engine.queues import Queues
from headrace.engine.ranking import Ranker
from headrace.engine.reader import Reader
from headrace.engine.routers import Routers
from headrace.engine.shapes import Shapes
from headrace.engine.streams import Streams
from headrace.engine.subscriptions import Subscriptions
from headrace.engine.touching import Touching
from headrace.engine.transactions import Transactions
from headrace.engine.turns import Turns
from headrace.storage.journal import Journal, ignore
from headrace.storage.segments import Segments
from headrace.storage.staging import Staging


class Backlog(NamedTuple):
    """Parts of the journal that wait to be sealed, and how much may wait in memory."""

    parts: int = 0
    size_bytes: int = 0
    memory_max_bytes: int = 0
    unsealed_bytes: int = 0
    """Of the journal behind what is sealed, the open part too; 0 when no record waits."""
    age_ms: int = 0
    """How long the oldest record waits."""


class Sealed(NamedTuple):
    """What was sealed, and the manifest version in which it is."""

    records: int
    segments: int
    manifest: int


class Seal(Protocol):
    """Seals what was written before the call."""

    def __call__(self, *, retire: bool = False) -> Awaitable[Sealed]: ...


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
        staging: Staging,
    ) -> None:
        self.state = state
        self.journal = journal
        self.segments = segments
        self.clock = clock
        self.pool = pool
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
        self.on_growth: Callable[[], None] = lambda: None
        """Called after each write; upkeep looks whether there is something to do."""
        self.renew: Callable[[], Awaitable[None]] = _nothing_new
        """Takes over what others have published of segments."""
        self.let_go: Callable[[str], Awaitable[bool]] = _nothing_else
        """Does without an object that is lost; says whether that is possible."""
        self.backlog: Callable[[], Backlog] = Backlog
        """What waits to be sealed."""
        self.seal: Seal = _nothing_to_seal
        """Seals what was written before; with `retire` the journal lets go of it."""
        self.on_drain: Callable[[], None] = lambda: None
        """Called when the server is about to stop."""
        self.deaths = 0
        """How often records died; marks tell others which."""
        self.control_position = 0
        """Where anything but records last changed: what there is and what is not, its config."""
        self._controlled: list[Live] = []
        """Logs whose control changed in the entries that are being applied."""
        self.plan_changes = 0
        """How often it changed which logs can be searched, and how."""
        self.on_create: list[Callable[[Live], None]] = []
        """Called for every new log, before anything of it can be seen; must be quick."""
        self.logs = Logs(self)
        self.appender = Appender(self)
        self.reader = Reader(self)
        self.deleter = Deleter(self)
        self.transactions = Transactions(self, staging)
        self.queues = Queues(self)
        self.routers = Routers(self)
        self.streams = Streams(self)
        self.subscriptions = Subscriptions(self)
        self.plans = Plans(self)
        self.shapes = Shapes(self)
        self.touching = Touching(self)
        self.meter: Meter | None = None
        """Measures what is done with streams, if anybody writes it down."""
        self.inspection = Inspection(self)
        self.ranker = Ranker(self)

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

    def drain(self) -> None:
        """The server is about to stop: whoever waits gets an answer now."""
        self.draining = True
        self.subscriptions.drain()
        self.on_drain()
        for live in self.lives.values():
            live.wake()

    # --- finding ---------------------------------------------------------------------------------

    def live(self, name: str) -> Live:
        """A log whose records are JSON: a topic, or a stream of JSON."""
        log = self.state.by_name.get(name)
        if log is None or (log.stream is not None and not self.streams.is_there(log)):
            raise catalog.not_found(name)
        if log.stream is not None and not log.stream.is_json:
            raise Refused(
                Code.LOG_INCOMPATIBLE,
                f'"{name}" is a stream of {log.stream.content_type}, not of JSON',
                topic=name,
            )
        return self.lives[log.id]

    def state_of(self, name: str) -> Live:
        """A log with its floors as of now. Whoever tells of it must `settle` before."""
        live = self.live(name)
        self.expire_now(live)
        return live

    def check_alive(self, live: Live) -> None:
        """After an await: the log may be gone."""
        if live.log.id not in self.lives:
            raise Refused(Code.LOG_NOT_FOUND, f'topic "{live.log.name}" was deleted')

    # --- admitting -------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Refuse when nothing can be written any more, or at the moment, or the server stops."""
        self.check_writable()
        if self.draining:
            raise Refused(Code.SHUTTING_DOWN, "the server is shutting down")

    def check_writable(self) -> None:
        """Refuse when nothing can be written any more, or at the moment."""
        if self.journal.failure is not None or self.journal.stall is not None:
            raise self.journal.refusal()

    async def wait_at_door(
        self, name: str, create: LogConfig | None, *, patient: bool = False
    ) -> float:
        """Wait for a turn to write to this log; returns the milliseconds that took."""
        return await self.door.wait(self._priority(name, create), patient=patient)

    def _priority(self, name: str, create: LogConfig | None) -> int:
        """How important a write to this log is, which may not be there yet."""
        if log := self.state.by_name.get(name):
            config, read_at_ms = log.config, self.lives[log.id].last_read_at_ms
        else:
            config, read_at_ms = create or LogConfig(), None
        return priority.effective(config, read_at_ms, self.clock.now_ms())

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
        stored = entries if stored is None else stored
        # The journal may refuse what it cannot hold: nothing has changed by then.
        position = self.journal.enqueue(stored, sync=sync, together=together)
        for entry in entries:
            self.apply(entry)
        if self._controlled:
            self.note_control(position)
        self.on_growth()
        return position

    def control(self, live: Live) -> None:
        """Something of this log changes that is not its records: who tells of it has to wait."""
        self._controlled.append(live)

    def note_control(self, position: int) -> None:
        """What was applied of it ends here in the journal: answers that tell of it wait."""
        self.control_position = position
        for live in self._controlled:
            live.config_position = position
        self._controlled.clear()

    def apply(self, entry: Entry) -> None:
        """Make an entry true that was put in journal order, without an await between."""
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
                self.lives[entry.log].deletions += 1
            case Plan() | Register():
                self.plan_changes += 1
                self._control(entry.log).wake()
            case Adopt():
                self.touching.changed(entry.log)
                self._control(entry.log).wake()
            case Drop():
                self._control(entry.log)
                live = self.lives.pop(entry.log)
                self.deaths += 1
                if live.log.search is not None:
                    self.plan_changes += 1
                self.tail_bytes -= live.tail.drop_to(live.log.head)
                self.aging.discard(entry.log)
                self.routers.forget(live)
                self.subscriptions.dropped(live)
                self.touching.dropped(entry.log)
                live.wake()
            case Open():
                live = self._control(entry.log)
                live.visible = live.log.head
                self.streams.opened(live)
            case Route():
                self.routers.attach(entry.router, self._control(entry.log))
            case Unroute():
                self._control(entry.log)
                self.routers.detach(entry.router)
            case Follow() | Dispatch():
                live = self._control(entry.log)
                if isinstance(entry, Follow):
                    if entry.following is not None:
                        self.subscriptions.opened(live)
                    else:
                        self.subscriptions.changed(live, entry)
            case Create() | Configure():
                self._note(self.state.logs[entry.log])
                self._control(entry.log)
            case Bury():
                self._control(entry.log)
            case _ if entry.log in self.state.logs:
                self._note(self.state.logs[entry.log])

    def _control(self, log: int) -> Live:
        live = self.lives[log]
        self.control(live)
        return live

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

    def expire_now(self, live: Live) -> None:
        """Move the floor past what is too old."""
        trim = one.expire(live.log, self.clock.now_ms())
        if trim is None:
            return
        if self.journal.failure is not None:
            self.apply(trim)  # read-only: the next start works it out again
        else:
            live.aged_position = self.commit([trim], sync=True)

    # --- waiting for the commit point ------------------------------------------------------------

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
                ignore(future)
                shown |= dict.fromkeys((live.log.id for live, _ in waiting), future)
        return shown

    def needs_sync(self, live: Live, last: int) -> bool:
        """Whether records up to `last` are committed only when they are on stable storage."""
        synced = self.journal.synced
        if live.log.config.synced or synced < live.config_position:
            return True
        # The promise comes first, and the records behind it: one sync covers both.
        return last > live.reserved_before and synced < live.reserve_position

    async def settle(self, *lives: Live) -> None:
        """Wait until these logs, and every loss they have taken, are durable enough to be told; or
        refuse, while nothing can be written.

        What an answer says of a log, its floors and its deletions must still be true after a crash.
        The answer is made first, and only then held back for what it knows: a log that shrinks all
        the time cannot keep a reader waiting.
        """
        journal = self.journal
        aged = synced = written = 0
        for live in lives:
            aged = max(aged, live.aged_position)
            synced = max(synced, live.config_position)
            if live.log.config.synced:
                synced = max(synced, live.shrunk_position)
            else:
                written = max(written, live.shrunk_position)
        if aged > journal.synced:
            with suppress(Refused):  # no room: the next start works out again what is too old
                await journal.wait_to_tell(aged, sync=True)
        if synced > journal.synced or written > journal.written:
            with _all_there_is():
                await journal.wait_to_tell(synced, sync=True)
                await journal.wait_to_tell(written, sync=False)

    def head_of(self, live: Live) -> int:
        """The last record that an answer counts which waits for it (`settle_all`)."""
        return live.log.head if self.journal.failure is None else live.visible

    async def settle_all(self, *lives: Live) -> None:
        """Wait as `settle` does, and for records that are counted and not visible yet."""
        journal = self.journal
        tail, counted = journal.tail, [(live, live.log.head) for live in lives]
        # What was appended while its log was being created or configured is shown by a sync only.
        for sync in (False, True):
            if journal.failure is None and any(live.visible < head for live, head in counted):
                await journal.wait_to_tell(tail, sync=sync)
        await self.settle(*lives)

    async def wait_control(self) -> None:
        """Wait until all that was said of what there is and what is not is durable, or refuse."""
        if self.control_position > self.journal.synced:
            await self.journal.wait_to_tell(self.control_position, sync=True)

    async def settle_control(self) -> None:
        """The same for an answer that changes nothing: a refusal, or a list."""
        if self.control_position > self.journal.synced:
            with _all_there_is():
                await self.wait_control()

    async def settle_refusal(self, refused: Refused) -> Refused:
        """Wait until what a refusal tells of logs is still true after a crash; returns what to say.

        While nothing can be written, nobody knows that.
        """
        if refused.code in TELLING:
            try:
                await self.settle_control()
            except Refused as unknown:
                return unknown
        return refused

    async def settle_deletions(self, live: Live, known: int, leave_out: Callable[[], None]) -> None:
        """Wait as `settle` does; what was deleted since `known` deletions is left out.

        Whoever deleted it may have the answer already, before ours. What we leave out must be
        durable, too, so we wait again; a log that shrinks all the time ends that after some rounds.
        """
        await self.settle(live)
        for _ in range(SETTLE_ROUNDS_MAX):
            if live.deletions == known:
                return
            known = live.deletions
            leave_out()
            await self.settle(live)
        leave_out()


@contextmanager
def _all_there_is() -> Iterator[None]:
    """Once the server is read-only, what is in memory is all there is to tell."""
    try:
        yield
    except Refused as refused:
        if refused.code is not Code.READ_ONLY:
            raise


async def _nothing_new() -> None:
    pass


async def _nothing_to_seal(*, retire: bool = False) -> Sealed:
    return Sealed(0, 0, 0)


async def _nothing_else(name: str) -> bool:
    return False


def _show(ends: Sequence[tuple[Live, int]]) -> None:
    for live, last in ends:
        live.show(last)
