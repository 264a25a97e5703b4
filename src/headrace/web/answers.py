"""Answers: bytes under any headers, an open JSON object, or a connection for a sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from headrace.delivery.sink import Sink

Headers = list[tuple[str, str]]
NO_BODY = frozenset((204, 304))
JSON = "application/json"

JSON_LINE = f"content-type: {JSON}\r\n"
_FRESH_JSON_LINES = f"{JSON_LINE}cache-control: no-store\r\n"
_RETRY_AFTER_S = {429: 1, 503: 5}
_STATUS_LINES = {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n" for each in HTTPStatus}


class Answer(msgspec.Struct, gc=False):
    """One answer. Names of headers are in lower case."""

    status: int
    headers: Headers
    body: bytes | list[bytes] = b""
    """As a whole, or in pieces that nobody needs to join."""
    lines: str = ""
    """Headers that are the same in many answers, as they go over the wire."""


class Reply(msgspec.Struct):
    """A JSON object without its closing brace: its surface adds what every reply says."""

    parts: list[bytes]
    status: int = 200
    scanned: int | None = None


class Handover(msgspec.Struct):
    """An answer that never ends by itself: the connection is a sink's from here on."""

    sink: Sink
    headers: Headers
    preamble: bytes = b""
    """What is sent right behind the head."""
    status: int = 200
    on_end: Callable[[], None] = lambda: None
    """Gives back what the connection holds."""


def json_answer(body: bytes, status: int = 200) -> Answer:
    """JSON that no cache keeps."""
    return Answer(status, [], body, _FRESH_JSON_LINES)


def retry_after(status: int, detail: Mapping[str, Any]) -> Headers:
    """When to try again what is refused with this status; nothing where that makes no sense."""
    if status not in _RETRY_AFTER_S:
        return []
    after_s = -(-detail.get("retry_after_ms", 0) // 1000) or _RETRY_AFTER_S[status]
    return [("retry-after", str(after_s))]


def format_lines(headers: Headers) -> str:
    """Headers as they go over the wire."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    # A line break in a value would begin a header, or an answer, that nobody wrote.
    if lines.count("\n") != len(headers):
        raise ValueError(f"a header with a line break: {headers}")
    return lines


def format_head(status: int, date: str, lines: str) -> bytes:
    """The head of an answer with these lines."""
    return f"{_STATUS_LINES[status]}{date}{lines}\r\n".encode("latin-1")
