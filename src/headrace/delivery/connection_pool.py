"""Connections to receivers that wait for the next call, so many and for so long."""

from __future__ import annotations

import asyncio
from collections import deque

from headrace.core.limits import (
    WEBHOOK_CONNECTION_S,
    WEBHOOK_IDLE_MAX,
    WEBHOOK_IDLE_PER_HOST_MAX,
    WEBHOOK_IDLE_S,
)

HostKey = tuple[str, str, int]
"""Scheme, host and port."""


class HttpConnection:
    """A connection to an address that was looked at when it was opened."""

    __slots__ = ("opened_at_s", "reader", "timer", "writer")

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, opened_at_s: float
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.opened_at_s = opened_at_s
        self.timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        return not (self.writer.is_closing() or self.reader.at_eof())

    def close(self) -> None:
        self.writer.transport.abort()


class ConnectionPool:
    """Idle connections by host. One that is too old is not used again: the name of its host may
    mean another address by now.
    """

    def __init__(self) -> None:
        self._idle: dict[HostKey, deque[HttpConnection]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def take(self, key: HostKey) -> HttpConnection | None:
        """The connection that was used last, if it can be used again."""
        idle = self._idle.get(key)
        while idle:
            connection = idle.pop()
            self._forget(key, connection)
            if connection.is_open:
                return connection
            connection.close()
        return None

    def give(self, key: HostKey, connection: HttpConnection) -> None:
        """Keep a connection for the next call, if there is room."""
        loop = asyncio.get_running_loop()
        age_s = loop.time() - connection.opened_at_s
        idle = self._idle.setdefault(key, deque())
        if (
            not connection.is_open
            or age_s >= WEBHOOK_CONNECTION_S
            or self._count >= WEBHOOK_IDLE_MAX
            or len(idle) >= WEBHOOK_IDLE_PER_HOST_MAX
        ):
            connection.close()
            if not idle:
                del self._idle[key]
            return
        idle.append(connection)
        self._count += 1
        left_s = min(WEBHOOK_IDLE_S, WEBHOOK_CONNECTION_S - age_s)
        connection.timer = loop.call_later(left_s, self._expire, key, connection)

    def _expire(self, key: HostKey, connection: HttpConnection) -> None:
        self._idle[key].remove(connection)
        self._forget(key, connection)
        connection.close()

    def _forget(self, key: HostKey, connection: HttpConnection) -> None:
        self._count -= 1
        if connection.timer is not None:
            connection.timer.cancel()
            connection.timer = None
        if not self._idle[key]:
            del self._idle[key]

    def close(self) -> None:
        """Close all of them."""
        for key in tuple(self._idle):
            while (connection := self.take(key)) is not None:
                connection.close()
