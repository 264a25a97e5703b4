"""Appends of one turn of the event loop to one log, as one: decided, applied and journaled once."""

from __future__ import annotations

import asyncio

from headrace.core.limits import APPENDS_TOGETHER_BYTES_MAX
from headrace.core.record import Drafts
from headrace.engine.open_log import OpenLog


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

    def commit(self, last: int) -> None:
        """All of it is committed: readers may see it, and the writers go on."""
        self.live.show(last)
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
