"""How long the event loop was held: measured, so that nobody has to guess."""

from __future__ import annotations

import asyncio

_TICK_S = 0.01
_WINDOW_S = 60.0


class Stall:
    """The longest time by which a short timer was late, over the last one to two minutes."""

    def __init__(self) -> None:
        self._now_ms = 0.0
        self._before_ms = 0.0

    @property
    def max_ms(self) -> float:
        return round(max(self._now_ms, self._before_ms), 3)

    def reset(self) -> None:
        """Forget what was; starting up does not count."""
        self._now_ms = self._before_ms = 0.0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        window_ends = loop.time() + _WINDOW_S
        while True:
            due = loop.time() + _TICK_S
            await asyncio.sleep(_TICK_S)
            now = loop.time()
            self._now_ms = max(self._now_ms, (now - due) * 1e3)
            if now >= window_ends:
                self._before_ms, self._now_ms = self._now_ms, 0.0
                window_ends = now + _WINDOW_S
