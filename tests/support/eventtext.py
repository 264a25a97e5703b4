"""Server-sent events as text: what any client must do before it understands one."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import msgspec


class Event(NamedTuple):
    """One event as it came."""

    name: str
    id: str | None
    data: Any


def split_events(stream: bytes) -> tuple[list[Event], bytes]:
    """Whole events of a stream without chunks, and what is left over."""
    *blocks, rest = stream.split(b"\n\n")
    return [event for block in blocks if (event := parse_event(block)) is not None], rest


def parse_event(block: bytes) -> Event | None:
    """An event; None for a comment or anything else that is none."""
    fields: dict[str, str] = {}
    for line in block.decode().split("\n"):
        assert "\r" not in line
        if line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            assert name in ("id", "event", "data", "retry"), line
            assert name not in fields, f"two lines of {name}"
            fields[name] = value
    if "event" not in fields:
        return None
    return Event(fields["event"], fields.get("id"), msgspec.json.decode(fields["data"]))


def unchunk(raw: bytes) -> tuple[bytes, bytes]:
    """The body in whole chunks, and what is left over."""
    body, rest = b"", raw
    while b"\r\n" in rest:
        size, behind = rest.split(b"\r\n", 1)
        length = int(size, 16)
        if len(behind) < length + 2:
            break
        assert behind[length : length + 2] == b"\r\n"
        body, rest = body + behind[:length], behind[length + 2 :]
    return body, rest


def decode_id(id: str) -> dict[str, int]:
    raw = base64.urlsafe_b64decode(id + "=" * (-len(id) % 4))
    seqs: dict[str, int] = msgspec.json.decode(raw)
    return seqs
