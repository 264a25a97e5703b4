"""Work beside requests, by priority: pushes to followers, passes of routers.

Without pressure everything is done there and then. Under pressure work gathers for some
milliseconds and is then done by priority, in slices, with requests in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

from headrace.core import priority
from headrace.core.limits import PRESSURE_TICK_MS, SLICE_MS, WAITING_TURNS_FULL
from headrace.core.pressure import Pressure
from headrace.core.schedule import Rounds
from headrace.engine.flow.admission import WriteAdmission
from headrace.engine.flow.loop_lag import LoopLag
from headrace.engine.open_log import OpenLog
from headrace.engine.ports import Clock, Pool

Work = Callable[[], None]


class PriorityScheduler:
    """Who is served now and who waits."""

    def __init__(self, clock: Clock, pool: Pool, admission: WriteAdmission) -> None:
        self.pressure = Pressure()
        self._clock = clock
        self._pool = pool
        self._admission = admission
        self._waiting: Rounds[Work] = Rounds()
        self._lined_up: set[Work] = set()
        self._held: dict[Work, OpenLog] = {}
        self._scheduled: asyncio.Handle | None = None

    def serve(self, live: OpenLog, work: Work, *, background: bool = False) -> bool:
        """Do this work of a log, now or when its turn comes; asking again meanwhile adds nothing.

        False when it must wait until pressure falls: the log has a negative priority and the server
        is hard pressed. Background work gives way to the rest then.
        """
        if not self._lined_up and self.pressure.window_ms == 0.0 and not self.pressure.severe:
            work()
            return True
        if work in self._lined_up:
            return work not in self._held
        self._lined_up.add(work)
        if self.pressure.severe and self._priority(live) < 0:
            self._held[work] = live
            return False
        self._line_up(live, work, lowered=background and self.pressure.severe)
        return True

    def cancel(self, work: Work) -> None:
        """Whoever wanted this is gone. Work that is lined up is then passed over."""
        self._lined_up.discard(work)
        self._held.pop(work, None)

    async def run(self, loop_lag: LoopLag) -> None:
        """Feel the pressure, for as long as the server runs."""
        while True:
            await asyncio.sleep(PRESSURE_TICK_MS / 1000)
            self.feel(loop_lag.take_lag_ms())

    def feel(self, lag_ms: float) -> None:
        waiting = max(len(self._waiting) / WAITING_TURNS_FULL, self._admission.load)
        self.pressure.update(waiting=waiting, lag_ms=lag_ms, busy=self._pool.busy)
        if self._held and not self.pressure.severe:
            held, self._held = self._held, {}
            for work, live in held.items():
                self._line_up(live, work)

    def _priority(self, live: OpenLog) -> int:
        return priority.effective(live.log.config, live.last_read_at_ms, self._clock.now_ms())

    def _line_up(self, live: OpenLog, work: Work, *, lowered: bool = False) -> None:
        self._waiting.put(work, self._priority(live), self._clock.now_ms(), lowered=lowered)
        if self._scheduled is None:
            loop = asyncio.get_running_loop()
            self._scheduled = loop.call_later(self.pressure.window_ms / 1000, self._serve_slice)

    def _serve_slice(self) -> None:
        self._scheduled = None
        try:
            self._serve_some()
        finally:  # also if one of them fails: the others have waited long enough
            if self._waiting:
                self._scheduled = asyncio.get_running_loop().call_soon(self._serve_slice)

    def _serve_some(self) -> None:
        started = perf_counter()
        now_ms = self._clock.now_ms()
        while turn := self._waiting.take(now_ms):
            work, _ = turn
            if work in self._lined_up:
                self._lined_up.discard(work)
                work()
            if (perf_counter() - started) * 1e3 > SLICE_MS:
                break
