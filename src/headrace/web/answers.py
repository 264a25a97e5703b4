"""Answers: bytes under any headers, an open JSON object, or a connection for a sink."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

import msgspec

from headrace.delivery.sink import Sink

Headers = list[tuple[str, str]]
NO_BODY = frozenset((204, 304))
JSON = "application/json"

_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}


class Answer(msgspec.Struct, gc=False):
    """One answer. Names of headers are in lower case."""

    status: int
    headers: Headers
    body: bytes | list[bytes] = b""
    """As a whole, or in pieces that nobody needs to join."""


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
    return Answer(status, [("content-type", JSON), ("cache-control", "no-store")], body)


def format_head(status: int, date: str, headers: Headers) -> bytes:
    """The head of an answer."""
    lines = [f"{name}: {value}\r\n" for name, value in headers]
    text = f"{_LINES[status]}{date}{''.join(lines)}\r\n"
    # A line break in a value would begin a header, or an answer, that nobody wrote.
    if text.count("\n") != len(lines) + 2 + bool(date):
        raise ValueError(f"a header with a line break: {headers}")
    return text.encode("latin-1")
