"""One connection that is pushed to: bytes out, a heartbeat, and the rules for slow consumers.

A sink takes a connection over from HTTP and writes to the transport itself: no task, no queue and
no copy between a committed record and the socket (decision 12). A surface makes a subclass:

- `opened` is called once there is a connection; from here on `write` may be used;
- `stuck` is called when the sink becomes `blocked`: write nothing more that can wait;
- `writable` is called when it has drained;
- `ended` is called once, at once, however the connection ends; give back what it held there;
- `beat` makes the heartbeat and `farewell` the last words for an ending.

The transport's buffer is the outbound queue. It is bounded: above `SINK_BUFFER_BYTES` the sink is
blocked and whoever feeds it lets records gather in the log instead. A sink that stays blocked for
`SLOW_CONSUMER_S` is told so and closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.core.limits import CLOSE_S, SINK_BUFFER_BYTES, SLOW_CONSUMER_S
from headrace.delivery.endings import Ending, ShuttingDown, SlowConsumer
from headrace.delivery.timer_wheel import TimerWheel


class Sink(asyncio.Protocol):
    """A connection that only the server speaks on."""

    __slots__ = (
        "_beat_s",
        "_on_close",
        "_on_end",
        "_wheel",
        "blocked_s",
        "blocked_since",
        "closed",
        "sent_at",
        "tick",
        "transport",
    )

    def __init__(self, wheel: TimerWheel, beat_s: float) -> None:
        self.transport: asyncio.Transport
        self.closed = True
        self.blocked_since: float | None = None
        self.blocked_s = 0.0
        """How long it was blocked the last time."""
        self.sent_at = 0.0
        self.tick = 0
        """Its slot of the wheel."""
        self._wheel = wheel
        self._beat_s = beat_s
        self._on_end: Callable[[], None]
        self._on_close: Callable[[], None]

    # --- for surfaces to fill in ------------------------------------------------------------------

    def opened(self) -> None:
        """There is a connection, and its head is written."""

    def stuck(self) -> None:
        """The peer does not keep up; `writable` follows, or the end."""

    def writable(self) -> None:
        """What was blocked has drained."""

    def ended(self) -> None:
        """Nothing more goes out here."""

    def beat(self) -> bytes:
        """A sign of life."""
        raise NotImplementedError

    def farewell(self, ending: Ending) -> bytes:
        """The last bytes of a connection that ends like this."""
        raise NotImplementedError

    @property
    def busy_at(self) -> float:
        """When something last went out, by the loop's clock."""
        return self.sent_at

    # --- writing ----------------------------------------------------------------------------------

    @property
    def blocked(self) -> bool:
        return self.blocked_since is not None

    @property
    def backlog(self) -> int:
        """Bytes the peer has not taken yet."""
        return self.transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        """Send bytes as they are; nothing once the sink is closed."""
        if not self.closed:
            self.sent_at = self._wheel.time()
            self.transport.write(data)

    def end(self, ending: Ending) -> None:
        """Say why, and close; what the peer does not take in time is dropped."""
        if self.closed:
            return
        self._leave()
        self.transport.write(self.farewell(ending))
        self.hang_up()
        self._wheel.schedule(self, CLOSE_S)

    def leave(self) -> None:
        """Close without a word: the peer knows."""
        if not self.closed:
            self._leave()
            self.transport.close()
            self._wheel.schedule(self, CLOSE_S)

    def hang_up(self) -> None:
        """Nothing more is written."""
        self.transport.close()

    def _leave(self) -> None:
        self.closed = True
        self._wheel.cancel(self)
        self._on_end()
        self.ended()

    # --- what the wheel asks ----------------------------------------------------------------------

    def on_timer(self, now: float) -> float:
        """Look after this connection; returns when to look again, 0 for never."""
        if self.closed:
            self.transport.abort()
            return 0
        if self.blocked_since is not None:
            left_s = self.blocked_since + SLOW_CONSUMER_S - now
            if left_s > 0:
                return left_s
            self.end(SlowConsumer())
            return 0
        left_s = self.busy_at + self._beat_s - now
        if left_s > 0:
            return left_s
        self.write(self.beat())
        return self._beat_s

    # --- what the transport says ------------------------------------------------------------------

    def attach(
        self,
        transport: asyncio.Transport,
        head: bytes,
        on_end: Callable[[], None],
        on_close: Callable[[], None],
    ) -> None:
        """Take the connection: `on_end` when its slot is free, `on_close` when it is gone."""
        self.transport = transport
        self._on_end, self._on_close = on_end, on_close
        transport.set_write_buffer_limits(SINK_BUFFER_BYTES)
        if transport.is_closing():
            self._on_end()
            self._on_close()
            return
        self.closed = False
        self.write(head)
        self._wheel.schedule(self, self._beat_s)
        self.opened()

    def pause_writing(self) -> None:
        self.blocked_since = self._wheel.time()
        if not self.closed:
            self._wheel.cancel(self)
            self._wheel.schedule(self, SLOW_CONSUMER_S)
            self.stuck()

    def resume_writing(self) -> None:
        if self.blocked_since is not None:
            self.blocked_s = self._wheel.time() - self.blocked_since
            self.blocked_since = None
        if not self.closed:
            self._wheel.cancel(self)
            self._wheel.schedule(self, self._beat_s)
            self.writable()

    def data_received(self, data: bytes) -> None:
        """Nobody is supposed to speak here."""

    def connection_lost(self, exc: Exception | None) -> None:
        if self.closed:
            self._wheel.cancel(self)
        else:
            self._leave()
        self._on_close()
        self._on_end = self._on_close = _nothing  # they name us: without these rings we are gone

    def shutdown(self) -> None:
        """The server is about to stop (called by uvicorn)."""
        self.end(ShuttingDown())


def _nothing() -> None:
    pass
