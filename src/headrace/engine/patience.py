"""One timer for all who wait equally long: a timer for each would cost more than most waits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Patience:
    """Ends waits that take too long. Belongs to one event loop."""

    def __init__(self, limit_s: float, give_up: Callable[[], Exception]) -> None:
        self.limit_s = limit_s
        self._give_up = give_up
        self._waits: deque[tuple[float, asyncio.Future[None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, future: asyncio.Future[None]) -> asyncio.Future[None]:
        """The future, which fails unless it is done in time."""
        waits = self._waits
        while waits and waits[0][1].done():
            waits.popleft()
        if not future.done():
            loop = future.get_loop()
            waits.append((loop.time() + self.limit_s, future))
            if self._timer is None:
                self._timer = loop.call_at(waits[0][0], self._look, loop)
        return future

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        waits, now = self._waits, loop.time()
        while waits and (waits[0][1].done() or waits[0][0] <= now):
            _, future = waits.popleft()
            if not future.done():
                future.set_exception(self._give_up())
        if waits:
            self._timer = loop.call_at(waits[0][0], self._look, loop)
