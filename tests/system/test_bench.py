"""The scenarios of the benchmark in miniature, without rivals: they must run, not be fast."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headrace.bench.arena import QUICK, Arena
from headrace.bench.peers import bullmq
from headrace.bench.scenarios.queue import queue

pytestmark = pytest.mark.system


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    sizes = msgspec.structs.replace(
        QUICK, rounds=1, warmup_s=0.1, window_s=0.2, latency_window_s=0.2, jobs=500
    )
    return Arena(tmp_path, sizes, with_redis=False, say=lambda _: None)


def test_a_queue_is_emptied_and_what_is_missing_is_named(arena: Arena) -> None:
    rows = queue(arena)
    assert [row.baseline_is for row in rows] == [bullmq.NAME, "Redis groups"] * 2
    assert all(row.headrace[0] > 0 for row in rows)
    assert all("apt-get install redis-server" in row.install for row in rows)
    assert [row.verdict for row in rows] == ["not compared", "", "", ""]
    assert list(arena.directory.iterdir()) == []
