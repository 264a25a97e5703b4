"""Answers: bytes under any headers, an open JSON object, or a connection for a sink."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

import msgspec

from headrace.delivery.sink import Sink

Headers = list[tuple[str, str]]
NO_BODY = frozenset((204, 304))
JSON = "application/json"

JSON_LINE = f"content-type: {JSON}\r\n"
_FRESH_JSON_LINES = f"{JSON_LINE}cache-control: no-store\r\n"
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
