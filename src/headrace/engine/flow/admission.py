"""Admission of writes: open while there is room, else a queue by priority."""

from __future__ import annotations

import asyncio
from time import perf_counter

from headrace.core.errors import Code, Refused
from headrace.core.limits import JOURNAL_PENDING_BYTES_MAX, PARKED_WRITES_MAX
from headrace.core.schedule import Rounds
from headrace.engine.ports import Clock
from headrace.storage.journal import Journal

_WAIT_S = 5.0
_RETRY_AFTER_MS = 1000


class WriteAdmission:
    """Admits writes as fast as they can be stored.

    When memory or the journal is full, writers wait and are admitted by the priority of their log,
    one after the other; after a while they are refused.
    """

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self.room = asyncio.Event()
        """Cleared by upkeep while memory is full."""
        self.room.set()
        self._journal = journal
        self._clock = clock
        self._parked: Rounds[asyncio.Future[None]] = Rounds()
        self._drainer: asyncio.Task[None] | None = None

    @property
    def open(self) -> bool:
        """Whether a write may go straight in."""
        journal = self._journal
        return (
            self.room.is_set()
            and journal.tail - journal.written <= JOURNAL_PENDING_BYTES_MAX
            and not self._parked
        )

    @property
    def parked(self) -> int:
        """How many wait to be admitted."""
        return len(self._parked)

    @property
    def load(self) -> float:
        """How full the queue of writers is, or the journal: at 1 writers are refused."""
        pending = self._journal.pending_bytes / JOURNAL_PENDING_BYTES_MAX
        return max(len(self._parked) / PARKED_WRITES_MAX, pending)

    async def wait(self, priority: int, *, patient: bool) -> float:
        """Wait for a turn to write; returns the milliseconds that took.

        A patient writer waits as long as it takes.
        """
        if not patient and len(self._parked) >= PARKED_WRITES_MAX:
            raise self.overloaded()
        started = perf_counter()
        turn = asyncio.get_running_loop().create_future()
        self._parked.put(turn, priority, self._clock.now_ms())
        if self._drainer is None or self._drainer.done():
            self._drainer = asyncio.create_task(self._drain())
        try:
            async with asyncio.timeout(None if patient else _WAIT_S):
                await turn
        except TimeoutError:
            raise self.overloaded() from None
        return (perf_counter() - started) * 1e3

    async def _drain(self) -> None:
        """As long as somebody waits: one writer after the other, each when there is room for it."""
        while self._parked:
            await self.room.wait()
            if self._journal.pending_bytes > JOURNAL_PENDING_BYTES_MAX:
                try:
                    await self._journal.wait_written(self._journal.tail)
                except Refused:
                    pass  # read-only: the writer finds out by itself
            parked = self._parked.take(self._clock.now_ms())
            if parked is None or parked[0].done():
                continue  # that one gave up
            parked[0].set_result(None)
            await asyncio.sleep(0)  # the writer enqueues before the next one is admitted

    def overloaded(self) -> Refused:
        self._journal.stats.turned_away += 1
        return Refused(
            Code.THROTTLED,
            "writes come faster than they can be stored; try again in a moment",
            retry_after_ms=_RETRY_AFTER_MS,
        )
