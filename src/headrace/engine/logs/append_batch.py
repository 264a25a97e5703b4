"""Appends of one turn of the event loop to one log, as one: decided, applied and journaled once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.core.errors import Refused
from headrace.core.limits import APPEND_TOGETHER_BYTES_MAX, APPENDS_TOGETHER_BYTES_MAX
from headrace.core.record import Drafts
from headrace.engine.open_log import OpenLog
from headrace.storage.journal import Journal


class AppendBatch:
    """What several writers append to a log in the same turn, in the order they came."""

    __slots__ = ("count", "drafts", "first", "live", "size_bytes", "writers")

    def __init__(self, live: OpenLog) -> None:
        self.live = live
        self.drafts: list[Drafts] = []
        self.writers: list[tuple[int, asyncio.Future[int]]] = []
        """How many records come before those of each writer, and whom to tell the seq of its first
        once that is committed.
        """
        self.count = 0
        self.size_bytes = 0
        self.first = 0
        """The seq of the first record, once it has one."""

    @property
    def is_full(self) -> bool:
        return self.size_bytes >= APPENDS_TOGETHER_BYTES_MAX

    def add(self, drafts: Drafts, writer: asyncio.Future[int]) -> None:
        """Take in what a writer appends."""
        self.drafts.append(drafts)
        self.writers.append((self.count, writer))
        self.count += drafts.count
        self.size_bytes += len(drafts.data)

    def commit(self) -> None:
        """All of it is committed: the writers go on."""
        first = self.first
        for before, writer in self.writers:
            if not writer.done():
                writer.set_result(first + before)

    def fail(self, error: BaseException) -> None:
        """None of it will be committed."""
        for _, writer in self.writers:
            if not writer.done():
                writer.set_exception(error)

    def note_failure(self, committed: asyncio.Future[None]) -> None:
        """The journal came to the end of this, or failed before."""
        if not committed.cancelled() and (error := committed.exception()) is not None:
            self.fail(error)

    def split(self) -> list[AppendBatch]:
        """A batch for each writer that still waits."""
        parts = []
        for drafts, (_, writer) in zip(self.drafts, self.writers, strict=True):
            if not writer.done():
                parts.append(AppendBatch(self.live))
                parts[-1].add(drafts, writer)
        return parts


class TurnBatches:
    """What is appended to each log in this turn of the loop.

    The first append to a log goes straight in; what follows waits for the end of the turn, and is
    appended as one: work for one record is work for all of them. Whatever else is written to the
    log comes behind what came before it (`flush`).
    """

    def __init__(self, journal: Journal, append: Callable[[AppendBatch], None]) -> None:
        self._journal = journal
        self._append = append
        """Appends a batch, or refuses."""
        self._turn: dict[int, AppendBatch | None] = {}

    def takes(self, live: OpenLog, drafts: Drafts) -> bool:
        """Whether small drafts follow others of this turn; if not, others may follow them."""
        if len(drafts.data) > APPEND_TOGETHER_BYTES_MAX:
            return False
        log = live.log.id
        if log in self._turn:
            return True
        if not self._turn:
            self._journal.loop.call_soon(self._end_turn)
        self._turn[log] = None
        return False

    def join(self, live: OpenLog, drafts: Drafts) -> asyncio.Future[int]:
        """Have drafts appended with others of this turn; the seq of the first, once committed."""
        log, writer = live.log.id, self._journal.loop.create_future()
        batch = self._turn[log]
        if batch is None:
            batch = self._turn[log] = AppendBatch(live)
        batch.add(drafts, writer)
        if batch.is_full:
            self._turn[log] = None
            self._append_all(batch)
        return writer

    def flush(self, live: OpenLog) -> None:
        """Append what waits for this log: something comes that goes by itself."""
        log = live.log.id
        if (batch := self._turn.get(log)) is not None:
            self._turn[log] = None
            self._append_all(batch)

    def _end_turn(self) -> None:
        turn, self._turn = self._turn, {}
        for batch in turn.values():
            if batch is not None:
                self._append_all(batch)

    def _append_all(self, batch: AppendBatch) -> None:
        """Append a batch; writer by writer where it is refused as a whole."""
        try:
            self._append(batch)
        except Refused as refused:
            if len(batch.writers) == 1:
                batch.fail(refused)
            else:
                for part in batch.split():
                    self._append_all(part)
        except Exception as error:  # noqa: BLE001  (a bug: nobody else would tell the writers)
            batch.fail(error)
