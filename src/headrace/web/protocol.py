"""uvicorn's HTTP protocol, with what every request pays for done once or not at all.

- What one step of the loop writes leaves in one system call: uvicorn hands head and body of a reply
  to the transport one after the other, and uvloop would send each at once.
- One timer a connection watches for silence, instead of a new one after every reply.
- A body that comes in one piece is not copied.

Together they are a fifth of the cost of a small request (docs/PERFORMANCE.md).
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Protocol(HttpToolsProtocol):
    """One connection."""

    _silent_since: float | None = None
    """When the last reply was sent; nothing while a request is under way."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(OneWrite(transport, self.loop))  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        super()._unset_keepalive_if_required()
        super().connection_lost(exc)

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
