"""A server in memory and in virtual time that says what a test tells it to say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from support.flag_history import format_event
from support.virtual import VirtualLoop


class Wire:
    """The server's end of one connection."""

    def __init__(self, server: MemoryServer) -> None:
        self.reader = asyncio.StreamReader()
        self.is_gone = False
        """Whether the client has hung up."""
        self._server = server
        self._received = b""
        self.request = Heard("", {})

    def send(self, data: bytes) -> None:
        if not self.is_gone and not self.reader.at_eof():
            self.reader.feed_data(data)

    def close(self) -> None:
        """No more follows."""
        if not self.is_gone:
            self.reader.feed_eof()

    def reset(self) -> None:
        """The connection breaks."""
        if not self.is_gone:
            self.reader.set_exception(ConnectionResetError("the connection was reset"))

    def reply(
        self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        """A whole answer."""
        self.send(format_head(status, {"content-length": str(len(body)), **(headers or {})}) + body)
        self.close()

    def begin_stream(self) -> None:
        self.send(format_head(200, {"content-type": "text/event-stream", "connection": "close"}))

    def event(self, name: str, data: Mapping[str, Any]) -> None:
        self.send(format_event(name, data))

    # --- the client's end ------------------------------------------------------------------------

    @property
    def transport(self) -> Wire:
        return self

    def write(self, data: bytes) -> None:
        self._received += data
        if self._received.endswith(b"\r\n\r\n"):
            self.request = parse_request(self._received)
            self._server.take(self)

    def abort(self) -> None:
        self.is_gone = True


@dataclass(frozen=True)
class Heard:
    """A request."""

    target: str
    headers: Mapping[str, str]

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.target).query, keep_blank_values=True)


Answer = Callable[[Wire], None]


@dataclass
class MemoryServer:
    """Streams wait for what a test says on them; closures are answered by a function."""

    answer_closure: Answer
    streams: list[Wire] = field(default_factory=list)
    fetches: list[Wire] = field(default_factory=list)
    answer_stream: Answer = Wire.begin_stream
    refuses_connections: bool = False

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.refuses_connections:
            raise ConnectionRefusedError("nobody listens")
        wire = Wire(self)
        return wire.reader, cast(asyncio.StreamWriter, wire)

    def take(self, wire: Wire) -> None:
        if wire.request.path.endswith("/api/v1/events"):
            self.streams.append(wire)
            self.answer_stream(wire)
        else:
            self.fetches.append(wire)
            self.answer_closure(wire)

    @property
    def stream(self) -> Wire:
        """The newest one."""
        return self.streams[-1]


def format_head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def parse_request(raw: bytes) -> Heard:
    first, *lines = raw.decode().removesuffix("\r\n\r\n").split("\r\n")
    method, target, protocol = first.split(" ")
    assert (method, protocol) == ("GET", "HTTP/1.1")
    headers = dict(line.split(": ", 1) for line in lines)
    assert len(headers) == len(lines)
    return Heard(target, headers)


async def settle() -> None:
    """Until nothing more happens by itself, without any time passing."""
    loop = asyncio.get_running_loop()
    quiet = 0
    while quiet < 3:
        await asyncio.sleep(0)
        quiet = 0 if loop._ready else quiet + 1  # type: ignore[attr-defined]


async def pass_time(seconds: float) -> None:
    await asyncio.sleep(seconds)
    await settle()


def run(story: Coroutine[Any, Any, None] | Awaitable[None]) -> None:
    """Tell a story in virtual time."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    try:
        loop.run(cast(Coroutine[Any, Any, None], story))
        assert not loop.complaints, loop.complaints
    finally:
        asyncio.set_event_loop(None)
        loop.close()
