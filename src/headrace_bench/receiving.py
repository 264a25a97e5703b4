"""A receiver of webhooks on this machine that takes everything at once."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import perf_counter
from typing import cast

import uvloop

from headrace_bench.errors import BenchError

_TAKEN = b"HTTP/1.1 204 No Content\r\n\r\n"
_LENGTH = b"content-length: "
READY_S = 10.0
WAIT_S = 60.0


class WebhookReceiver:
    """Counts deliveries, and knows when the first and the last of them came."""

    def __init__(self) -> None:
        self.port = 0
        self.expected = self.count = 0
        self.expected_bytes = self.body_bytes = 0
        self.began = self.ended = 0.0
        self.complete = Event()

    def expect(self, deliveries: int, payload_bytes: int = 0) -> None:
        """Begin to count, up to so many, which together have these payloads and what is around."""
        self.expected, self.count = deliveries, 0
        self.expected_bytes, self.body_bytes = payload_bytes, 0
        self.complete.clear()

    def take(self, size_bytes: int) -> None:
        self.count += 1
        self.body_bytes += size_bytes
        self.ended = perf_counter()
        if self.count == 1:
            self.began = self.ended
        if self.count == self.expected:
            self.complete.set()

    def wait_complete(self, timeout_s: float = WAIT_S) -> None:
        """A rate of deliveries that were not full would be no rate of records."""
        if not self.complete.wait(timeout_s):
            raise BenchError(f"{self.count} of {self.expected} deliveries in {timeout_s:g} s")
        if self.body_bytes < self.expected_bytes:
            raise BenchError(f"{self.expected} deliveries have {self.body_bytes} bytes only")

    @property
    def rate_per_s(self) -> float:
        """Deliveries in a second, from the first to the last."""
        return (self.count - 1) / max(self.ended - self.began, 1e-9)


class _Connection(asyncio.Protocol):
    def __init__(self, receiver: WebhookReceiver) -> None:
        self._receiver = receiver
        self._held = bytearray()
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        held = self._held
        held += data
        while (end := held.find(b"\r\n\r\n")) >= 0:
            head = held[: end + 2].lower()
            start = head.index(_LENGTH) + len(_LENGTH)
            body_bytes = int(head[start : head.index(b"\r", start)])
            size = end + 4 + body_bytes
            if len(held) < size:
                return
            del held[:size]
            self._receiver.take(body_bytes)
            self._transport.write(_TAKEN)


@contextmanager
def receiving() -> Iterator[WebhookReceiver]:
    """A receiver in operation, in a thread of its own."""
    receiver, ready, over = WebhookReceiver(), Event(), asyncio.Event()
    loop = uvloop.new_event_loop()

    async def serve() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        receiver.port = listener.getsockname()[1]
        server = await loop.create_server(lambda: _Connection(receiver), sock=listener)
        ready.set()
        await over.wait()
        server.close()

    def run() -> None:
        loop.run_until_complete(serve())
        loop.close()

    thread = Thread(target=run, name="receiver", daemon=True)
    thread.start()
    ready.wait(READY_S)
    try:
        yield receiver
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(READY_S)
