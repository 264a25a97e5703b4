from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec
import pytest

from headrace.observe import LATENCY_BOUNDS_US, Histogram, render_prometheus, snapshot
from headrace.surfaces.operations.metrics import TOPIC_SERIES_MAX, read_samples
from headrace.web.credentials import LOCAL, Principal, Scope

NAMES = [
    "topics_topics",
    "topics_topics_by_class",
    "topics_routers",
    "topics_records_live",
    "topics_bytes_live",
    "topics_queue_topics",
    "topics_queue_leases_in_flight",
    "topics_sse_connections",
    "topics_watch_sessions",
    "topics_ready",
    "topics_recovery_progress",
    "topics_uptime_ms",
    "topics_topic_head_seq",
    "topics_topic_earliest_seq",
    "topics_topic_records_live",
    "topics_topic_bytes_live",
    "topics_topic_queue_ready",
    "topics_topic_queue_in_flight",
    "topics_topic_metrics_truncated",
    "topics_wal_frames_total",
    "topics_wal_batches_total",
    "topics_wal_fsyncs_total",
    "topics_wal_bytes_written_total",
    "topics_wal_rotations_total",
    "topics_wal_queue_depth",
    "topics_wal_queue_depth_peak",
    "topics_wal_submit_full_total",
    "topics_wal_read_only",
    "topics_wal_fsync_latency_us",
    "headrace_loop_stall_max_ms",
    "headrace_pressure",
    "headrace_staged_transactions",
    "headrace_staged_chunks",
    "headrace_staged_bytes",
    "headrace_staged_age_ms",
    "headrace_segments",
    "headrace_unsealed_bytes",
    "headrace_unsealed_age_ms",
]


class Topic(msgspec.Struct, frozen=True):
    name: str
    head_seq: int = 9
    earliest_seq: int = 3
    records_live: int = 7
    bytes_live: int = 700
    queue_ready: int | None = None
    queue_in_flight: int | None = None


class Journal:
    frames = 12
    batches = 5
    fsyncs = 4
    bytes_written = 4096
    rotations = 1
    queue_depth = 0
    queue_depth_peak = 3
    submit_full = 0
    read_only = False

    def __init__(self) -> None:
        self.fsync_latency_us = Histogram("fsync_us", "", LATENCY_BOUNDS_US)
        self.fsync_latency_us.observe(420)


class Staged:
    transactions = 1
    chunks = 2
    size_bytes = 300
    age_ms = 4000


class Waiting:
    unsealed_bytes = 900
    age_ms = 5000


class Process:
    segments = 3
    routers = 0
    records_live = 14
    bytes_live = 1400
    queue_topics = 1
    queue_leases_in_flight = 2
    sse_connections = 3
    watch_sessions = 4
    ready = True
    recovery_progress = 1.0
    uptime_ms = 84012
    loop_stall_max_ms = 2.5
    pressure = 0.25

    def __init__(self, *topics: Topic) -> None:
        self._topics = topics
        self.topics_by_class = {"disk": len(topics), "fsync": 0}
        self.journal = Journal()
        self.staged = Staged()
        self.backlog = Waiting()
        self.read = 0

    def topics(self, wanted: Callable[[str], bool]) -> Iterator[Topic]:
        for topic in self._topics:
            if wanted(topic.name):
                self.read += 1
                yield topic


def test_the_names_are_those_of_the_contract() -> None:
    samples = read_samples(Process(Topic("jobs")), LOCAL)
    assert sorted(sample.name for sample in samples) == sorted(NAMES)
    assert all(sample.help for sample in samples)


def test_a_topic_has_its_series_and_a_queue_two_more() -> None:
    process = Process(Topic("news"), Topic("jobs", queue_ready=5, queue_in_flight=2))
    values = snapshot(read_samples(process, LOCAL))
    assert values["topics_topics"] == 2
    assert values["topics_topics_by_class"] == {"disk": 2, "fsync": 0}
    assert values["topics_topic_head_seq"] == {"news": 9, "jobs": 9}
    assert values["topics_topic_queue_ready"] == {"jobs": 5}
    assert values["topics_topic_queue_in_flight"] == {"jobs": 2}
    assert values["topics_topic_metrics_truncated"] == 0


def test_a_key_with_prefixes_sees_only_its_own_names() -> None:
    ann = Principal("ann", Scope.READ, ("ann:",))
    process = Process(Topic("ann:jobs"), Topic("bob:secret"))
    text = render_prometheus(read_samples(process, ann))
    assert 'topics_topic_head_seq{topic="ann:jobs"} 9' in text
    assert "bob" not in text


@pytest.mark.parametrize(("extra", "truncated"), [(0, 0), (1, 1), (5000, 1)])
def test_the_topic_block_is_bounded(extra: int, truncated: int) -> None:
    process = Process(*(Topic(f"t{number}") for number in range(TOPIC_SERIES_MAX + extra)))
    text = render_prometheus(read_samples(process, LOCAL))
    assert text.count("topics_topic_head_seq{") == TOPIC_SERIES_MAX
    assert f"topics_topic_metrics_truncated {truncated}\n" in text
    assert process.read <= TOPIC_SERIES_MAX + 1


def test_every_line_is_prometheus_text() -> None:
    text = render_prometheus(read_samples(Process(Topic("a:b"), Topic("c")), LOCAL))
    line = re.compile(
        r'# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{[a-z]+="[^"]*"\})? ([0-9.e+-]+|[+-]Inf|NaN)'
    )
    assert all(line.fullmatch(each) for each in text.splitlines())
    assert 'topics_wal_fsync_latency_us_bucket{le="500"} 1' in text
    assert "topics_wal_fsync_latency_us_count 1" in text
    assert "topics_ready 1\n" in text
