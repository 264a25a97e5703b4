"""One connection that is pushed to: the logs it follows, a heartbeat, a deadline, slow consumers.

A sink takes a connection over from HTTP and writes to the transport itself: no task, no queue and
no copy between a committed record and the socket (decision 12). A surface makes a subclass of
`EventStream` or `Socket`. It brings `preamble`, `heartbeat` and `closing_frame`, and follows logs
through `followers` with views of its own: which records, and how a page of them looks. Its hooks:

- `on_open` is called once there is a connection; from here on `write` may be used;
- `on_blocked` is called when the peer does not keep up: write nothing more that can wait;
- `on_writable` is called when it has drained;
- `on_end` is called once, at once, however the connection ends; give back what it held there;
- `on_caught_up`, `on_log_ended`, `on_log_gone` and `on_log_failed` are called when a follower has
  been told so.

The transport's buffer is the outbound queue. It is bounded: above `SINK_BUFFER_BYTES` the sink is
blocked and records wait in their logs instead. A sink that stays blocked for `SLOW_CONSUMER_S` is
told so and closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

from headrace.core.limits import CLOSE_S, SINK_BUFFER_BYTES, SLOW_CONSUMER_S
from headrace.delivery.cohort import Follower
from headrace.delivery.endings import (
    Ending,
    Expired,
    Over,
    ShuttingDown,
    SlowConsumer,
    StreamFailed,
)
from headrace.delivery.followers import Followers
from headrace.delivery.hub import Hub


class Sink(asyncio.Protocol):
    """A connection that only the server speaks on."""

    __slots__ = (
        "_deadline",
        "_deadline_s",
        "_free_slot",
        "_heartbeat_s",
        "_hub",
        "_on_close",
        "_wheel",
        "blocked_s",
        "blocked_since",
        "closed",
        "followers",
        "sent_at",
        "tick",
        "transport",
    )

    def __init__(self, hub: Hub, heartbeat_s: float, deadline_s: float = inf) -> None:
        self.transport: asyncio.Transport
        self.followers = Followers(hub)
        """The logs that are pushed here."""
        self.closed = True
        self.blocked_since: float | None = None
        self.blocked_s = 0.0
        """How long it was blocked the last time."""
        self.sent_at = 0.0
        self.tick = 0
        """Its slot of the wheel."""
        self._hub = hub
        self._wheel = hub.wheel
        self._heartbeat_s = heartbeat_s
        """How often to say that all is well while nothing else is said; infinite: never."""
        self._deadline_s = deadline_s
        """How long the connection may last."""
        self._deadline = inf
        self._free_slot: Callable[[], None]
        self._on_close: Callable[[], None]

    # --- for surfaces to fill in ------------------------------------------------------------------

    def on_open(self) -> None:
        """There is a connection, and its head is written."""

    def on_blocked(self) -> None:
        """The peer does not keep up; `on_writable` follows, or the end."""
        self.followers.park()

    def on_writable(self) -> None:
        """What was blocked has drained."""
        self.followers.resume(self.blocked_s)

    def on_end(self) -> None:
        """Nothing more goes out here."""
        self.followers.close()

    def on_caught_up(self, follower: Follower) -> None:
        """A follower that was to hear of it has got everything there is."""

    def on_log_ended(self, follower: Follower) -> None:
        """A log was closed, and the follower has got all of it; the log may still be deleted."""

    def on_log_gone(self, follower: Follower) -> None:
        """A log was deleted."""
        self.followers.remove(follower)
        if not len(self.followers):
            self.end(Over())

    def on_log_failed(self, follower: Follower) -> None:
        """A log cannot be read."""
        self.end(StreamFailed(500, "internal error"))

    def heartbeat(self) -> bytes:
        """What goes out when nothing else did for a while."""
        raise NotImplementedError

    def closing_frame(self, ending: Ending) -> bytes:
        """The last bytes of a connection that ends like this."""
        raise NotImplementedError

    # --- writing ----------------------------------------------------------------------------------

    @property
    def blocked(self) -> bool:
        return self.blocked_since is not None

    @property
    def busy_at(self) -> float:
        """When something was last sent, by the loop's clock; followers may write past `write`."""
        return max(self.sent_at, self.followers.busy_at)

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
        self.transport.write(self.closing_frame(ending))
        self.hang_up()
        self._wheel.schedule(self, CLOSE_S)

    def end_within(self, seconds: float) -> None:
        """Before it is attached: let the connection last no longer than this."""
        self._deadline_s = min(self._deadline_s, max(seconds, 0))

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
        self._free_slot()
        self.on_end()

    # --- time -------------------------------------------------------------------------------------

    def on_timer(self, now: float) -> float:
        """Look after this connection; returns when to look again, 0 for never."""
        if self.closed:
            self.transport.abort()
            return 0
        if now >= self._deadline:
            self.end(Expired())
            return 0
        if self.blocked_since is not None:
            left_s = self.blocked_since + SLOW_CONSUMER_S - now
            if left_s <= 0:
                self.end(SlowConsumer())
                return 0
        else:
            left_s = self.busy_at + self._heartbeat_s - now
            if left_s <= 0:
                self.write(self.heartbeat())
                left_s = self._heartbeat_s
        left_s = min(left_s, self._deadline - now)
        return left_s if left_s < inf else 0

    def _schedule(self, wait_s: float) -> None:
        self._wheel.cancel(self)
        wait_s = min(wait_s, self._deadline - self._wheel.time())
        if wait_s < inf:
            self._wheel.schedule(self, wait_s)

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
        self._free_slot, self._on_close = on_end, on_close
        transport.set_write_buffer_limits(SINK_BUFFER_BYTES)
        if transport.is_closing():
            on_end()
            on_close()
            return
        self.closed = False
        self.write(head)
        self._deadline = self._wheel.time() + self._deadline_s
        self._schedule(self._heartbeat_s)
        self.on_open()

    def pause_writing(self) -> None:
        self.blocked_since = self._wheel.time()
        if not self.closed:
            self._schedule(SLOW_CONSUMER_S)
            self.on_blocked()

    def resume_writing(self) -> None:
        if self.blocked_since is not None:
            self.blocked_s = self._wheel.time() - self.blocked_since
            self.blocked_since = None
        if not self.closed:
            self._schedule(self._heartbeat_s)
            self.on_writable()

    def data_received(self, data: bytes) -> None:
        """Nobody is supposed to speak here."""

    def connection_lost(self, exc: Exception | None) -> None:
        if self.closed:
            self._wheel.cancel(self)
        else:
            self._leave()
        self._on_close()
        self._free_slot = self._on_close = _nothing  # they name us: without these rings we are gone

    def shutdown(self) -> None:
        """The server is about to stop."""
        self.end(ShuttingDown())


def _nothing() -> None:
    pass
