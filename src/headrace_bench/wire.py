"""The bytes of requests, over HTTP/1.1, WebSocket and RESP (Redis)."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

STREAM_FIELD = b"data"
STREAM_START = "-1"
# A stamp is the mark and then a time in nanoseconds. Nothing else that a server sends to a watcher
# contains the mark, so that counting marks counts records, whatever they are wrapped in.
STAMP_MARK = b"^"
STAMP_DIGITS = 19
STAMP_BYTES = len(STAMP_MARK) + STAMP_DIGITS


def make_payloads(count: int, size_bytes: int, *, seed: int) -> list[str]:
    """Texts that compress about as badly as real ids and hashes, the same in every run."""
    source = random.Random(seed)
    return [source.randbytes(size_bytes // 2 + 1).hex()[:size_bytes] for _ in range(count)]


def format_post(path: str, body: bytes, content_type: str = "application/json") -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def format_put(path: str, content_type: str) -> bytes:
    """One PUT without a body: it creates a stream."""
    return (
        f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\n\r\n".encode()
    )


def format_append(topic: str, payloads: Sequence[str]) -> bytes:
    """One POST that appends one record for each payload."""
    return format_post(f"/v0/topics/{topic}", format_records(payloads))


def format_records(payloads: Sequence[str]) -> bytes:
    body = {"records": [{"data": payload} for payload in payloads]}
    return json.dumps(body, separators=(",", ":")).encode()


def format_diff(topic: str, after: str, limit: int) -> bytes:
    body = f'{{"from_seq":{after or "0"},"limit":{limit}}}'.encode()
    return format_post(f"/v0/topics/{topic}/diff", body)


def format_command(*words: bytes) -> bytes:
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


def format_xadd(stream: str, payloads: Sequence[str]) -> bytes:
    """A pipeline of one XADD for each payload."""
    key = stream.encode()
    return b"".join(
        format_command(b"XADD", key, b"*", STREAM_FIELD, payload.encode()) for payload in payloads
    )


def format_xrange(stream: str, after: str, limit: int) -> bytes:
    """A page, then a PING: its PONG marks the end of the page without parsing the page."""
    first = f"({after}" if after else "-"
    words = (b"XRANGE", stream.encode(), first.encode(), b"+", b"COUNT", str(limit).encode())
    return format_command(*words) + format_command(b"PING")


def format_get(path: str, accept: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n".encode()


def format_from_offset(path: str, after: str) -> bytes:
    """A read of a stream behind an offset, or from its start; the path ends with `offset=`."""
    return format_get(path + (after or STREAM_START), "*/*")


def format_upgrade(path: str) -> bytes:
    """The request that turns a connection into a WebSocket."""
    return (
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: aGVhZHJhY2UtYmVuY2gtMQ==\r\n\r\n"
    ).encode()


def format_text_frame(text: bytes) -> bytes:
    """A WebSocket message of a client; a mask of zeros leaves the text as it is."""
    size = len(text)
    assert size < 1 << 16
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return b"\x81" + length + b"\0\0\0\0" + text


def make_stamped_payload(size_bytes: int) -> str:
    """A payload that starts with a stamp, to be filled in when it is sent."""
    (filler,) = make_payloads(1, size_bytes - STAMP_BYTES, seed=1)
    return STAMP_MARK.decode() + "0" * STAMP_DIGITS + filler


def split_at_stamp(request: bytes) -> tuple[bytes, bytes]:
    """What goes before and after the digits of the one stamp in a request."""
    assert request.count(STAMP_MARK) == 1, "one stamp for each request"
    start = request.index(STAMP_MARK) + 1
    return request[:start], request[start + STAMP_DIGITS :]


def format_xreadgroup(stream: str, group: str, consumer: str, count: int) -> bytes:
    words = (group, consumer, "COUNT", str(count), "STREAMS", stream, ">")
    return format_command(b"XREADGROUP", b"GROUP", *(word.encode() for word in words))


def format_xack(stream: str, group: str, ids: Sequence[bytes]) -> bytes:
    """Acknowledge and delete, in one pipeline: an acknowledged entry stays in its stream."""
    key = stream.encode()
    return format_command(b"XACK", key, group.encode(), *ids) + format_command(b"XDEL", key, *ids)
