"""Metrics of topics: how many there are and of what kind, and series of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from headrace.core import lease
from headrace.core.config import Durability
from headrace.core.owners import TOPICS, TRACKERS
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog
from headrace.observe import Gauge, MetricFamily, Sample
from headrace.web.calls import Gate
from headrace.web.credentials import Principal

TOPIC_SERIES_MAX = 1000
"""Topics with series of their own in one scrape; more would make scrapes slow for everyone."""


def read_samples(gate: Gate, watch_sessions: int, principal: Principal) -> list[Sample]:
    """Metrics of all topics at this moment, zeros while the server recovers.

    Topics are named only to whoever may see them.
    """
    engine = gate.engine if gate.ready else None
    now_ms = engine.clock.now_ms() if engine else 0
    by_class = _count_by_class(engine)
    queues = [engine.open_logs[log] for log in engine.state.queues] if engine else []
    leases = sum(lease.count(live.log, live.visible, now_ms).in_flight for live in queues)
    topics = _visible_topics(engine, principal) if engine else ()
    return [
        Gauge("topics_topics", "Topics.", sum(by_class.values())),
        MetricFamily("topics_topics_by_class", "Topics by durability class.", "class", by_class),
        Gauge("topics_routers", "Routers.", len(engine.routers) if engine else 0),
        Gauge("topics_queue_topics", "Topics of type queue.", len(queues)),
        Gauge("topics_queue_leases_in_flight", "Leases held by workers.", leases),
        Gauge("topics_watch_sessions", "Watch sessions.", watch_sessions),
        Gauge("topics_trackers", "Trackers.", engine.state.count_of(TRACKERS) if engine else 0),
        *_webhook_samples(engine),
        *_topic_samples(topics, now_ms),
    ]


def _webhook_samples(engine: Engine | None) -> list[Sample]:
    statuses = engine.webhooks.count_by_status("topics") if engine else {}
    attempts = engine.webhooks.delivery.outcomes("topics") if engine else {}
    return [
        MetricFamily("topics_webhooks", "Webhooks by status.", "status", statuses),
        MetricFamily(
            "topics_webhook_deliveries_total",
            "Attempts to deliver that were taken or failed, and batches that were given up.",
            "outcome",
            attempts,
            "counter",
        ),
    ]


def _count_by_class(engine: Engine | None) -> dict[str, int]:
    counts = dict.fromkeys((durability.value for durability in Durability), 0)
    for (owner, durability, _), count in engine.state.census.items() if engine else ():
        if owner == TOPICS:
            counts[durability.value] += count
    return counts


def _visible_topics(engine: Engine, principal: Principal) -> Iterator[OpenLog]:
    state = engine.state
    for name in filter(principal.may_see, state.names("", "", TOPICS)):
        yield engine.open_logs[state.by_name[name].id]


def _topic_samples(topics: Iterable[OpenLog], now_ms: int) -> list[Sample]:
    # One more than is shown, to know whether some are left out.
    rows = list(islice(topics, TOPIC_SERIES_MAX + 1))
    shown = rows[:TOPIC_SERIES_MAX]
    jobs = {
        live: lease.count(live.log, live.visible, now_ms)
        for live in shown
        if live.log.queue is not None
    }

    def family(
        name: str, help: str, read: Callable[[OpenLog], int], lives: Iterable[OpenLog] = shown
    ) -> MetricFamily:
        values = {live.log.name: read(live) for live in lives}
        return MetricFamily(f"topics_topic_{name}", help, "topic", values)

    return [
        family("head_seq", "Highest assigned seq.", lambda live: live.visible),
        family(
            "earliest_seq",
            "Seq of the first live record.",
            lambda live: min(live.log.earliest, live.visible + 1),
        ),
        family("records_live", "Live records.", lambda live: live.log.count),
        family("bytes_live", "Live record bytes.", lambda live: live.log.size_bytes),
        family("queue_ready", "Jobs that can be claimed.", lambda live: jobs[live].ready, jobs),
        family("queue_in_flight", "Jobs under a lease.", lambda live: jobs[live].in_flight, jobs),
        Gauge(
            "topics_topic_metrics_truncated",
            f"1 if only the first {TOPIC_SERIES_MAX} topics are listed.",
            len(rows) > len(shown),
        ),
    ]
