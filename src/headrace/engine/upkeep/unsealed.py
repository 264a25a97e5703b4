"""Unsealed: the parts of the journal whose records are in no segment yet.

A part ends where the journal goes on in a new file, or where it is cut because its records have
waited long enough, or because somebody asked for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

import msgspec

from headrace.core.batching import batches
from headrace.engine.kernel import Kernel
from headrace.storage.recovery import Recovered


class JournalPart(msgspec.Struct, frozen=True):
    """A range of the journal that is to be sealed, and the logs it holds records of."""

    start: int
    stop: int
    logs: dict[int, str]
    size_bytes: int
    """What it comes to with the copies that its forwards stand for."""
    since: float
    """When the first of its records was written, by the clock of the loop."""


class Unsealed:
    """What waits to be sealed, oldest first; its last part, which still grows, is the open one."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.parts: deque[JournalPart] = deque()
        self._start = kernel.journal.file_start
        self._cut_derived_bytes = 0
        """Of the engine's count of this file, what lies in parts that are cut already."""
        self.open_since: float | None = None
        """When the first record of the open part was seen."""
        self.records_to = self._start
        """The end of the last part with records, sealed or not; at a start there may be many."""

    @property
    def size_bytes(self) -> int:
        """Of all parts but the open one."""
        return sum(part.size_bytes for part in self.parts)

    @property
    def waits(self) -> bool:
        """Whether there are records in any part."""
        return bool(self._kernel.touched) or any(part.logs for part in self.parts)

    @property
    def since(self) -> float | None:
        """When the oldest record that waits was written."""
        return next((part.since for part in self.parts if part.logs), self.open_since)

    def resume(self, recovered: Recovered, now: float, now_ms: int) -> None:
        """Take over what recovery found; records are as old as they say."""
        lives = self._kernel.open_logs
        tails = [
            lives[log].tail for closed in recovered.closed for log in closed[2] if log in lives
        ]
        oldest_ms = min((tail.blocks[0].ts_ms for tail in tails if tail.blocks), default=now_ms)
        since = now - max(0, now_ms - oldest_ms) / 1000
        self.parts.extend(JournalPart(*closed, since) for closed in recovered.closed)

    def close_file(self) -> bool:
        """End the open part with the journal file; says whether there was anything in it."""
        stop = self._kernel.journal.rotate()
        closed = self._end(stop)
        self._kernel.end_file()
        self._cut_derived_bytes = 0
        return closed

    def cut(self) -> bool:
        """End the open part here, inside the journal file; says whether there are records in it.

        The file goes on, however often its records are sealed: files are as large as they ever are.
        """
        return bool(self._kernel.touched) and self._end(self._kernel.journal.tail)

    def _end(self, stop: int) -> bool:
        kernel, start = self._kernel, self._start
        if stop == start:
            return False
        size_bytes = stop - start + kernel.derived_bytes - self._cut_derived_bytes
        since = self.open_since
        since = asyncio.get_running_loop().time() if since is None else since
        logs = kernel.end_part()
        self.parts.append(JournalPart(start, stop, logs, size_bytes, since))
        if logs:
            self.records_to = stop
        self._start, self._cut_derived_bytes = stop, kernel.derived_bytes
        self.open_since = None
        return True

    def next_parts(self, bytes_max: int) -> list[JournalPart]:
        """The oldest parts that make one segment of so many bytes; one at least."""
        return next(batches(self.parts, lambda part: part.size_bytes, bytes_max))

    def forget(self, sealed_to: int) -> None:
        """The journal is in segments up to here."""
        while self.parts and self.parts[0].stop <= sealed_to:
            self.parts.popleft()

    def logs(self) -> Iterable[int]:
        """The logs with records in any part but the open one, each once."""
        return {log: None for part in self.parts for log in part.logs}
