"""Sockets to the server under test."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterator

from headrace_bench.errors import BenchError
from headrace_bench.replies import Reply, format_excerpt

SILENCE_S_MAX = 30.0
RECEIVE_BYTES = 16 * 1024


class Connection:
    """A socket with at most one request under way."""

    __slots__ = ("_selector", "_socket", "_unsent", "reply", "since")

    def __init__(self, port: int, reply: Reply, selector: selectors.BaseSelector) -> None:
        self._socket = connect(port)
        self._socket.setblocking(False)
        self._selector = selector
        self._unsent = memoryview(b"")
        self.reply = reply
        self.since = 0.0
        selector.register(self._socket, selectors.EVENT_READ, self)

    def send(self, request: bytes, since: float) -> None:
        """Start a request whose latency counts from `since`."""
        self.since = since
        self.reply.clear()
        sent = self._socket.send(request)
        if sent < len(request):
            self._unsent = memoryview(request)[sent:]
            self._watch(selectors.EVENT_READ | selectors.EVENT_WRITE)

    def advance(self, events: int) -> bool:
        """Move what the socket allows; true once the reply is whole."""
        if events & selectors.EVENT_WRITE:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
            if not self._unsent:
                self._watch(selectors.EVENT_READ)
        if not events & selectors.EVENT_READ:
            return False
        chunk = self._socket.recv(RECEIVE_BYTES)
        if not chunk:
            raise BenchError(f"the server closed a connection; {format_excerpt(self.reply)}")
        return self.reply.feed(chunk)

    def close(self) -> None:
        self._socket.close()

    def _watch(self, events: int) -> None:
        self._selector.modify(self._socket, events, self)


def connect(port: int) -> socket.socket:
    link = socket.create_connection(("127.0.0.1", port), timeout=SILENCE_S_MAX)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


def answers(port: int) -> bool:
    """Whether somebody listens there."""
    try:
        connect(port).close()
    except OSError:
        return False
    return True


def wait_replies(selector: selectors.BaseSelector, timeout_s: float) -> Iterator[Connection]:
    """The connections whose replies became whole; silence for too long is a failure."""
    ready = selector.select(max(timeout_s, 0))
    if not ready and timeout_s >= SILENCE_S_MAX:
        raise BenchError(f"no reply for {SILENCE_S_MAX:.0f} s")
    for key, events in ready:
        if key.data.advance(events):
            yield key.data
