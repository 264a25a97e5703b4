"""Loop lag: how late the event loop is, measured, so that nobody has to guess."""

from __future__ import annotations

import asyncio

_TICK_S = 0.025
"""Often enough to catch what holds the loop again and again, and cheap for an idle server."""
_WINDOW_S = 60.0


class LoopLag:
    """The lag of the loop: how late a short timer was, at most and on average."""

    def __init__(self) -> None:
        self._now_ms = 0.0
        self._before_ms = 0.0
        self._late_ms = 0.0
        self._ticks = 0
        self._is_fresh = False

    @property
    def stall_max_ms(self) -> float:
        return round(max(self._now_ms, self._before_ms), 3)

    def take_lag_ms(self) -> float:
        """The mean since this was last asked."""
        lag_ms = self._late_ms / self._ticks if self._ticks else 0.0
        self._late_ms, self._ticks = 0.0, 0
        return lag_ms

    def reset(self) -> None:
        """Forget what was; starting up does not count."""
        self._now_ms = self._before_ms = self._late_ms = 0.0
        self._ticks = 0
        self._is_fresh = True

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        window_ends = loop.time() + _WINDOW_S
        while True:
            due = loop.time() + _TICK_S
            await asyncio.sleep(_TICK_S)
            now = loop.time()
            if self._is_fresh:  # this tick was due before
                self._is_fresh = False
                continue
            late_ms = (now - due) * 1e3
            self._late_ms += late_ms
            self._ticks += 1
            self._now_ms = max(self._now_ms, late_ms)
            if now >= window_ends:
                self._before_ms, self._now_ms = self._now_ms, 0.0
                window_ends = now + _WINDOW_S
