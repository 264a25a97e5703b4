"""One timer for all connections: heartbeats and deadlines, to a quarter of a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from headrace.core.limits import WHEEL_TICK_S


class Timed(Protocol):
    """What waits in the wheel."""

    tick: int
    """Its slot; 0 when it is in none."""

    def on_timer(self, now: float) -> float:
        """It is time; returns in how many seconds it is again, 0 for never."""


class TimerWheel:
    """What is due at which tick. Costs nothing while it is empty."""

    def __init__(self) -> None:
        self._slots: dict[int, dict[Timed, None]] = {}
        self._count = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tick = 0
        self.time: Callable[[], float] = self._time

    def __len__(self) -> int:
        return self._count

    def _time(self) -> float:
        """The loop's clock; found when first asked for, since a wheel is made before its loop."""
        self._loop = asyncio.get_running_loop()
        self.time = self._loop.time
        return self._loop.time()

    def schedule(self, timed: Timed, wait_s: float) -> None:
        """Call its `on_timer` in so many seconds, or a little later."""
        now = self.time()
        tick = max(int((now + wait_s) / WHEEL_TICK_S) + 1, self._tick + 1)
        timed.tick = tick
        self._slots.setdefault(tick, {})[timed] = None
        self._count += 1
        if self._timer is None:
            self._tick = int(now / WHEEL_TICK_S)
            self._arm()

    def cancel(self, timed: Timed) -> None:
        """Do not call it; it need not be scheduled."""
        slot = self._slots.get(timed.tick)
        if slot is not None and timed in slot:
            del slot[timed]
            self._count -= 1
            if not slot:
                del self._slots[timed.tick]
            timed.tick = 0

    def _arm(self) -> None:
        assert self._loop is not None
        self._timer = self._loop.call_at((self._tick + 1) * WHEEL_TICK_S, self._turn)

    def _turn(self) -> None:
        now = self.time()
        # A loop calls a hair too early, by the resolution of its clock: that is the tick all the
        # same. Waiting for it once more would be waiting for nothing, again and again.
        reached = max(int(now / WHEEL_TICK_S), self._tick + 1)
        while self._tick < reached:
            self._tick += 1
            for timed in tuple(self._slots.get(self._tick, ())):
                self.cancel(timed)
                if wait_s := timed.on_timer(now):
                    self.schedule(timed, wait_s)
        self._timer = None
        if self._count:
            self._arm()
