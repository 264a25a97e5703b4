"""One request to another server and its reply, on a connection that is closed behind it."""

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


async def exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    method: str,
    parts: SplitResult,
    headers: Mapping[str, str],
    *,
    body: bytes = b"",
    reply_bytes_max: int,
) -> HttpReply:
    """Send a request and read the reply; the connection is gone then, however it ends."""
    try:
        writer.write(_format_head(method, parts, len(body), headers) + body)
        await writer.drain()
        return await _read_reply(reader, reply_bytes_max)
    finally:
        writer.transport.abort()


def _format_head(method: str, parts: SplitResult, length: int, headers: Mapping[str, str]) -> bytes:
    target = parts.path or "/"
    if parts.query:
        target += f"?{parts.query}"
    lines = [
        f"{method} {target} HTTP/1.1",
        f"host: {parts.netloc}",
        f"content-length: {length}",
        "connection: close",
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
    return HttpReply(reply.status, reply.headers, bytes(reply.body))


class _Reply:
    """A reply as it comes in."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = bytearray()
        self.ended = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self.status = self.parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.ended = self.status >= 200  # else there is more to come
