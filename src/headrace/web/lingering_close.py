"""A lingering close: connections that are refused end so that the peer can read the final reply.

A connection that is closed while bytes of the peer are unread takes its last reply back. So our
side ends first, and what still comes is dropped, for a bounded time and a bounded number of bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.core.limits import CLOSE_S, LINGER_BYTES_MAX


class LingeringClose(asyncio.Protocol):
    """The end of a connection: sends the final reply, and waits for the peer to close."""

    transport: asyncio.Transport
    _on_close: Callable[[], None]
    _timer: asyncio.TimerHandle

    def __init__(self, reply: bytes) -> None:
        self._reply = reply
        self._dropped = 0

    def attach(self, transport: asyncio.Transport, on_close: Callable[[], None]) -> None:
        """Take the connection; `on_close` when it is gone."""
        self.transport = transport
        self._on_close = on_close
        self._timer = asyncio.get_running_loop().call_later(CLOSE_S, transport.abort)
        self.opened()

    def opened(self) -> None:
        if self._reply:
            self.send(self._reply)
        else:
            self.transport.close()

    def send(self, reply: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(reply)
            self.transport.write_eof()

    def data_received(self, data: bytes) -> None:
        self._dropped += len(data)
        if self._dropped > LINGER_BYTES_MAX:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._on_close()

    def shutdown(self) -> None:
        """The server is about to stop."""
        self.transport.close()
