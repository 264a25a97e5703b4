"""Commits on the event loop, with syncs in a process of their own: no thread, no hand-over.

A writer thread needs the interpreter two or three times for every commit, and each time the event
loop must stop for it (docs/decisions/0010). Here the loop hands a group to the operating system
itself, asks the sync process to sync it, and goes on with requests until the answer comes.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Protocol

from headrace.storage.disk import SyncFailed
from headrace.storage.journal import Journal


class Sync(Protocol):
    """Syncs of one file, one at a time, elsewhere."""

    def fileno(self) -> int:
        """Readable when a sync has ended."""

    def use(self, file: int) -> None:
        """From now on, sync this file."""

    def start(self) -> None:
        """Begin to sync."""

    def finish(self) -> None:
        """Take the result of a sync; waits if it has not ended. OSError when it failed."""

    def close(self) -> None: ...


class LoopWriter:
    """Commits what was enqueued since the last commit began.

    While a sync runs, requests go on and the next group gathers; it is committed the moment the
    sync ends.
    """

    def __init__(self, journal: Journal, loop: asyncio.AbstractEventLoop, sync: Sync) -> None:
        self._journal = journal
        self._loop = loop
        self._sync = sync
        self._busy = False
        self._scheduled = False
        self._closed = False
        self._covered = 0
        self._started = 0.0
        loop.add_reader(sync.fileno(), self._synced)

    def wake(self) -> None:
        if not self._scheduled and not self._busy:
            # At the end of this round of the loop: whatever else it brings joins the group.
            self._scheduled = True
            self._loop.call_soon(self._commit)

    def close(self) -> None:
        self._closed = True
        self._loop.remove_reader(self._sync.fileno())
        self._sync.close()

    def _commit(self) -> None:
        self._scheduled = False
        journal = self._journal
        if self._busy or self._closed or journal.reached_by_writer.failure is not None:
            return
        try:
            position = journal.write_next()
            if position is not None:
                self._turn(position)
        except OSError as failure:
            journal.fail(failure)
        try:
            if not self._busy and journal.sync_due:
                self._covered = journal.reached_by_writer.written
                self._started = perf_counter()
                self._sync.start()
                self._busy = True
        except OSError as failure:
            journal.fail(failure)
        journal.reached(journal.reached_by_writer)

    def _synced(self) -> None:
        try:
            self._sync.finish()
            self._journal.synced_to(self._covered, self._started)
        except OSError as failure:
            self._loop.remove_reader(self._sync.fileno())
            self._journal.fail(SyncFailed(*failure.args))
            self._loop.run_in_executor(None, self._journal.note_failure)
        self._go_on()

    def _turn(self, position: int) -> None:
        """Changing files syncs and opens, which blocks: that goes to a thread, once a file."""
        self._busy = True
        turning = self._loop.run_in_executor(None, self._turn_page, position)
        turning.add_done_callback(lambda _: self._go_on())

    def _turn_page(self, position: int) -> None:
        try:
            self._journal.turn_page(position)
            self._hand_over()
        except OSError as failure:
            self._journal.fail(failure)
            self._journal.note_failure()

    def _hand_over(self) -> None:
        try:
            self._sync.use(self._journal.fileno())
        except OSError as failure:  # else it would sync the old file and say that all is well
            raise SyncFailed(*failure.args) from failure

    def _go_on(self) -> None:
        self._busy = False
        self._journal.reached(self._journal.reached_by_writer)
        if self._journal.stall is not None:
            return  # the journal wakes us
        if self._journal.queue_depth or self._journal.sync_due:
            self._commit()
