"""What is counted: requests by route and status, events stored and sent again, open streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from headrace.observe import LabelledFamily, Sample

OTHER = "other"
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"))


class FeedMetrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, ...]] = Counter()
        self.events: Counter[tuple[str, ...]] = Counter()
        self.streams = 0

    def answered(self, path: str | None, method: str, status: int) -> None:
        """A request was answered."""
        known = method if method in _METHODS else OTHER
        self.requests[path or OTHER, known, str(status)] += 1

    def stored(self, fresh: int, duplicates: int) -> None:
        """Events were sent: so many are new, and so many were there before."""
        self.events[("stored",)] += fresh
        self.events[("duplicate",)] += duplicates

    def samples(self) -> Sequence[Sample]:
        """All of them as they stand."""
        return [
            LabelledFamily(
                "feeds_http_requests_total", "Requests by route and status.",
                ("route", "method", "status_code"), self.requests,
            ),
            LabelledFamily(
                "feeds_events_total", "Events that were sent, by what became of them.",
                ("outcome",), self.events,
            ),
            LabelledFamily(
                "feeds_sse_connections_active", "Open streams of events.",
                (), Counter({(): self.streams}), "gauge",
            ),
        ]  # fmt: skip
