"""The end of streams: when their time is up, what puts it off, and removing them."""

from __future__ import annotations

import asyncio
from heapq import heapify, heappop, heappush

from headrace.core import stream_rules
from headrace.core.entry import Entry, Open
from headrace.core.log import Log
from headrace.core.stream_rules import stream_of
from headrace.core.stream_state import is_expired, touch
from headrace.engine.kernel import Kernel
from headrace.engine.open_log import OpenLog
from headrace.engine.streams.active_subscriptions import ActiveSubscriptions

_SWEEP_S = 1.0
_ENDS_STALE_MAX = 1024
"""Ends of streams that are gone already; beyond, and beyond as many as there are logs, they go."""
_SWEEP_STREAMS = 200
"""Streams removed in one go before requests get a turn."""


class StreamExpiry:
    """When the streams of one engine end."""

    def __init__(self, kernel: Kernel, subscriptions: ActiveSubscriptions) -> None:
        self._kernel = kernel
        self._subscriptions = subscriptions
        self._deadlines: dict[int, int] = {}
        """When streams end that were used since their end was last written down."""
        self._ends: list[tuple[int, int]] = []
        """(when to look, log), as a heap."""
        kernel.observe(lambda live, _: self.opened(live), Open)

    def is_there(self, log: Log) -> bool:
        """Whether a stream was not deleted and its time is not up."""
        return not stream_of(log).deleted and not self.has_ended(self._kernel.open_logs[log.id])

    def opened(self, live: OpenLog) -> None:
        """A stream went into operation."""
        stream = live.log.stream
        if stream is not None and stream.expires_at_ms is not None and not stream.deleted:
            heappush(self._ends, (stream.expires_at_ms, live.log.id))
            if len(self._ends) > 2 * len(self._kernel.state.logs) + _ENDS_STALE_MAX:
                known = self._kernel.state.logs
                self._ends = [end for end in self._ends if end[1] in known]
                heapify(self._ends)

    def use(self, live: OpenLog) -> None:
        """A read or a write: a stream with a TTL lives on.

        Whoever answers a read must `settle` before: the longer life is a promise.
        """
        stream = live.log.stream
        if stream is None or stream.ttl_ms is None or live.log.id not in self._kernel.open_logs:
            return
        now_ms = self._kernel.clock.now_ms()
        self._deadlines[live.log.id] = now_ms + stream.ttl_ms
        note = touch(live.log.id, stream, now_ms)
        if note is not None and self._kernel.journal.failure is None:
            live.aged_position = self._kernel.commit([note], sync=True)

    def ends_at_ms(self, log: Log) -> int | None:
        """When the stream ends unless it is used before."""
        stream = stream_of(log)
        return self._deadlines.get(log.id, stream.expires_at_ms)

    def has_ended(self, live: OpenLog) -> bool:
        """Whether its time is up. A stream that somebody follows is in use."""
        if not is_expired(self.ends_at_ms(live.log), self._kernel.clock.now_ms()):
            return False
        if (live.waiters or live.listeners) and stream_of(live.log).ttl_ms is not None:
            self.use(live)
            return False
        return True

    async def run(self) -> None:
        """Remove streams whose time is up, for as long as the server runs."""
        wait_s = _SWEEP_S
        while True:
            await asyncio.sleep(wait_s)
            more = self._kernel.journal.failure is None and self.sweep()
            wait_s = 0.0 if more else _SWEEP_S

    def sweep(self) -> bool:
        """Remove some streams whose time is up; says whether there may be more."""
        now_ms = self._kernel.clock.now_ms()
        for _ in range(_SWEEP_STREAMS):
            if not self._ends or self._ends[0][0] > now_ms:
                return False
            log = self._kernel.state.logs.get(heappop(self._ends)[1])
            if log is None or stream_of(log).deleted:
                continue
            if self.has_ended(self._kernel.open_logs[log.id]):
                self.remove(self._kernel.open_logs[log.id])
            else:
                heappush(self._ends, (self.ends_at_ms(log) or 0, log.id))
        return True

    def remove(self, live: OpenLog) -> int:
        """Remove the stream, or keep its records for its forks alone; returns the position."""
        entries: list[Entry] = [
            *stream_rules.remove(self._kernel.state, live.log),
            *self._subscriptions.forget(live.log.name),
        ]
        position = self._kernel.commit(entries, sync=True, together=True)
        for entry in entries:
            self._deadlines.pop(entry.log, None)
        live.wake()
        return position
