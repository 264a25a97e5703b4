"""The bytes of requests, for Headrace (HTTP/1.1) and for Redis (RESP)."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

STREAM_FIELD = b"data"


def make_payloads(count: int, size_bytes: int, *, seed: int) -> list[str]:
    """Texts that compress about as badly as real ids and hashes, the same in every run."""
    source = random.Random(seed)
    return [source.randbytes(size_bytes // 2 + 1).hex()[:size_bytes] for _ in range(count)]


def format_post(path: str, body: bytes) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


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
