"""Opening a stream of events: a GET whose connection is then pushed to.

How a surface offers one:

    class Jobs(EventStream):              # delivery/sse.py; delivery/sink.py tells of the hooks
        def on_open(self): ...            # start to feed it with self.send(sse.event(...))
        def on_writable(self): ...        # it was blocked and has drained
        def on_end(self): ...             # release what it held

    async def work(call: Call) -> Handover:
        check_accepts(call)
        call.principal.require(Scope.READ | Scope.WRITE, topic)
        ...                               # refuse with Refused; change nothing yet
        return open_events(call, Jobs(call.hub, heartbeat_s=15.0))

The connection counts against the caps of streams, `gate.streams`, until it ends. Heartbeats, the
opening lines, slow consumers and the closing frame at a shutdown are taken care of.
"""

from __future__ import annotations

from typing import Literal

from headrace.core.errors import Code, Refused
from headrace.core.limits import ACCEPT_LENGTH_MAX
from headrace.delivery.sse import EventStream
from headrace.web.accept import prefers
from headrace.web.answers import Handover, Headers
from headrace.web.calls import Call

EVENT_STREAM = "text/event-stream"

_HEADERS: Headers = [
    ("content-type", f"{EVENT_STREAM}; charset=utf-8"),
    ("cache-control", "no-store"),
]


def check_accepts(call: Call, *, leases: bool = False) -> None:
    """Refuse who does not take events; `leases` where to open a stream changes something.

    Without keys, an image of another page must not take jobs: it accepts anything.
    """
    _ = call.engine  # refuses before and after the engine's time
    accept = call.req.accept
    if prefers(accept, EVENT_STREAM) is None:
        shown = accept[:ACCEPT_LENGTH_MAX]
        raise Refused(Code.NOT_ACCEPTABLE, f"a stream is {EVENT_STREAM}", accept=shown)
    if leases and call.gate.origin_check is not None:
        call.gate.check_page(call.req)
        if EVENT_STREAM not in accept.lower():
            message = f"without keys, say Accept: {EVENT_STREAM}"
            raise Refused(Code.NOT_ACCEPTABLE, message, accept=accept)


def open_events(
    call: Call,
    stream: EventStream,
    headers: Headers = _HEADERS,
    *,
    connection: Literal["close", "keep-alive"] = "keep-alive",
) -> Handover:
    """Hand the connection of a request over to a stream, under these headers.

    It ends with the stream. Where streams end in the normal course of things, say `close`: else
    clients send their next request on it, and lose that.
    """
    stream.chunked = not call.req.is_http10
    framing = [("connection", "close")]
    if stream.chunked:
        framing = [("connection", connection), ("transfer-encoding", "chunked")]
    return Handover(stream, [("x-accel-buffering", "no"), *headers, *framing], stream.preamble())
