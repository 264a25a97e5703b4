"""Answers that their readers do not take: bounded for all connections together."""

from __future__ import annotations

import asyncio

from headrace.core.limits import UNSENT_BYTES_MAX


class UnsentAnswers:
    """What is held for readers that do not keep up.

    Beyond the bound the connection ends that has been behind for the longest: who reads at all gets
    there before one that does not.
    """

    __slots__ = ("_held", "size_bytes")

    def __init__(self) -> None:
        self._held: dict[asyncio.Transport, int] = {}
        self.size_bytes = 0

    def hold(self, transport: asyncio.Transport, size_bytes: int) -> None:
        """The reader of this connection is behind with an answer: all of it is in memory until it
        has the last of it.
        """
        self._held[transport] = self._held.pop(transport, 0) + size_bytes
        self.size_bytes += size_bytes
        while self.size_bytes > UNSENT_BYTES_MAX and len(self._held) > 1:
            oldest = next(iter(self._held))
            self.free(oldest)
            oldest.abort()

    def free(self, transport: asyncio.Transport) -> None:
        """It has caught up, or is gone."""
        self.size_bytes -= self._held.pop(transport, 0)
