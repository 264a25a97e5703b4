"""The commit barrier: changes of logs wait while a batch is on its way to them.

A log that was asked whether it takes a batch must still take it when the batch comes. So whatever
could change its mind (the end of a stream, another schema) waits until the batches that are on
their way to it are there. Batches that come to be decided meanwhile wait for the change.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Set

from headrace.core.errors import Code, Refused
from headrace.core.limits import UNDER_WAY_S

_RETRY_AFTER_MS = 1000


class CommitBarrier:
    """Which batches are on their way to which logs, and who waits for that."""

    def __init__(self) -> None:
        self._logs: dict[str, Set[int]] = {}
        """By transaction."""
        self._changes: Counter[int] = Counter()
        """How many changes wait, by log."""
        self._moved = asyncio.Event()

    def comes_to(self, log: int) -> bool:
        """Whether a batch is on its way to this log."""
        return any(log in logs for logs in self._logs.values())

    async def begin(self, transaction: str, logs: Set[int], alone: Set[int]) -> None:
        """A batch of the transaction is about to be decided.

        To the logs in `alone` no two come at a time.
        """

        def is_free() -> bool:
            free = all(alone.isdisjoint(others) for others in self._logs.values())
            return free and logs.isdisjoint(self._changes)

        await self._wait(is_free, "other batches, or changes, of these logs take too long")
        self.go_on(transaction, logs)

    def go_on(self, transaction: str, logs: Set[int]) -> None:
        """A batch of the transaction was decided before we started."""
        assert transaction not in self._logs, transaction
        self._logs[transaction] = logs

    def end(self, transaction: str) -> None:
        """The batch is where it belongs, or was not decided."""
        del self._logs[transaction]
        self._wake()

    async def let_pass(self, log: int) -> None:
        """Wait until nothing is on its way to this log.

        What is done before the next await comes behind all batches before, and before all others.
        """
        self._changes[log] += 1
        try:
            await self._wait(
                lambda: not self.comes_to(log), "batches that are decided are still on their way"
            )
        finally:
            self._changes[log] -= 1
            if not self._changes[log]:
                del self._changes[log]
                self._wake()

    async def _wait(self, is_free: Callable[[], bool], otherwise: str) -> None:
        try:
            async with asyncio.timeout(UNDER_WAY_S):
                while not is_free():
                    await self._moved.wait()
        except TimeoutError:
            raise Refused(
                Code.THROTTLED, f"{otherwise}; try again", retry_after_ms=_RETRY_AFTER_MS
            ) from None

    def _wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()
