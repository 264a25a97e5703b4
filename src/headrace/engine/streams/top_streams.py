"""Which streams stand out, for whoever looks after the server.

With many logs nobody counts on a request: they are gone through in slices beside everything else,
not more often than every few seconds and only while somebody asks.
"""

from __future__ import annotations

import asyncio
from heapq import heappush, heappushpop

import msgspec

from headrace.core.limits import RANKED_AT_ONCE, RANKED_S, RANKED_TOP
from headrace.engine.flow.time_slices import slices
from headrace.engine.kernel import Kernel
from headrace.engine.open_log import OpenLog

Ranking = list[tuple[int, str]]
"""(how much, name), most first."""


class TopLists(msgspec.Struct, frozen=True):
    """The streams that have most of something, and when they were counted."""

    at_ms: int | None = None
    stored: Ranking = []
    """Bytes of live records."""
    unsealed: Ranking = []
    """Bytes of live records that are in no segment yet, by their average size."""
    waiters: Ranking = []
    """Who waits for something new."""


class TopStreams:
    """Counts the streams of an engine."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._asked = asyncio.Event()
        self._last = TopLists()

    def take(self) -> TopLists:
        """The last count; with few logs, one of now."""
        if len(self._kernel.state.logs) <= RANKED_AT_ONCE:
            top = _Top(self._kernel)
            for live in self._kernel.open_logs.values():
                top.add(live)
            return top.leaders()
        self._asked.set()
        return self._last

    async def run(self) -> None:
        """Count when somebody asked, for as long as the server runs."""
        while True:
            await self._asked.wait()
            top, lives = _Top(self._kernel), self._kernel.open_logs
            async for log in slices(self._kernel.state.ids()):
                if (live := lives.get(log)) is not None:
                    top.add(live)
            self._last = top.leaders()
            self._asked.clear()
            await asyncio.sleep(RANKED_S)


class _Top:
    """The most of each kind so far."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._heaps: tuple[Ranking, Ranking, Ranking] = ([], [], [])

    def add(self, live: OpenLog) -> None:
        log = live.log
        if log.stream is None or log.stream.deleted:
            return
        unsealed = log.head - max(log.sealed_last, log.inherited)
        estimate = log.size_bytes * unsealed // log.count if log.count and unsealed > 0 else 0
        waiters = len(live.waiters or ()) + len(live.listeners)
        for heap, value in zip(self._heaps, (log.size_bytes, estimate, waiters), strict=True):
            if not value:
                continue
            if len(heap) < RANKED_TOP:
                heappush(heap, (value, log.name))
            elif value > heap[0][0]:
                heappushpop(heap, (value, log.name))

    def leaders(self) -> TopLists:
        stored, unsealed, waiters = (sorted(heap, reverse=True) for heap in self._heaps)
        return TopLists(self._kernel.clock.now_ms(), stored, unsealed, waiters)
