"""A log as the running engine sees it: its state, its tail, what readers may see, and who waits for
more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from headrace.core import log as core_log
from headrace.core.config import LogConfig
from headrace.core.entry import Reserve
from headrace.core.keyed_records import KeyedRecords
from headrace.core.limits import (
    RESERVE_FAST_MS,
    RESERVE_SEQS_MAX,
    RESERVE_SEQS_MIN,
    SUPERSEDED_BLOCKS_KEPT,
    SUPERSEDED_BYTES_KEPT,
)
from headrace.core.log import Log
from headrace.core.record import Block
from headrace.core.record_ids import RecordIds
from headrace.engine.tail import Tail

if TYPE_CHECKING:
    from headrace.engine.queues.dispatcher import JobDispatcher


def keyed_by(config: LogConfig) -> KeyedRecords | None:
    """What a log without records has by key."""
    return KeyedRecords() if config.keyed else None


class OpenLog:
    """One log in operation."""

    __slots__ = (
        "aged_position",
        "config_position",
        "deletions",
        "dispatcher",
        "ids",
        "keyed",
        "last_read_at_ms",
        "last_write_at_ms",
        "listeners",
        "log",
        "recent",
        "recent_bytes",
        "reserve_ahead",
        "reserve_position",
        "reserved_at_ms",
        "reserved_before",
        "sealed",
        "shrunk_position",
        "tail",
        "visible",
        "waiters",
    )

    def __init__(self, log: Log) -> None:
        self.log = log
        self.tail = Tail(log.sealed_last + 1)
        self.visible = log.head
        """Highest seq readers may see: nothing shows before its commit point."""
        self.last_write_at_ms: int | None = log.last_ts_ms or None
        self.last_read_at_ms: int | None = None
        self.config_position = 0
        """Until the journal is synced to here, the log is still being created, configured or
        dropped: what is appended, and answers that tell of it, wait.
        """
        self.reserve_position = 0
        self.reserved_before = log.reserved
        """Seqs up to here were promised durably; beyond, the sync of `reserve_position` must come
        first.
        """
        self.sealed = 0
        """How many segments with its records this server made."""
        self.reserve_ahead = RESERVE_SEQS_MIN
        self.reserved_at_ms = 0
        self.aged_position = 0
        """Where the newest floor moved by age, or a longer life of the stream, was journaled: an
        answer that knows of it waits for its sync.
        """
        self.shrunk_position = 0
        """Where records last went for another reason; an answer waits for the commit point of the
        class.
        """
        self.deletions = 0
        """How often records were deleted: the list of them changes in place."""
        self.keyed = keyed_by(log.config)
        """Its live records by key, while it has a rule for them; `KeyRules` fills it at a start."""
        self.ids = RecordIds() if log.config.unique_ids else None
        """The ids of its records, while each is stored once; `IdentifiedAppender` fills it at a
        start.
        """
        self.dispatcher: JobDispatcher | None = None
        """Where jobs are handed out, once somebody asked for one."""
        self.waiters: dict[asyncio.Future[None], None] | None = None
        """Who waits for the next change; a million idle logs need no dictionary for nobody."""
        self.recent: deque[Block] | None = None
        """What came lately to a log with a rule by key, while it is followed: followers get what
        newer records superseded before it was their turn.
        """
        self.recent_bytes = 0
        self.listeners: tuple[Callable[[], None], ...] = ()
        """Called at every change: followers that stay; nothing, not even empty, for idle logs."""

    def wakeup(self) -> asyncio.Future[None]:
        """Done at the next change. Take it before you look, then wait."""
        future = asyncio.get_running_loop().create_future()
        if self.waiters is None:
            self.waiters = {}
        self.waiters[future] = None
        return future

    def forget(self, wakeup: asyncio.Future[None]) -> None:
        """Nobody waits for this any more."""
        if self.waiters is not None:
            self.waiters.pop(wakeup, None)

    def listen(self, listener: Callable[[], None]) -> None:
        """Have this called at every change, until it is taken out again.

        It must be quick, and must not change the log there and then.
        """
        self.listeners = (*self.listeners, listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        at = self.listeners.index(listener)
        self.listeners = self.listeners[:at] + self.listeners[at + 1 :]
        if not self.listeners:
            self.forget_recent()

    def remember(self, block: Block) -> None:
        """Keep a block for followers, though it may be superseded; the oldest ones make room.

        It has its seqs for good by now: what is refused is not to be told of.
        """
        if not (self.listeners and self.log.config.keyed):
            return
        if self.recent is None:
            self.recent = deque()
        recent = self.recent
        recent.append(block)
        self.recent_bytes += len(block.data)
        while len(recent) > SUPERSEDED_BLOCKS_KEPT or self.recent_bytes > SUPERSEDED_BYTES_KEPT:
            self.recent_bytes -= len(recent.popleft().data)

    def recall(self, first: int, last: int) -> list[Block] | None:
        """The blocks that brought these seqs, if all of them are still known."""
        if not self.recent or self.recent[0].first > first or self.recent[-1].last < last:
            return None
        found = [block for block in self.recent if block.last >= first and block.first <= last]
        whole = all(one.last + 1 == next.first for one, next in pairwise(found))
        return found if whole else None

    def forget_recent(self) -> None:
        """Records were deleted on purpose: nobody is to get them."""
        self.recent, self.recent_bytes = None, 0

    def promise(self, last: int, now_ms: int) -> Promise | None:
        """What must be promised durably before readers may see `last`, if anything."""
        log = self.log
        reserve = core_log.reserve(log, last, self.reserve_ahead)
        if reserve is None:
            return None
        ahead = self._plan_ahead(now_ms)
        return Promise(self, Reserve(log.id, max(reserve.upto, last + ahead)), log.reserved, ahead)

    def _plan_ahead(self, now_ms: int) -> int:
        """How many seqs to promise at a time: more for a log that used up the last promise fast."""
        fast = now_ms - self.reserved_at_ms < RESERVE_FAST_MS
        ahead = self.reserve_ahead * 2 if fast else self.reserve_ahead // 2
        return max(RESERVE_SEQS_MIN, min(RESERVE_SEQS_MAX, ahead))

    def promised(self, ahead: int, position: int, before: int, synced: int, now_ms: int) -> None:
        """Seqs were promised in the journal entry that ends at `position`."""
        if self.reserve_position <= synced:
            self.reserved_before = before
        self.reserve_position = position
        self.reserve_ahead = ahead
        self.reserved_at_ms = now_ms

    def show(self, last: int) -> None:
        """Records up to `last` are committed: readers may see them."""
        if last > self.visible:
            self.visible = last
        self.wake()

    def wake(self) -> None:
        """Something changed: records came or went, or the log itself is gone."""
        for listener in self.listeners:
            listener()
        waiters, self.waiters = self.waiters, None
        if not waiters:
            return
        for future in waiters:
            if not future.done():
                future.set_result(None)


class Promise(msgspec.Struct, frozen=True):
    """Seqs about to be promised durably."""

    live: OpenLog
    entry: Reserve
    before: int
    """What was promised until now."""
    ahead: int

    def made(self, position: int, synced: int, now_ms: int) -> None:
        """The promise is in the journal, in an entry that ends at `position`."""
        self.live.promised(self.ahead, position, self.before, synced, now_ms)
