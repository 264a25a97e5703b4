"""One reply of a server, out of bytes however these are cut. Without I/O, bounded in memory."""

from __future__ import annotations

import httptools

from headrace.core.limits import RESPONSE_HEAD_BYTES_MAX


class MalformedResponse(Exception):
    """What came is no reply in HTTP/1.1, or one whose head is too large."""


class ResponseParser:
    """Takes the bytes of one connection; hands out what they bring of the body."""

    def __init__(self, head_bytes_max: int = RESPONSE_HEAD_BYTES_MAX) -> None:
        self.status = 0
        """0: the head is not there yet."""
        self.headers: dict[str, str] = {}
        """By name in lower case; of several of a name, the last."""
        self.is_complete = False
        """Whether the whole body is there, by what the head says of its length."""
        self.is_reusable = False
        """Whether the connection can take the next request: the server keeps it, and said nothing
        behind the reply.
        """
        self._parser = httptools.HttpResponseParser(self)
        self._head_bytes_left = head_bytes_max
        self._body = bytearray()

    def feed(self, data: bytes) -> bytes:
        """What these bytes bring of the body; empty as long as the head is not there."""
        if not self.status:
            self._head_bytes_left -= len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise MalformedResponse(f"the reply is not HTTP: {error}") from None
        if not self.status and self._head_bytes_left <= 0:
            raise MalformedResponse("the head of the reply is too large")
        body, self._body = bytes(self._body), bytearray()
        return body

    def close(self) -> None:
        """Nothing more comes. (The parser below knows us: without it, we go at once.)"""
        del self._parser

    # --- called by the parser ---------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self.is_reusable = False  # nobody asked for a second reply

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # trailers are not asked for
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self.is_complete:
            return
        status = self._parser.get_status_code()
        if status >= 200:
            self.status = status
        else:
            self.headers.clear()  # the real head follows

    def on_body(self, data: bytes) -> None:
        if not self.is_complete:
            self._body += data

    def on_message_complete(self) -> None:
        if not self.is_complete and self.status:
            self.is_complete = True
            self.is_reusable = self._parser.should_keep_alive()
