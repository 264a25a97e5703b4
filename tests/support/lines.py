"""One HTTP connection in memory: what the peer sends, what it gets, and how often others wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from headrace.core.errors import Refused
from headrace.web.answers import Answer, Handover
from headrace.web.connection import Connection, Connections, Respond, Send
from headrace.web.request import Request
from headrace.web.request_task import RequestTask
from headrace.web.responder import Responder
from support.plumbing import Pipe
from support.virtual import VirtualLoop

READ_BYTES = 256 << 10
"""What a loop reads at a time."""
KEEP_ALIVE_S = 75

Application = Callable[[Request], Coroutine[Any, Any, Answer | Handover]] | Responder


class Line(Pipe):
    """The server's end of a connection."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = 0

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def close(self) -> None:
        if not self.closing:
            super().close()
            self._lose()

    def abort(self) -> None:
        super().abort()
        self._lose()

    def _lose(self) -> None:
        protocol, self.protocol = self.protocol, None
        if protocol is not None:
            asyncio.get_running_loop().call_soon(protocol.connection_lost, None)

    async def send(self, raw: bytes) -> None:
        """The peer sends this, as much of it as is read; counts the turns that takes."""
        for at in range(0, len(raw), READ_BYTES):
            await self.settle()
            if self.closing:
                return
            self.receive(raw[at : at + READ_BYTES])
            await self.settle()

    def receive(self, data: bytes) -> None:
        """Bytes came: a loop says so outside of all tasks."""
        asyncio.get_running_loop().call_soon(self.protocol.data_received, data)

    async def say_no_more(self) -> None:
        """The peer ends its side; a loop closes the other, unless somebody still wants to write."""
        asyncio.get_running_loop().call_soon(self._end_of_input)
        await self.settle()

    def _end_of_input(self) -> None:
        if self.protocol is not None and not self.protocol.eof_received():
            self.close()

    async def settle(self) -> None:
        """Until nothing more happens by itself."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(0)
            if not loop._ready:  # type: ignore[attr-defined]
                return
            self.turns += 1

    @property
    def heard(self) -> bytes:
        return b"".join(self.sent)

    @property
    def statuses(self) -> list[int]:
        """Of all answers so far; the test's own application says little besides."""
        return [int(part[:3]) for part in self.heard.split(b"HTTP/1.1 ")[1:]]


class Applying(RequestTask):
    """Has a request answered by a coroutine."""

    def __init__(self, request: Request, send: Send) -> None:
        self._loop = asyncio.get_running_loop()
        self._request = request
        self._send = send

    def ended(self, result: Answer | Handover | None, error: BaseException | None) -> None:
        self._send(self._request, result)


def applied(app: Callable[[Request], Coroutine[Any, Any, Answer | Handover]]) -> Respond:
    """A coroutine function as what connections ask for answers."""

    def respond(request: Request, send: Send) -> RequestTask | None:
        task = Applying(request, send)
        task.run(app(request))
        return None if task.done() else task

    return respond


class Site:
    """A server without sockets."""

    def __init__(self, app: Application, shared: Connections) -> None:
        self.app: Respond = app if isinstance(app, Responder) else applied(app)
        self.shared = shared

    def connect(self) -> Line:
        line = Line()
        line.protocol = Connection(self.app, self.shared)
        line.protocol.connection_made(line)
        return line


class Echo:
    """Answers 200 with what it knows of a request."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[dict[bytes, bytes]] = []
        self.waiting: asyncio.Event | None = None
        """Set, it holds answers back."""

    async def __call__(self, request: Request) -> Answer | Handover:
        try:
            body = await request.read(1 << 30)
        except Refused:
            return Answer(400, [])
        if self.waiting is not None:
            await self.waiting.wait()
        self.bodies.append(body)
        self.headers.append(request.headers)
        return Answer(200, [], b"ok")


def run(
    story: Callable[[Site], Coroutine[Any, Any, None]],
    app: Application | None = None,
    shared: Connections | None = None,
) -> None:
    loop = VirtualLoop()

    async def tell() -> None:
        await story(Site(app or Echo(), shared or Connections()))

    asyncio.set_event_loop(loop)
    try:
        loop.run(tell())
        assert not loop.complaints
    finally:
        asyncio.set_event_loop(None)
        loop.close()
