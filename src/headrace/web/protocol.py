"""uvicorn's HTTP protocol, with what every request pays for done once or not at all.

- What one step of the loop writes leaves in one system call: uvicorn hands head and body of a reply
  to the transport one after the other, and uvloop would send each at once.
- One timer a connection watches for silence, instead of a new one after every reply.
- A body that comes in one piece is not copied.
- A connection can be handed over to a sink, which then writes to the transport itself. A request
  for a WebSocket is a request like any other until then.
- An offer of another protocol that we do not speak, as Java clients make one with their first
  request, does not cost the request its body.
- The head of a request has a limit, and what is refused here is refused as everywhere else.

The first three are a fifth of the cost of a small request (docs/PERFORMANCE.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import httptools
import msgspec
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headrace.core.limits import HEAD_BYTES_MAX
from headrace.delivery.sink import Sink

CONNECTION = "headrace.connection"
"""Where a request's scope names the connection it came on."""
_OFFER = (b"upgrade", b"http2-settings", b"connection")


class OneWrite:
    """A transport that gathers writes until the current step ends."""

    __slots__ = ("_chunks", "_loop", "_transport", "is_closing")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._chunks: list[bytes] = []
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if not self._chunks:
            self._loop.call_soon(self._flush)
        self._chunks.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._chunks:
            chunks, self._chunks = self._chunks, []
            self._transport.writelines(chunks)

    def release(self) -> asyncio.Transport:
        """The transport itself, with all that was gathered on its way."""
        self._flush()
        return self._transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Protocol(HttpToolsProtocol):
    """One connection."""

    _silent_since: float | None = None
    """When the last reply was sent; nothing while a request is under way."""
    _head_bytes: int | None = None
    """What came of a head so far; nothing while none is under way."""
    gone = False
    """Whether the peer has hung up, or we have."""
    on_gone: Callable[[], None] | None = None
    """Called when that happens; set while somebody waits for something to tell the peer."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(OneWrite(transport, self.loop))  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        super()._unset_keepalive_if_required()
        super().connection_lost(exc)
        self.scope = None  # type: ignore[assignment]  # it names us: a ring
        self.gone = True
        if self.on_gone is not None:
            self.on_gone()

    def on_message_begin(self) -> None:
        self._head_bytes = 0
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[literal-required]

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self.parser.get_method() == b"CONNECT":
                self.send_400_response("This is not a proxy.")
            elif not self._is_for_us:
                self._decline(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                text = f"the head of a request has at most {HEAD_BYTES_MAX} bytes"
                self._turn_away(b"431 Request Header Fields Too Large", "head_too_large", text)

    def send_400_response(self, msg: str) -> None:
        self._turn_away(b"400 Bad Request", "bad_request", msg)

    def _turn_away(self, status: bytes, code: str, message: str) -> None:
        """Refuse what never became a request, and close the connection."""
        self._head_bytes = None
        body = msgspec.json.encode({"error": {"code": code, "message": message}})
        lines = [b"HTTP/1.1 " + status]
        lines += [b"%b: %b" % header for header in self.server_state.default_headers]
        lines += [b"content-type: application/json", b"content-length: %d" % len(body)]
        lines += [b"connection: close", b"", body]
        self.transport.write(b"\r\n".join(lines))
        self.transport.close()

    @property
    def _is_for_us(self) -> bool:
        """Whether an upgrade that is offered is to a WebSocket."""
        return self._get_upgrade() == b"websocket"

    def _should_upgrade(self) -> bool:
        return False  # the application answers; see web/sockets.py

    def on_headers_complete(self) -> None:
        self._head_bytes = None
        if not self.parser.should_upgrade() or self._is_for_us:
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade() or self._is_for_us:
            super().on_message_complete()

    def _decline(self, rest: bytes) -> None:
        """The parser ends with an offer to upgrade: have it read the request without the offer."""
        lines = [b"%b %b HTTP/1.1" % (self.parser.get_method(), self.url)]
        lines += [b"%b: %b" % pair for pair in self.headers if pair[0] not in _OFFER]
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    def hand_over(self, sink: Sink, head: bytes, on_end: Callable[[], None]) -> None:
        """Give the connection of the request under way to a sink; HTTP is over on it.

        Whatever the application still sends for this request is dropped.
        """
        self.cycle.disconnected = True
        super()._unset_keepalive_if_required()
        self.flow.resume_reading()
        wrapped: OneWrite = self.transport  # type: ignore[assignment]
        transport = wrapped.release()
        self.connections.discard(self)
        self.connections.add(sink)  # type: ignore[arg-type]
        transport.set_protocol(sink)
        sink.attach(transport, head, on_end, partial(self.connections.discard, sink))
        # The parser and the scope name us: without these rings we are gone with this request.
        self.parser = self.scope = self.cycle = None  # type: ignore[assignment]

    def _unset_keepalive_if_required(self) -> None:
        self._silent_since = None

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
            return
        self._silent_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._watch(self.timeout_keep_alive)

    def _watch(self, wait_s: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(wait_s, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that was silent for too long; else look again when it could be."""
        since = self.loop.time() if self._silent_since is None else self._silent_since
        left_s = since + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._watch(left_s)
        else:
            super().timeout_keep_alive_handler()

    def on_body(self, body: bytes) -> None:
        cycle = self.cycle
        if cycle.body or cycle.response_complete or self.parser.should_upgrade():
            super().on_body(body)
            return
        cycle.body = body  # type: ignore[assignment]  # bytes of bytes are the same object
        if len(body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()
