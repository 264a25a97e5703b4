"""A client of watch streams over a plain socket, as little as it takes."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any, Self

from support.eventtext import Event, split_events, unchunk

TIMEOUT_S = 120.0


def ask(port: int, method: str, path: str, body: object = None, **headers: str) -> Any:
    """Send one request and take the JSON of its answer; a refusal is an error."""
    status, answer = call(port, method, path, body, **headers)
    assert status in (200, 201), (status, answer)
    return answer


def call(port: int, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        raw = None if body is None else json.dumps(body)
        if raw is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, path, raw, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"null")
    finally:
        connection.close()


def append(port: int, topic: str, *datas: object) -> Any:
    return ask(port, "POST", f"/v0/topics/{topic}", {"records": [{"data": d} for d in datas]})


def watch(port: int, topics: dict[str, Any], **options: Any) -> str:
    """Make a session; returns the path of its stream."""
    path: str = ask(port, "POST", "/v0/watch", {"topics": topics, **options})["stream_url"]
    return path


class Stream:
    """One open stream of events."""

    def __init__(self, port: int, path: str, *, version: str = "1.1", **headers: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        lines = [f"GET {path} HTTP/{version}", "Host: localhost", "Accept: text/event-stream"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode())
        self._raw = b""
        self._text = b""
        self._events: list[Event] = []
        self.last_id: str | None = None
        self.head = self._read_head()
        self._chunked = b"transfer-encoding: chunked" in self.head.lower()

    def _read_head(self) -> bytes:
        while b"\r\n\r\n" not in self._raw:
            self._more()
        head, _, self._raw = self._raw.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        return head

    def _more(self) -> None:
        data = self._socket.recv(1 << 16)
        if not data:
            raise EOFError
        self._raw += data

    def __iter__(self) -> Iterator[Event]:
        """Events, until the server ends the stream."""
        while True:
            while self._events:
                event = self._events.pop(0)
                self.last_id = event.id or self.last_id
                yield event
            body, self._raw = unchunk(self._raw) if self._chunked else (self._raw, b"")
            self._events, self._text = split_events(self._text + body)
            if not self._events:
                try:
                    self._more()
                except EOFError:
                    return

    def next(self, name: str) -> Event:
        """The next event, which must be of this kind."""
        event = next(iter(self), None)
        assert event is not None, f"the stream ended before a {name}"
        assert event.name == name, event
        return event

    def ends(self) -> bool:
        """Whether nothing more comes, ever."""
        return next(iter(self), None) is None

    def reset(self) -> None:
        """Hang up without a word."""
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._socket.close()

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
