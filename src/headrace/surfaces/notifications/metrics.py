"""What is counted: notifications, streams, requests and who was let in, by the field's names.

Event types are labels only as far as the server knows them: what callers make up is counted as
other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from time import monotonic

from headrace.observe import Histogram, LabelledFamily, Sample
from headrace.web.answered_requests import OTHER, AnsweredRequests

_DURATION_BOUNDS_S = (0.1, 1, 10, 60, 300, 600, 1800, 3600, 7200)

Counts = Counter[tuple[str, ...]]


class NotificationMetrics:
    """The counters of one server."""

    def __init__(self, event_types: Container[str]) -> None:
        self._event_types = event_types
        """Those of the configuration."""
        self.notifications: Counts = Counter()
        self.active: Counts = Counter()
        self.opened: Counts = Counter()
        self.sent: Counts = Counter()
        self.failed: Counts = Counter()
        self.requests = AnsweredRequests("aviso_http_requests_total")
        self.authentications: Counts = Counter()
        self.durations = Histogram(
            "aviso_sse_connection_duration_seconds", "How long streams lasted.", _DURATION_BOUNDS_S
        )

    def label(self, event_type: str) -> str:
        """What an event type is counted as."""
        return event_type if event_type in self._event_types else OTHER

    def notifying(self, event_type: str) -> NotificationMeter:
        """Count a notification by what becomes of it."""
        return NotificationMeter(self.notifications, self.label(event_type))

    def authenticated(self, mode: str, outcome: str) -> None:
        """Somebody said who they are."""
        self.authentications[mode, outcome] += 1

    def samples(self) -> Sequence[Sample]:
        """All of them as they stand."""
        stream = ("route", "event_type")
        return [
            LabelledFamily(
                "aviso_notifications_total", "Notifications by what became of them.",
                ("event_type", "status"), self.notifications,
            ),
            LabelledFamily(
                "aviso_sse_connections_active", "Open streams.", stream, self.active, "gauge"
            ),
            LabelledFamily(
                "aviso_sse_connections_total", "Streams that were opened.", stream, self.opened
            ),
            LabelledFamily("aviso_sse_events_sent_total", "Notifications sent.", stream, self.sent),
            LabelledFamily(
                "aviso_sse_stream_errors_total", "Streams that failed.", stream, self.failed
            ),
            self.durations,
            self.requests.sample(),
            LabelledFamily(
                "aviso_auth_requests_total", "Credentials that were shown.",
                ("mode", "outcome"), self.authentications,
            ),
        ]  # fmt: skip


class NotificationMeter:
    """Counts one notification, as what it is when it is left."""

    __slots__ = ("_counts", "_label")

    def __init__(self, counts: Counts, label: str) -> None:
        self._counts = counts
        self._label = label

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *about: object) -> None:
        self._counts[self._label, "success" if kind is None else "error"] += 1


class StreamMeter:
    """Counts for one stream."""

    __slots__ = ("_key", "_metrics", "_opened_at")

    def __init__(self, metrics: NotificationMetrics, route: str, event_type: str) -> None:
        self._metrics = metrics
        self._key = (route, metrics.label(event_type))
        self._opened_at: float | None = None

    def opened(self) -> None:
        self._opened_at = monotonic()
        self._metrics.opened[self._key] += 1
        self._metrics.active[self._key] += 1

    def sent(self, count: int) -> None:
        self._metrics.sent[self._key] += count

    def failed(self) -> None:
        self._metrics.failed[self._key] += 1

    def closed(self) -> None:
        if self._opened_at is not None:
            self._metrics.active[self._key] -= 1
            self._metrics.durations.observe(monotonic() - self._opened_at)
            self._opened_at = None
