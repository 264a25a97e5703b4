from __future__ import annotations

import re

import pytest

from headrace.core.config import Durability, LogConfig
from headrace.core.owners import TOPICS
from headrace.engine.flow.loop_lag import LoopLag
from headrace.observe import Sample, render_prometheus, snapshot
from headrace.surfaces.operations.metrics import read_samples
from headrace.web.calls import Gate
from headrace.web.concurrency import Slots
from headrace.web.credential_store import CredentialStore
from support.engine_harness import boot
from support.hostile import HostileDisk
from support.virtual import VirtualClock, VirtualLoop

NAMES = [
    "topics_records_live",
    "topics_bytes_live",
    "topics_sse_connections",
    "topics_ready",
    "topics_recovery_progress",
    "topics_uptime_ms",
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


def new_gate() -> Gate:
    return Gate(CredentialStore(), Slots(), Slots(), 0)


def read(gate: Gate) -> list[Sample]:
    return read_samples(gate, LoopLag(), 84012)


def read_working() -> list[Sample]:
    """What a server tells that has made a topic."""
    loop, gate = VirtualLoop(), new_gate()

    async def begin() -> list[Sample]:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        await engine.logs.put("t", TOPICS, LogConfig(durability=Durability.FSYNC))
        gate.open(engine)
        return read(gate)

    try:
        return loop.run(begin())
    finally:
        loop.close()


@pytest.mark.parametrize("samples", [read(new_gate()), read_working()])
def test_the_names_are_those_of_the_contract(samples: list[Sample]) -> None:
    assert sorted(sample.name for sample in samples) == sorted(NAMES)
    assert all(sample.help for sample in samples)


def test_a_server_that_recovers_tells_zeros() -> None:
    values = snapshot(read(new_gate()))
    assert values.pop("topics_uptime_ms") == 84012
    assert values.pop("topics_wal_fsync_latency_us")["count"] == 0
    assert set(values.values()) == {0}


def test_a_server_at_work_tells_of_its_journal() -> None:
    values = snapshot(read_working())
    assert values["topics_ready"] == 1
    assert values["topics_recovery_progress"] == 1
    for name in ("frames", "batches", "fsyncs", "bytes_written"):
        assert values[f"topics_wal_{name}_total"] > 0


def test_every_line_is_prometheus_text() -> None:
    text = render_prometheus(read_working())
    line = re.compile(
        r'# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{[a-z]+="[^"]*"\})? ([0-9.e+-]+|[+-]Inf|NaN)'
    )
    assert all(line.fullmatch(each) for each in text.splitlines())
    assert 'topics_wal_fsync_latency_us_bucket{le="+Inf"}' in text
    assert "topics_ready 1\n" in text
