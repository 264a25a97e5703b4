"""One HTTP exchange, sent as told: no default headers, no redirects, no hidden decompression."""

from __future__ import annotations

import gzip
import http.client
import json
import time
from collections.abc import Iterator
from typing import Any

import msgspec

TIMEOUT_S = 90.0
CHUNK_BYTES = 16 * 1024


class NotJson(Exception):
    """A body that should be JSON is not."""


class NoAnswer(Exception):
    """The server closed the connection, refused it, or took too long."""


class Request(msgspec.Struct, frozen=True):
    """What goes over the wire; `declared_bytes` announces a body whose rest is never sent."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes | None = None
    chunked: bool = False
    declared_bytes: int | None = None


class Answer(msgspec.Struct, frozen=True):
    """What came back; header names are in lower case, `raw` is after any gzip was undone."""

    target: str
    method: str
    status: int
    headers: dict[str, str]
    raw: bytes
    took_ms: float

    @property
    def is_json(self) -> bool:
        media = self.headers.get("content-type", "").partition(";")[0]
        return media == "application/json" or media.endswith("+json")

    def parse_json(self) -> Any:
        """The body as JSON. Raises NotJson where it is not, or holds NaN or an infinity."""
        try:
            return json.loads(self.raw.decode("utf-8"), parse_constant=_refuse_constant)
        except ValueError as error:
            raise NotJson(f"expected JSON: {error}") from error


def exchange(port: int, request: Request) -> Answer:
    """Send on a connection of its own and read the whole answer; raises NoAnswer without one."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    started = time.perf_counter()
    try:
        response = send(connection, request)
        raw = response.read()
        return answer_of(request, response, raw, (time.perf_counter() - started) * 1000)
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswer(f"{type(error).__name__}: {error}") from error
    finally:
        connection.close()


def send(connection: http.client.HTTPConnection, request: Request) -> http.client.HTTPResponse:
    """Send a request and wait for the head of its answer."""
    connection.putrequest(
        request.method, request.target, skip_host="Host" in request.headers,
        skip_accept_encoding=True,
    )  # fmt: skip
    for name, value in request.headers.items():
        connection.putheader(name, value)
    try:
        _send_body(connection, request)
    except (BrokenPipeError, ConnectionResetError):
        pass  # a server may answer an oversized body before it has read all of it
    return connection.getresponse()


def answer_of(
    request: Request, response: http.client.HTTPResponse, raw: bytes, took_ms: float = 0.0
) -> Answer:
    """Put an answer together from what was read."""
    headers: dict[str, str] = {}
    for name, value in response.getheaders():
        before = headers.get(name.lower())
        headers[name.lower()] = value if before is None else f"{before}, {value}"
    if headers.get("content-encoding") == "gzip":
        raw = gzip.decompress(raw)
    return Answer(request.target, request.method, response.status, headers, raw, took_ms)


def _send_body(connection: http.client.HTTPConnection, request: Request) -> None:
    if request.chunked:
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders(_pieces(request.body or b""), encode_chunked=True)
    else:
        if request.body is not None:
            length = request.declared_bytes or len(request.body)
            connection.putheader("Content-Length", str(length))
        connection.endheaders(request.body)


def _pieces(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), CHUNK_BYTES):
        yield body[start : start + CHUNK_BYTES]


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
