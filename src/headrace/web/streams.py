"""Opening a stream of events: a GET whose connection is then pushed to.

How a surface offers one:

    class Jobs(EventStream):              # delivery/sse.py; delivery/sink.py tells of the hooks
        def on_open(self): ...            # start to feed it with self.send(sse.event(...))
        def on_writable(self): ...        # it was blocked and has drained
        def on_end(self): ...             # release what it held

    async def work(call: StreamCall) -> Opening:
        principal = call.authenticate()   # the header, or ?token=
        principal.require(Scope.READ | Scope.WRITE, topic)
        ...                               # refuse with Refused; change nothing yet
        return Opening(principal, Jobs(call.hub, heartbeat_s=15.0))

    app.add_route("/v0/topics/{name}/work", StreamEndpoint(gate, refusals, work, leases=True))

The connection counts against the caps of streams, `gate.streams`, until it ends. Heartbeats, the
opening lines, slow consumers and the farewell at a shutdown are taken care of.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, NamedTuple

import falcon.asgi

from headrace.core.errors import Code, Refused
from headrace.core.limits import ACCEPT_LENGTH_MAX
from headrace.delivery.hub import Hub
from headrace.delivery.sse import EventStream
from headrace.delivery.timer_wheel import TimerWheel
from headrace.engine.engine import Engine
from headrace.web.calls import Gate, Refusals, prefers, refuse
from headrace.web.cors import shared_headers
from headrace.web.credentials import Principal
from headrace.web.protocol import CONNECTION, Protocol
from headrace.web.slots import Slot

EVENT_STREAM = "text/event-stream"


class Opening(NamedTuple):
    """A stream about to be opened, and whose it is."""

    principal: Principal
    stream: EventStream


class StreamCall:
    """A request for a stream."""

    __slots__ = ("_gate", "name", "req")

    def __init__(self, gate: Gate, req: falcon.asgi.Request, name: str) -> None:
        self._gate = gate
        self.req = req
        self.name = name

    @property
    def engine(self) -> Engine:
        return self._gate.engine

    @property
    def hub(self) -> Hub:
        return self._gate.hub

    @property
    def wheel(self) -> TimerWheel:
        return self._gate.wheel

    def authenticate(self) -> Principal:
        """Who asks: by header, or by `?token=` since a browser's EventSource sends no headers."""
        header = self.req.get_header("AUTHORIZATION")
        if header is None and (tokens := self.req.get_param_as_list("token")):
            return self._gate.keyring.identify(tokens[0])
        return self._gate.keyring.authenticate(header)


Opener = Callable[[StreamCall], Awaitable[Opening]]


class StreamEndpoint:
    """A Falcon resource: GET opens a stream, or is refused as any request is."""

    def __init__(
        self, gate: Gate, refusals: Refusals, opener: Opener, *, leases: bool = False
    ) -> None:
        self._gate = gate
        self._refusals = refusals
        self._opener = opener
        self._leases = leases
        """Whether to open a stream changes something, though it is a GET."""

    async def on_get(
        self, req: falcon.asgi.Request, resp: falcon.asgi.Response, name: str = ""
    ) -> None:
        started = perf_counter()
        try:
            call = StreamCall(self._gate, req, name)
            _ = call.engine  # refuses before and after the engine's time
            if prefers(req, EVENT_STREAM) is None:
                accept = req.accept[:ACCEPT_LENGTH_MAX]
                raise Refused(Code.NOT_ACCEPTABLE, f"a stream is {EVENT_STREAM}", accept=accept)
            if self._leases:
                self._check_page(req)
            principal, stream = await self._opener(call)
            slot = self._gate.streams.take(principal)
        except Refused as refused:
            refuse(self._refusals, await self._gate.settle_refusal(refused), resp, started)
            return
        hand_over(self._gate, req, stream, slot, _HEADERS)

    def _check_page(self, req: falcon.asgi.Request) -> None:
        """Without keys, an image of another page must not take jobs: it accepts anything."""
        self._gate.check_page(req)
        if self._gate.origin_check is not None and EVENT_STREAM not in req.accept.lower():
            message = f"without keys, say Accept: {EVENT_STREAM}"
            raise Refused(Code.NOT_ACCEPTABLE, message, accept=req.accept)


_HEADERS = [
    ("content-type", f"{EVENT_STREAM}; charset=utf-8"),
    ("cache-control", "no-store"),
]


def hand_over(
    gate: Gate, req: Any, stream: EventStream, slot: Slot, headers: list[tuple[str, str]]
) -> None:
    """Give the connection of a request to a stream, under these headers.

    From here on the server's own answer, empty as it is, goes nowhere.
    """
    connection: Protocol = req.scope[CONNECTION]
    stream.chunked = req.scope["http_version"] == "1.1"
    lines = [b"HTTP/1.1 200 OK", b"x-accel-buffering: no"]
    lines += [b"%b: %b" % header for header in connection.server_state.default_headers]
    lines += [f"{name}: {value}".encode("latin-1") for name, value in headers]
    if stream.chunked:
        lines += [b"connection: keep-alive", b"transfer-encoding: chunked"]
    else:
        lines += [b"connection: close"]
    shared = shared_headers(req.get_header("ORIGIN"), gate.origins) if gate.origins else []
    lines += [b"%b: %b" % header for header in shared]
    head = b"\r\n".join(lines) + b"\r\n\r\n" + stream.preamble()
    connection.hand_over(stream, head, slot.free)
