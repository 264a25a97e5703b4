"""Streams of events: everything behind a number, and what comes, on the shared following."""

from __future__ import annotations

from headrace.core.errors import Code, Refused
from headrace.core.limits import FEED_HEARTBEAT_S
from headrace.delivery.cohort import Follower
from headrace.delivery.endings import Ending, Expired, Over, SlowConsumer, describe
from headrace.delivery.hub import Hub
from headrace.delivery.sse import LAST_CHUNK, EventStream, event
from headrace.engine.open_log import OpenLog
from headrace.surfaces.feeds.errors import encode_error
from headrace.surfaces.feeds.events import HEARTBEAT, FeedView
from headrace.surfaces.feeds.filters import EventSelector
from headrace.surfaces.feeds.metrics import FeedMetrics

_CODES = {code.status: code for code in (Code.UNAUTHENTICATED, Code.SHUTTING_DOWN)}
"""What an ending is called that has one of these statuses."""


class FeedStream(EventStream):
    """One stream of events of a tenant."""

    __slots__ = ("_after", "_live", "_metrics", "_selector")

    def __init__(
        self, hub: Hub, live: OpenLog, selector: EventSelector, after: int, metrics: FeedMetrics
    ) -> None:
        super().__init__(hub, FEED_HEARTBEAT_S)
        self._live = live
        self._selector = selector
        self._after = after
        self._metrics = metrics

    def preamble(self) -> bytes:
        return self.wrap(HEARTBEAT)

    def heartbeat(self) -> bytes:
        return self.wrap(HEARTBEAT)

    def closing_frame(self, ending: Ending) -> bytes:
        """Who is cut off comes again, behind the last event; who cannot is told why."""
        last = LAST_CHUNK if self.chunked else b""
        if isinstance(ending, SlowConsumer | Over | Expired) or (said := describe(ending)) is None:
            return last
        status, message = said
        code = _CODES.get(status, Code.INTERNAL)
        return self.wrap(event(b"error", encode_error(Refused(code, message)))) + last

    def on_open(self) -> None:
        self._metrics.streams += 1
        view = FeedView(self._selector, self.chunked)
        follower = Follower(self, self._live, view, self._after, self.write, owes_caught_up=False)
        self.followers.add(follower)

    def on_end(self) -> None:
        self._metrics.streams -= 1
        super().on_end()
