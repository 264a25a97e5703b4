from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec
import pytest

from headrace.observe import render_prometheus, snapshot
from headrace.surfaces.topics.metrics import TOPIC_SERIES_MAX, read_samples
from headrace.web.credentials import LOCAL, Principal, Scope

NAMES = [
    "topics_topics",
    "topics_topics_by_class",
    "topics_routers",
    "topics_queue_topics",
    "topics_queue_leases_in_flight",
    "topics_watch_sessions",
    "topics_topic_head_seq",
    "topics_topic_earliest_seq",
    "topics_topic_records_live",
    "topics_topic_bytes_live",
    "topics_topic_queue_ready",
    "topics_topic_queue_in_flight",
    "topics_topic_metrics_truncated",
]


class Topic(msgspec.Struct, frozen=True):
    name: str
    head_seq: int = 9
    earliest_seq: int = 3
    records_live: int = 7
    bytes_live: int = 700
    queue_ready: int | None = None
    queue_in_flight: int | None = None


class Topics:
    routers = 0
    queue_topics = 1
    queue_leases_in_flight = 2
    watch_sessions = 4

    def __init__(self, *topics: Topic) -> None:
        self._topics = topics
        self.topics_by_class = {"disk": len(topics), "fsync": 0}
        self.read = 0

    def topics(self, wanted: Callable[[str], bool]) -> Iterator[Topic]:
        for topic in self._topics:
            if wanted(topic.name):
                self.read += 1
                yield topic


def test_the_names_are_those_of_the_contract() -> None:
    samples = read_samples(Topics(Topic("jobs")), LOCAL)
    assert sorted(sample.name for sample in samples) == sorted(NAMES)
    assert all(sample.help for sample in samples)


def test_a_topic_has_its_series_and_a_queue_two_more() -> None:
    topics = Topics(Topic("news"), Topic("jobs", queue_ready=5, queue_in_flight=2))
    values = snapshot(read_samples(topics, LOCAL))
    assert values["topics_topics"] == 2
    assert values["topics_topics_by_class"] == {"disk": 2, "fsync": 0}
    assert values["topics_topic_head_seq"] == {"news": 9, "jobs": 9}
    assert values["topics_topic_queue_ready"] == {"jobs": 5}
    assert values["topics_topic_queue_in_flight"] == {"jobs": 2}
    assert values["topics_topic_metrics_truncated"] == 0


def test_a_key_with_prefixes_sees_only_its_own_names() -> None:
    ann = Principal("ann", Scope.READ, ("ann:",))
    topics = Topics(Topic("ann:jobs"), Topic("bob:secret"))
    text = render_prometheus(read_samples(topics, ann))
    assert 'topics_topic_head_seq{topic="ann:jobs"} 9' in text
    assert "bob" not in text


@pytest.mark.parametrize(("extra", "truncated"), [(0, 0), (1, 1), (5000, 1)])
def test_the_topic_block_is_bounded(extra: int, truncated: int) -> None:
    topics = Topics(*(Topic(f"t{number}") for number in range(TOPIC_SERIES_MAX + extra)))
    text = render_prometheus(read_samples(topics, LOCAL))
    assert text.count("topics_topic_head_seq{") == TOPIC_SERIES_MAX
    assert f"topics_topic_metrics_truncated {truncated}\n" in text
    assert topics.read <= TOPIC_SERIES_MAX + 1


def test_every_line_is_prometheus_text() -> None:
    text = render_prometheus(read_samples(Topics(Topic("a:b"), Topic("c")), LOCAL))
    line = re.compile(r'# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{[a-z]+="[^"]*"\})? [0-9.e+-]+')
    assert all(line.fullmatch(each) for each in text.splitlines())
