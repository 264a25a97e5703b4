"""How connections end that did not become requests: with a word that the peer can read.

A connection that is closed while bytes of the peer are unread takes its last words back. So our
side ends first, and what still comes is dropped, for a bounded time and a bounded number of bytes.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

from headrace.core.limits import CLOSE_S, LINGER_BYTES_MAX

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client sends first that speaks HTTP/2 without having asked."""

_DATA, _HEADERS, _SETTINGS, _GOAWAY = 0, 1, 4, 7
_END_STREAM, _END_HEADERS = 1, 4
_HEAD_BYTES = 9
_STREAM_ID = 0x7FFFFFFF
_HTTP_1_1_REQUIRED = 13
# Two literal fields of HPACK without indexing: `:status` (8) and `content-type` (31).
_FIELDS = b"\x08\x03505\x0f\x10\x10application/json"


class Farewell(asyncio.Protocol):
    """Says the last words, and waits for the peer to go."""

    transport: asyncio.Transport
    _on_close: Callable[[], None]
    _timer: asyncio.TimerHandle

    def __init__(self, words: bytes) -> None:
        self._words = words
        self._dropped = 0

    def attach(self, transport: asyncio.Transport, on_close: Callable[[], None]) -> None:
        """Take the connection; `on_close` when it is gone."""
        self.transport = transport
        self._on_close = on_close
        self._timer = asyncio.get_running_loop().call_later(CLOSE_S, transport.abort)
        self.opened()

    def opened(self) -> None:
        if self._words:
            self.say(self._words)
        else:
            self.transport.close()

    def say(self, words: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(words)
            self.transport.write_eof()

    def data_received(self, data: bytes) -> None:
        self._dropped += len(data)
        if self._dropped > LINGER_BYTES_MAX:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._on_close()

    def shutdown(self) -> None:
        """The server is about to stop (called by uvicorn)."""
        self.transport.close()


class Http2Refusal(Farewell):
    """Answers the first request of a client that speaks HTTP/2: 505, and that HTTP/1.1 it is.

    An answer in HTTP/1.1 would be no answer to such a client; it would tell its user of a
    connection that broke.
    """

    def __init__(self, body: bytes) -> None:
        super().__init__(b"")
        self._body = body
        self._head = bytearray()
        self._skip = 0
        self._answered = False

    def opened(self) -> None:
        """Nothing to say before there is a request."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        at = 0
        while not self._answered and at < len(data):
            if self._skip:
                passed = min(self._skip, len(data) - at)
                self._skip -= passed
                at += passed
                continue
            missing = _HEAD_BYTES - len(self._head)
            self._head += data[at : at + missing]
            at += missing
            if len(self._head) == _HEAD_BYTES:
                self._take_head()

    def _take_head(self) -> None:
        head, self._head = bytes(self._head), bytearray()
        self._skip = int.from_bytes(head[:3], "big")
        if head[3] == _HEADERS:
            self._answered = True
            stream = int.from_bytes(head[5:], "big") & _STREAM_ID
            self.say(_answer(stream, self._body))


def _answer(stream: int, body: bytes) -> bytes:
    last = struct.pack("!II", stream, _HTTP_1_1_REQUIRED)
    return b"".join(
        (
            _frame(_SETTINGS, 0, 0, b""),
            _frame(_HEADERS, _END_HEADERS, stream, _FIELDS),
            _frame(_DATA, _END_STREAM, stream, body),
            _frame(_GOAWAY, 0, 0, last),
        )
    )


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload


def behind_preface(data: bytes) -> bytes:
    """What follows the preface in data that it ends in."""
    at = data.find(PREFACE)
    if at >= 0:
        return data[at + len(PREFACE) :]
    size = next((n for n in range(len(PREFACE), 0, -1) if data.startswith(PREFACE[-n:])), 0)
    return data[size:]
