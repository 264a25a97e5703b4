"""The kernel: the state, the open logs and the journal, and the one way to change them.

A write decides (pure), applies (pure), puts its entries in journal order, and only then waits for
the commit its durability class asks for. The first three steps contain no await, so they are atomic
on the event loop. Every part of the engine is given the kernel, and those parts by name that it
works with; the kernel knows none of them: they observe it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from time import perf_counter
from typing import Any

from headrace.core import log as core_log
from headrace.core import priority
from headrace.core import state as core_state
from headrace.core.config import LogConfig
from headrace.core.entry import (
    Append,
    Configure,
    Create,
    Delete,
    Drop,
    Entry,
    Open,
    Plan,
    Register,
    SetProfile,
    Trim,
)
from headrace.core.errors import TELLING, Code, Refused
from headrace.core.limits import SETTLE_ROUNDS_MAX
from headrace.core.log import Log
from headrace.core.record import Block
from headrace.core.state import State
from headrace.engine.caps import Caps
from headrace.engine.flow.admission import WriteAdmission
from headrace.engine.open_log import OpenLog
from headrace.engine.ports import Clock, Pool
from headrace.engine.timings import Timings
from headrace.storage.journal import Journal, ignore

Observer = Callable[[OpenLog, Any], None]
"""Is told of an entry that was applied to a log; must be quick."""


class Kernel:
    """What all parts of an engine share."""

    def __init__(
        self, state: State, journal: Journal, clock: Clock, pool: Pool, caps: Caps
    ) -> None:
        self.state = state
        self.journal = journal
        self.clock = clock
        self.pool = pool
        self.caps = caps
        self.admission = WriteAdmission(journal, clock)
        self.open_logs: dict[int, OpenLog] = {}
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
        self.deaths = 0
        """How often records died; marks tell others which."""
        self.control_position = 0
        """Where anything but records last changed: what there is and what is not, its config."""
        self._controlled: list[OpenLog] = []
        """Logs whose control changed in the entries that are being applied."""
        self._shrunk: list[OpenLog] = []
        """Logs whose records were deleted, or pushed out, in those entries."""
        self._observers: dict[type[Entry], list[Observer]] = {}
        self._on_growth: list[Callable[[], None]] = []
        self._on_drain: list[Callable[[], None]] = []

    # --- observing -------------------------------------------------------------------------------

    def observe(self, observer: Observer, *kinds: type[Entry]) -> None:
        """Have this called for every entry of these kinds of control, once it is applied."""
        for kind in kinds:
            assert kind.CONTROL, kind
            self._observers.setdefault(kind, []).append(observer)

    def observe_growth(self, observer: Callable[[], None]) -> None:
        """Have this called after each write."""
        self._on_growth.append(observer)

    def observe_drain(self, observer: Callable[[], None]) -> None:
        """Have this called when the server is about to stop."""
        self._on_drain.append(observer)

    def drain(self) -> None:
        """The server is about to stop: whoever waits gets an answer now."""
        self.draining = True
        for observer in self._on_drain:
            observer()
        for live in self.open_logs.values():
            live.wake()

    # --- open logs -------------------------------------------------------------------------------

    def adopt(self, log: Log, blocks: list[Block]) -> OpenLog:
        """Put a recovered log into operation."""
        live = self.open_logs[log.id] = OpenLog(log)
        for block in blocks:
            self.tail_bytes += live.tail.add(block)
        self._note_aging(log)
        return live

    def free(self, live: OpenLog, upto: int, blocks_max: int | None = None) -> int:
        """Let records leave memory that are dead, or in segments; returns their bytes."""
        freed_bytes = live.tail.drop_to(upto, blocks_max)
        self.tail_bytes -= freed_bytes
        return freed_bytes

    def check_alive(self, live: OpenLog) -> None:
        """After an await: the log may be gone."""
        if live.log.id not in self.open_logs:
            raise Refused(Code.LOG_NOT_FOUND, f'log "{live.log.name}" was deleted')

    def source_of(self, live: OpenLog) -> OpenLog:
        """The stream that this one was forked from."""
        stream = live.log.stream
        assert stream is not None
        assert stream.fork is not None
        return self.open_logs[stream.fork.source]

    # --- admitting -------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Refuse when nothing can be written any more, or at the moment, or the server stops."""
        journal = self.journal
        if journal.failure is not None or journal.stall is not None:
            raise journal.refusal()
        if self.draining:
            raise Refused(Code.SHUTTING_DOWN, "the server is shutting down")

    def check_writable(self) -> None:
        """Refuse when nothing can be written any more, or at the moment."""
        if self.journal.failure is not None or self.journal.stall is not None:
            raise self.journal.refusal()

    async def wait_admitted(
        self, name: str, create: LogConfig | None, *, patient: bool = False
    ) -> float:
        """Wait for a turn to write to this log; returns the milliseconds that took."""
        return await self.admission.wait(self._priority(name, create), patient=patient)

    def _priority(self, name: str, create: LogConfig | None) -> int:
        """How important a write to this log is, which may not be there yet."""
        if log := self.state.by_name.get(name):
            config, read_at_ms = log.config, self.open_logs[log.id].last_read_at_ms
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
        control: OpenLog | None = None,
        derived_bytes: int = 0,
    ) -> int:
        """Make entries true and put them in journal order; returns the position to wait for.

        `stored` is what the journal keeps of them, where that is not the same, and `derived_bytes`
        what a segment will hold beyond that. Of `control` they change something that is not its
        records, though none of them is of that kind.
        """
        journal = self.journal
        stored = entries if stored is None else stored
        if stored:
            # The journal may refuse what it cannot hold: nothing has changed by then.
            position = journal.enqueue(stored, sync=sync, together=together)
        elif journal.failure is not None:
            raise journal.refusal()
        else:
            position = journal.tail
        for entry in entries:
            self.apply(entry)
        if not stored:
            self._shrunk.clear()  # a start would not find those records: nobody waits for anything
        if control is not None:
            self._controlled.append(control)
        if self._controlled or self._shrunk:
            self._note_positions(position)
        self.derived_bytes += derived_bytes
        # The file an entry lands in is known only once it is enqueued: upkeep looks after that.
        for observer in self._on_growth:
            observer()
        return position

    def _note_positions(self, position: int) -> None:
        """What was applied ends here in the journal: answers that tell of it wait."""
        if self._controlled:
            self.control_position = position
        for live in self._controlled:
            live.config_position = position
        for live in self._shrunk:
            live.shrunk_position = position
        self._controlled.clear()
        self._shrunk.clear()

    def apply(self, entry: Entry) -> None:
        """Make an entry true that was put in journal order, without an await between."""
        core_state.apply(self.state, entry)
        match entry:
            case Append():
                live = self.open_logs[entry.log]
                live.last_write_at_ms = entry.block.ts_ms
                self.tail_bytes += live.tail.add(entry.block)
                if live.keyed is not None:
                    live.keyed.add(entry.block)
                if live.ids is not None:
                    live.ids.add(entry.block)
                if live.log.config.journaled:
                    self.touched[entry.log] = live.log.name
                    self.near.setdefault(entry.log, entry.block.first)
                if entry.trim is not None:
                    self._release_trimmed(live)
                    self._shrunk.append(live)
            case Trim():
                self._release_trimmed(self.open_logs[entry.log])
            case Delete():
                live = self.open_logs[entry.log]
                live.deletions += 1
                self.deaths += 1
                self._shrunk.append(live)
                self._release_deleted(live, entry)
            case _ if entry.CONTROL:
                self._apply_control(entry)

    def _apply_control(self, entry: Entry) -> None:
        if isinstance(entry, Create):
            self.open_logs[entry.log] = OpenLog(self.state.logs[entry.log])
        live = self.open_logs[entry.log]
        self._controlled.append(live)
        match entry:
            case Configure():
                if not live.log.config.keyed:
                    live.keyed = None
                self._note_aging(live.log)
            case Create():
                self._note_aging(live.log)
            case Open():
                live.visible = live.log.head
            case Drop():
                del self.open_logs[entry.log]
                self.deaths += 1
                self.free(live, live.log.head)
                self.aging.discard(entry.log)
        for observer in self._observers.get(type(entry), ()):
            observer(live, entry)
        if isinstance(entry, Drop | Plan | Register | SetProfile):
            live.wake()

    def _note_aging(self, log: Log) -> None:
        if log.config.ttl_ms:
            self.aging.add(log.id)
        else:
            self.aging.discard(log.id)

    def _release_deleted(self, live: OpenLog, entry: Delete) -> None:
        """What is deleted needs no memory where no segment takes it over."""
        log = live.log
        if live.keyed is not None:
            live.keyed.remove(entry.ranges)
        if not log.config.journaled:
            self.tail_bytes -= live.tail.sweep(log.missing, entry.count)

    def _release_trimmed(self, live: OpenLog) -> None:
        """Blocks wholly below the floor need no memory, sealed or not."""
        self.deaths += 1
        if live.keyed is not None:
            live.keyed.drop_below(live.log.floor)
        if live.ids is not None:
            live.ids.drop_below(live.log.floor)
        blocks = live.tail.blocks
        if blocks and blocks[0].last < live.log.floor:
            self.free(live, live.log.floor - 1)

    def expire_now(self, live: OpenLog) -> None:
        """Move the floor past what is too old."""
        trim = core_log.expire(live.log, self.clock.now_ms())
        if trim is None:
            return
        if self.journal.failure is not None:
            self.apply(trim)  # read-only: the next start works it out again
        else:
            live.aged_position = self.commit([trim], sync=True)

    def end_part(self) -> dict[int, str]:
        """A part of the open journal file ends here: the logs with records in it."""
        ended, self.touched = self.touched, {}
        return ended

    def end_file(self) -> None:
        """The journal goes on in a new file: forwards name only records of their own."""
        self.near, self.derived_bytes = {}, 0

    # --- waiting for the commit point ------------------------------------------------------------

    async def commit_synced(self, entries: Sequence[Entry], *, together: bool = False) -> None:
        """Make entries true and wait until they are on stable storage, whatever log they are of."""
        await self.journal.wait_synced(self.commit(entries, sync=True, together=together))

    async def wait(self, live: OpenLog, position: int, last: int, timings: Timings) -> None:
        """Wait for the commit point of the log's class; then readers may see up to `last`."""
        started = perf_counter()
        await self.committed(live, position, last)
        timings.note_wait(live.log.config, (perf_counter() - started) * 1e3)

    def committed(
        self,
        live: OpenLog,
        position: int,
        last: int,
        show: Callable[[int], None] | None = None,
    ) -> asyncio.Future[None]:
        """Done at the commit point of the log's class: then readers may see up to `last`."""
        journal, then = self.journal, partial(show or live.show, last)
        if self.needs_sync(live, last):
            return journal.wait_synced(position, then)
        if not live.log.config.journaled:
            position = 0  # it is as committed as it will ever be
        return journal.wait_written(position, then)

    def show_when_committed(
        self, position: int, ends: Sequence[tuple[OpenLog, int]]
    ) -> dict[int, asyncio.Future[None]]:
        """Readers may see each log up to its seq when what was journaled of it is committed, class
        ephemeral or not; returns when that is, by log.
        """
        synced: list[tuple[OpenLog, int]] = []
        written: list[tuple[OpenLog, int]] = []
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

    def needs_sync(self, live: OpenLog, last: int) -> bool:
        """Whether records up to `last` are committed only when they are on stable storage."""
        synced = self.journal.synced
        if live.log.config.synced or synced < live.config_position:
            return True
        # The promise comes first, and the records behind it: one sync covers both.
        return last > live.reserved_before and synced < live.reserve_position

    async def settle(self, *lives: OpenLog) -> None:
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

    def head_of(self, live: OpenLog) -> int:
        """The last record that an answer counts which waits for it (`settle_all`)."""
        return live.log.head if self.journal.failure is None else live.visible

    async def settle_all(self, *lives: OpenLog) -> None:
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

    async def settle_deletions(
        self, live: OpenLog, known: int, leave_out: Callable[[], None]
    ) -> None:
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


def _show(ends: Sequence[tuple[OpenLog, int]]) -> None:
    for live, last in ends:
        live.show(last)
