"""The scenarios of the benchmark in miniature, without rivals: they must run, not be fast."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headrace_bench.arena import QUICK, Arena
from headrace_bench.peers import bullmq, durable_streams, nchan
from headrace_bench.report import Row
from headrace_bench.scenarios import fanout, feeds
from headrace_bench.scenarios.queue import queue

pytestmark = pytest.mark.system


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    sizes = msgspec.structs.replace(
        QUICK, rounds=1, warmup_s=0.0, window_s=0.2, latency_window_s=0.2, jobs=500
    )
    return Arena(tmp_path, sizes, with_redis=False, say=lambda _: None)


def test_a_queue_is_emptied_and_what_is_missing_is_named(arena: Arena) -> None:
    rows = queue(arena)
    assert [row.baseline_is for row in rows] == [bullmq.NAME, "Redis groups"] * 2
    assert all(row.headrace[0] > 0 for row in rows)
    assert all("apt-get install redis-server" in row.install for row in rows)
    assert [row.verdict for row in rows] == ["not compared", "", "", ""]
    assert list(arena.directory.iterdir()) == []


@pytest.fixture
def few_watchers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "LATENCIES", ((3, 50.0),))
    monkeypatch.setattr(fanout, "FLOOD_WATCHERS", 3)
    monkeypatch.setattr(nchan, "is_installed", lambda: False)
    monkeypatch.setattr(durable_streams, "is_installed", lambda: False)


def require_all_missing(rows: list[Row], rivals: list[str]) -> None:
    assert [row.baseline_is for row in rows] == rivals * 4
    assert all(row.headrace[0] > 0 for row in rows)
    assert all("install" in row.install for row in rows)


@pytest.mark.usefixtures("few_watchers")
def test_every_watcher_gets_every_record(arena: Arena) -> None:
    require_all_missing(list(fanout.fanout(arena)), [nchan.NAME, durable_streams.NAME])


@pytest.mark.usefixtures("few_watchers")
def test_every_socket_gets_every_record(arena: Arena) -> None:
    require_all_missing(list(fanout.websocket(arena)), [nchan.NAME])


def test_every_consumer_hears_of_every_event(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "HINTED", (1, 3))
    monkeypatch.setattr(feeds, "HINTED_EVENTS", 5)
    rows = list(feeds.hints(arena))
    assert len(rows) == 4
    assert all(row.headrace[0] > 0 for row in rows)
    assert list(arena.directory.iterdir()) == []
