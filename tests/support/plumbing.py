"""A transport that keeps what is written and can be stuck, and a hub for it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from headrace.core.limits import SINK_BUFFER_BYTES
from headrace.delivery.hub import Hub
from headrace.delivery.timer_wheel import TimerWheel


class NoLogs(Hub):
    """The hub of connections that follow nothing, without an engine."""

    def __init__(self, clock: Any = None) -> None:
        self.wheel = TimerWheel()
        self.engine = SimpleNamespace(clock=clock)  # type: ignore[assignment]


class Pipe(asyncio.Transport):
    """Takes bytes; the peer reads none of them while it is `stuck`."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.stuck = False
        self.closing = False
        self.aborted = False
        self.ended = False
        self.reading_paused = False
        self.protocol: Any = None
        self._held = 0
        self._high = 0
        self._paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high or 0

    def get_write_buffer_size(self) -> int:
        return self._held

    def write(self, data: Any) -> None:
        assert not self.aborted
        self.sent.append(bytes(data))
        if self.stuck:
            self._held += len(data)
            if self._held > self._high and not self._paused:
                self._paused = True
                self.protocol.pause_writing()

    def fill(self) -> None:
        """The peer stops reading, and something large is on its way."""
        self.stuck = True
        self.write(b"." * (SINK_BUFFER_BYTES + 1))

    def choke(self) -> None:
        """The peer stops reading with its buffers full."""
        if self.closing:
            return
        self.stuck = self._paused = True
        self._held = SINK_BUFFER_BYTES + 1
        self.protocol.pause_writing()

    def drain(self) -> None:
        """The peer takes everything."""
        self.stuck, self._held = False, 0
        if self._paused:
            self._paused = False
            self.protocol.resume_writing()

    def write_eof(self) -> None:
        self.ended = True

    def pause_reading(self) -> None:
        self.reading_paused = True

    def resume_reading(self) -> None:
        self.reading_paused = False

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def take(self) -> bytes:
        """What was written since the last look."""
        sent, self.sent = b"".join(self.sent), []
        return sent
