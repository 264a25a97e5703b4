"""What is counted: requests by route and status, events stored and sent again, open streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Sized

from headrace.observe import Gauge, MetricFamily, Sample
from headrace.surfaces.feeds.names import SURFACE
from headrace.web.answered_requests import AnsweredRequests


class FeedMetrics:
    """The counters of one server."""

    def __init__(self, consumers: Sized) -> None:
        self._consumers = consumers
        """Who is sent hints."""
        self.requests = AnsweredRequests("feeds_http_requests_total")
        self._events: Counter[str] = Counter()
        self.streams = 0
        """Open streams of events."""
        self._count_webhooks: Callable[[str], Counter[str]] = lambda surface: Counter()

    def open(self, count_webhooks: Callable[[str], Counter[str]]) -> None:
        """From here on, there are subscriptions to count."""
        self._count_webhooks = count_webhooks

    def stored(self, fresh: int, duplicates: int) -> None:
        """Events were sent: so many are new, and so many were there before."""
        self._events["stored"] += fresh
        self._events["duplicate"] += duplicates

    def samples(self) -> Sequence[Sample]:
        """All of them as they stand."""
        return [
            self.requests.sample(),
            MetricFamily(
                "feeds_events_total", "Events that were sent, by what became of them.",
                "outcome", self._events,
            ),
            MetricFamily(
                "feeds_subscriptions", "Subscriptions by status; failing ones need somebody.",
                "status", self._count_webhooks(SURFACE), "gauge",
            ),
            Gauge("feeds_sse_connections_active", "Open streams of events.", self.streams),
            Gauge("headrace_feed_consumers", "Consumers over gRPC.", len(self._consumers)),
        ]  # fmt: skip
