"""Work beside connections that nobody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from headrace.observe import log_line


class Tasks:
    """Keeps tasks alive until they are done; one that fails is told of, and hurts nobody else."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def soon(self, work: Callable[[], None]) -> None:
        """Do this when the current round of the loop is over."""
        self._loop.call_soon(work)

    def later(self, delay_s: float, work: Callable[[], None]) -> None:
        """Do this after some time."""
        self._loop.call_later(delay_s, work)

    def start(self, work: Coroutine[Any, Any, None], on_failure: Callable[[], None]) -> None:
        task = self._loop.create_task(self._guard(work, on_failure))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A task that is ended before it began has not begun its work either.
        task.add_done_callback(lambda _: work.close())

    async def _guard(self, work: Coroutine[Any, Any, None], on_failure: Callable[[], None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001  (a bug or a broken disk: who waits is told)
            log_line("error", "a push failed", trace=error)
            on_failure()
