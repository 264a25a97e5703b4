"""One request to another server and its reply, on a connection that ends with it, or is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import SplitResult

import httptools
import msgspec

_READ_BYTES = 16 << 10
MALFORMED = (httptools.HttpParserError, httptools.HttpParserUpgrade)
"""What is raised for a reply that is not HTTP."""


class HttpReply(msgspec.Struct):
    """What was answered, as far as it was read."""

    status: int
    """0: nothing was."""
    headers: dict[bytes, bytes]
    """By name in lower case; of several of a name, the last."""
    body: bytes
    reusable: bool = False
    """Whether the connection can take the next request."""


async def exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    method: str,
    parts: SplitResult,
    headers: Mapping[str, str],
    *,
    body: bytes = b"",
    reply_bytes_max: int,
    keep: bool = False,
) -> HttpReply:
    """Send a request and read the reply; the connection is gone then, however it ends, unless it is
    to be kept and can be.
    """
    kept = False
    try:
        writer.write(_format_head(method, parts, len(body), headers, keep=keep) + body)
        await writer.drain()
        reply = await _read_reply(reader, reply_bytes_max)
        kept = keep and reply.reusable
        return reply
    finally:
        if not kept:
            writer.transport.abort()


def _format_head(
    method: str, parts: SplitResult, length: int, headers: Mapping[str, str], *, keep: bool
) -> bytes:
    target = parts.path or "/"
    if parts.query:
        target += f"?{parts.query}"
    lines = [
        f"{method} {target} HTTP/1.1",
        f"host: {parts.netloc}",
        f"content-length: {length}",
        "connection: keep-alive" if keep else "connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


async def _read_reply(reader: asyncio.StreamReader, left: int) -> HttpReply:
    """What was answered, as far as it fits; head, framing and trailers count, too."""
    reply = _Reply()
    try:
        while left and not reply.ended:
            data = await reader.read(min(left, _READ_BYTES))
            if not data:
                break
            left -= len(data)
            reply.parser.feed_data(data)
    finally:
        del reply.parser  # which knows the reply
    return HttpReply(reply.status, reply.headers, bytes(reply.body), reply.keeps and not reply.more)


class _Reply:
    """A reply as it comes in."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = bytearray()
        self.ended = False
        self.keeps = False
        """Whether the other side keeps the connection."""
        self.more = False
        """Something came behind the reply, which nobody asked for."""

    def on_message_begin(self) -> None:
        self.more = self.ended

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.more:
            self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if not self.more:
            self.status = self.parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        if not self.more:
            self.body += data

    def on_message_complete(self) -> None:
        if not self.more:
            self.ended = self.status >= 200  # else there is more to come
            self.keeps = self.ended and self.parser.should_keep_alive()
