"""One timer for all connections: heartbeats and deadlines, to a quarter of a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from headrace.core.limits import WHEEL_TICK_S


class Attended(Protocol):
    """What the wheel looks after."""

    tick: int
    """Where it is on the wheel; 0 when it is not."""

    def attend(self, now: float) -> float:
        """It is time; returns in how many seconds it is again, 0 for never."""


class Wheel:
    """Whom to attend to at which tick. Costs nothing while it is empty."""

    def __init__(self) -> None:
        self._spokes: dict[int, dict[Attended, None]] = {}
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

    def put(self, attended: Attended, wait_s: float) -> None:
        """Attend to this one in so many seconds, or a little later."""
        now = self.time()
        tick = max(int((now + wait_s) / WHEEL_TICK_S) + 1, self._tick + 1)
        attended.tick = tick
        self._spokes.setdefault(tick, {})[attended] = None
        self._count += 1
        if self._timer is None:
            self._tick = int(now / WHEEL_TICK_S)
            self._arm()

    def take(self, attended: Attended) -> None:
        """Let it be; it need not be on the wheel."""
        spoke = self._spokes.get(attended.tick)
        if spoke is not None and attended in spoke:
            del spoke[attended]
            self._count -= 1
            if not spoke:
                del self._spokes[attended.tick]
            attended.tick = 0

    def _arm(self) -> None:
        assert self._loop is not None
        self._timer = self._loop.call_at((self._tick + 1) * WHEEL_TICK_S, self._turn)

    def _turn(self) -> None:
        now = self.time()
        while self._tick < int(now / WHEEL_TICK_S):
            self._tick += 1
            for attended in tuple(self._spokes.get(self._tick, ())):
                self.take(attended)
                if wait_s := attended.attend(now):
                    self.put(attended, wait_s)
        self._timer = None
        if self._count:
            self._arm()
