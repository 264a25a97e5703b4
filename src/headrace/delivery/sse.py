"""Server-sent events: framing, and a sink that speaks them."""

from __future__ import annotations

from math import inf
from typing import Any

import msgspec

from headrace.core.limits import RETRY_MS
from headrace.delivery.endings import Ending, describe
from headrace.delivery.hub import Hub
from headrace.delivery.sink import Sink

LAST_CHUNK = b"0\r\n\r\n"


def event(name: bytes, data: bytes, id: bytes | None = None) -> bytes:
    """One event. Line breaks in JSON stand between tokens, where a space says the same."""
    if b"\n" in data or b"\r" in data:
        data = data.replace(b"\n", b" ").replace(b"\r", b" ")
    if id is None:
        return b"event: %b\ndata: %b\n\n" % (name, data)
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (id, name, data)


def heartbeat(now_ms: int) -> bytes:
    return b": hb %d\n\n" % now_ms


def error(status: int, message: str, **more: Any) -> bytes:
    """An event that tells of a problem, with a status as HTTP has it."""
    return event(b"error", msgspec.json.encode({"code": status, "error": message, **more}))


def chunk(frames: bytes) -> bytes:
    """Bytes as one chunk of an HTTP/1.1 body."""
    return b"%x\r\n%b\r\n" % (len(frames), frames)


class EventStream(Sink):
    """A connection that carries events; `web.event_streams` opens it. `send` what `event` makes."""

    __slots__ = ("_clock", "chunked")

    def __init__(self, hub: Hub, heartbeat_s: float, deadline_s: float = inf) -> None:
        super().__init__(hub, heartbeat_s, deadline_s)
        self._clock = hub.engine.clock
        self.chunked = True
        """Whether the body is sent in chunks; to an HTTP/1.0 peer it is not."""

    def wrap(self, frames: bytes) -> bytes:
        """Frames as they go over the wire here."""
        return chunk(frames) if self.chunked else frames

    def send(self, frames: bytes) -> None:
        self.write(self.wrap(frames))

    def preamble(self) -> bytes:
        """What goes out before anything else."""
        return self.wrap(b"retry: %d\n\n" % RETRY_MS + heartbeat(self._clock.now_ms()))

    def heartbeat(self) -> bytes:
        return self.wrap(heartbeat(self._clock.now_ms()))

    def closing_frame(self, ending: Ending) -> bytes:
        said = describe(ending)
        last = LAST_CHUNK if self.chunked else b""
        return last if said is None else self.wrap(error(*said)) + last
