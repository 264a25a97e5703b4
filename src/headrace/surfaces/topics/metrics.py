"""Metrics of topics: how many there are and of what kind, and series of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from headrace.core import lease
from headrace.core.config import Durability
from headrace.core.owners import TOPICS
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog
from headrace.observe import Gauge, MetricFamily, Number, Sample
from headrace.web.calls import Gate
from headrace.web.credentials import Principal

TOPIC_SERIES_MAX = 1000
"""Topics with series of their own in one scrape; more would make scrapes slow for everyone."""


class TopicsVitals:
    """All topics at this moment; zeros while the server recovers."""

    def __init__(self, gate: Gate, watch_sessions: int) -> None:
        self._engine: Engine | None = gate.engine if gate.ready else None
        self._now_ms = self._engine.clock.now_ms() if self._engine else 0
        self.watch_sessions = watch_sessions

    @property
    def topics_by_class(self) -> Mapping[str, int]:
        counts = dict.fromkeys((durability.value for durability in Durability), 0)
        census = self._engine.state.census if self._engine else {}
        for (owner, durability, _), count in census.items():
            if owner == TOPICS:
                counts[durability.value] += count
        return counts

    @property
    def routers(self) -> int:
        return len(self._engine.routers) if self._engine else 0

    @property
    def queue_topics(self) -> int:
        return len(self._engine.state.queues) if self._engine else 0

    @property
    def queue_leases_in_flight(self) -> int:
        engine = self._engine
        lives = [engine.open_logs[log] for log in engine.state.queues] if engine else []
        return sum(lease.count(live.log, live.visible, self._now_ms).in_flight for live in lives)

    def topics(self, wanted: Callable[[str], bool]) -> Iterator[TopicVitals]:
        if self._engine is None:
            return
        state = self._engine.state
        for name in state.names("", "", TOPICS):
            if wanted(name):
                yield TopicVitals(self._engine.open_logs[state.by_name[name].id], self._now_ms)


class TopicVitals:
    """One topic."""

    def __init__(self, live: OpenLog, now_ms: int) -> None:
        log = live.log
        queue = lease.count(log, live.visible, now_ms) if log.queue is not None else None
        self.name = log.name
        self.head_seq = live.visible
        self.earliest_seq = min(log.earliest, live.visible + 1)
        self.records_live = log.count
        self.bytes_live = log.size_bytes
        self.queue_ready = queue.ready if queue else None
        self.queue_in_flight = queue.in_flight if queue else None


def read_samples(vitals: TopicsVitals, principal: Principal) -> list[Sample]:
    """Metrics of topics; they are named only to whoever may see them."""
    by_class = vitals.topics_by_class
    return [
        Gauge("topics_topics", "Topics.", sum(by_class.values())),
        MetricFamily("topics_topics_by_class", "Topics by durability class.", "class", by_class),
        Gauge("topics_routers", "Routers.", vitals.routers),
        Gauge("topics_queue_topics", "Topics of type queue.", vitals.queue_topics),
        Gauge(
            "topics_queue_leases_in_flight",
            "Leases held by workers.",
            vitals.queue_leases_in_flight,
        ),
        Gauge("topics_watch_sessions", "Watch sessions.", vitals.watch_sessions),
        *_topic_samples(vitals.topics(principal.may_see)),
    ]


def _topic_samples(topics: Iterable[TopicVitals]) -> list[Sample]:
    # One more than is shown, to know whether some are left out.
    rows = list(islice(topics, TOPIC_SERIES_MAX + 1))
    shown = rows[:TOPIC_SERIES_MAX]

    def family(name: str, help: str, read: Callable[[TopicVitals], int | None]) -> MetricFamily:
        values: dict[str, Number] = {}
        for row in shown:
            value = read(row)
            if value is not None:
                values[row.name] = value
        return MetricFamily(f"topics_topic_{name}", help, "topic", values)

    return [
        family("head_seq", "Highest assigned seq.", lambda row: row.head_seq),
        family("earliest_seq", "Seq of the first live record.", lambda row: row.earliest_seq),
        family("records_live", "Live records.", lambda row: row.records_live),
        family("bytes_live", "Live record bytes.", lambda row: row.bytes_live),
        family("queue_ready", "Jobs that can be claimed.", lambda row: row.queue_ready),
        family("queue_in_flight", "Jobs under a lease.", lambda row: row.queue_in_flight),
        Gauge(
            "topics_topic_metrics_truncated",
            f"1 if only the first {TOPIC_SERIES_MAX} topics are listed.",
            len(rows) > len(shown),
        ),
    ]
