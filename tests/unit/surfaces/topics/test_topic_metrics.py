from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.core.config import Kind, LogConfig
from headrace.core.owners import TOPICS
from headrace.core.record import draft
from headrace.engine.timings import Timings
from headrace.observe import Sample, render_prometheus, snapshot
from headrace.surfaces.topics import metrics
from headrace.surfaces.topics.metrics import read_samples
from headrace.web.calls import Gate
from headrace.web.concurrency import Slots
from headrace.web.credential_store import CredentialStore
from headrace.web.credentials import LOCAL, Principal, Scope
from support.engine_harness import boot
from support.hostile import HostileDisk
from support.virtual import VirtualClock, VirtualLoop

NAMES = [
    "topics_topics",
    "topics_topics_by_class",
    "topics_routers",
    "topics_queue_topics",
    "topics_queue_leases_in_flight",
    "topics_watch_sessions",
    "topics_trackers",
    "topics_webhooks",
    "topics_webhook_deliveries_total",
    "topics_topic_head_seq",
    "topics_topic_earliest_seq",
    "topics_topic_records_live",
    "topics_topic_bytes_live",
    "topics_topic_queue_ready",
    "topics_topic_queue_in_flight",
    "topics_topic_metrics_truncated",
]


QUEUE = LogConfig(kind=Kind.QUEUE)


def new_gate() -> Gate:
    return Gate(CredentialStore(), Slots(), Slots(), 0)


@contextmanager
def serving(*topics: str, queues: tuple[str, ...] = (), records: int = 3) -> Iterator[Gate]:
    """A gate to an engine with these topics; a worker holds a job of each queue."""
    loop, gate = VirtualLoop(), new_gate()

    async def begin() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        for name in (*topics, *queues):
            config = QUEUE if name in queues else LogConfig()
            written = draft([b"1"] * records)
            await engine.appender.append(name, written, owner=TOPICS, create=config)
        for queue in queues:
            await engine.queues.claim(queue, "worker", 1, 1000, Timings())
        gate.open(engine)

    try:
        loop.run(begin())
        yield gate
        assert not loop.complaints
    finally:
        loop.close()


def read(gate: Gate, principal: Principal = LOCAL) -> list[Sample]:
    return read_samples(gate, 4, principal)


def test_the_names_are_those_of_the_contract() -> None:
    with serving("news", queues=("jobs",)) as gate:
        for samples in (read(gate), read(new_gate())):
            assert [sample.name for sample in samples] == NAMES
            assert all(sample.help for sample in samples)


def test_a_topic_has_its_series_and_a_queue_two_more() -> None:
    with serving("news", queues=("jobs",)) as gate:
        values = snapshot(read(gate))
    assert values["topics_topics"] == 2
    assert values["topics_topics_by_class"] == {"ephemeral": 0, "memory": 0, "disk": 2, "fsync": 0}
    assert values["topics_routers"] == 0
    assert values["topics_queue_topics"] == 1
    assert values["topics_queue_leases_in_flight"] == 1
    assert values["topics_watch_sessions"] == 4
    assert values["topics_topic_head_seq"] == {"news": 3, "jobs": 3}
    assert values["topics_topic_earliest_seq"] == {"news": 1, "jobs": 1}
    assert values["topics_topic_records_live"] == {"news": 3, "jobs": 3}
    assert values["topics_topic_queue_ready"] == {"jobs": 2}
    assert values["topics_topic_queue_in_flight"] == {"jobs": 1}
    assert values["topics_topic_metrics_truncated"] == 0


def test_a_server_that_recovers_tells_zeros() -> None:
    values = snapshot(read(new_gate()))
    assert values["topics_topics"] == 0
    assert set(values["topics_topics_by_class"].values()) == {0}
    assert values["topics_topic_head_seq"] == {}
    assert values["topics_topic_metrics_truncated"] == 0


def test_a_key_with_prefixes_sees_only_its_own_names() -> None:
    ann = Principal("ann", Scope.READ, ("ann:",))
    with serving("ann:jobs", "bob:secret") as gate:
        text = render_prometheus(read(gate, ann))
    assert 'topics_topic_head_seq{topic="ann:jobs"} 3' in text
    assert "bob" not in text


@pytest.mark.parametrize(("extra", "truncated"), [(0, 0), (1, 1), (20, 1)])
def test_the_topic_block_is_bounded(
    extra: int, truncated: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "TOPIC_SERIES_MAX", 5)
    with serving(*(f"t{number}" for number in range(5 + extra)), records=1) as gate:
        looked_at: list[str] = []
        known = gate.engine.state.names
        monkeypatch.setattr(
            gate.engine.state,
            "names",
            lambda *args: (looked_at.append(name) or name for name in known(*args)),
        )
        text = render_prometheus(read(gate))
    assert text.count("topics_topic_head_seq{") == 5
    assert f"topics_topic_metrics_truncated {truncated}\n" in text
    assert len(looked_at) == 5 + truncated, "no more is read than shown, and one to know of more"


def test_every_line_is_prometheus_text() -> None:
    with serving("a:b", "c") as gate:
        text = render_prometheus(read(gate))
    line = re.compile(r'# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{[a-z]+="[^"]*"\})? [0-9.e+-]+')
    assert all(line.fullmatch(each) for each in text.splitlines())
