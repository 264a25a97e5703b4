"""A journal writer without a thread: commits run on the event loop, after a delay it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.storage.journal import Journal, Progress


class LoopWriter:
    """Commits some time after it was woken, and reports some time after that."""

    def __init__(self, journal: Journal, delay_s: Callable[[], float] = lambda: 0.0) -> None:
        self._journal = journal
        self._delay_s = delay_s
        self._loop = asyncio.get_running_loop()
        self._awake = False
        self._stopped = False

    def wake(self) -> None:
        if not self._awake:
            self._awake = True
            self._loop.call_later(self._delay_s(), self._commit)

    def close(self) -> None:
        """Nothing happens after this, whatever was woken before."""
        self._stopped = True

    def _commit(self) -> None:
        if not self._stopped:
            self._awake = False
            self._journal.commit(self._report)

    def _report(self, progress: Progress) -> None:
        if not self._stopped:
            self._loop.call_soon(self._journal.reached, progress)
