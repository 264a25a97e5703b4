"""The refusal of HTTP/2 without TLS, in HTTP/2."""

from __future__ import annotations

import struct

from headrace.web.lingering_close import LingeringClose

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client sends first that speaks HTTP/2 without having asked."""

_DATA, _HEADERS, _SETTINGS, _GOAWAY = 0, 1, 4, 7
_END_STREAM, _END_HEADERS = 1, 4
_HEAD_BYTES = 9
_STREAM_ID = 0x7FFFFFFF
_HTTP_1_1_REQUIRED = 13
# Two literal fields of HPACK without indexing: `:status` (8) and `content-type` (31).
_FIELDS = b"\x08\x03505\x0f\x10\x10application/json"


class Http2Refusal(LingeringClose):
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
        """There is nothing to send before a request has come."""

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
            self.send(_answer(stream, self._body))


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
