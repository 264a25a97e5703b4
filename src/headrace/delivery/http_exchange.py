"""One request to another server and its reply, on a connection that ends with it, or is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import SplitResult

import msgspec

from headrace.http_response import ResponseParser

_READ_BYTES = 16 << 10


class HttpReply(msgspec.Struct):
    """What was answered, as far as it was read."""

    status: int
    """0: nothing was."""
    headers: dict[str, str]
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
    to be kept and can be. MalformedResponse for a reply that is not HTTP.
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
    head, body = ResponseParser(head_bytes_max=left + 1), bytearray()
    try:
        while left and not head.is_complete:
            data = await reader.read(min(left, _READ_BYTES))
            if not data:
                break
            left -= len(data)
            body += head.feed(data)
    finally:
        head.close()
    return HttpReply(head.status, head.headers, bytes(body), head.is_reusable)
