from __future__ import annotations

import re

from headrace.observe import LATENCY_BOUNDS_US, Histogram, render_prometheus
from headrace.surfaces.operations.metrics import read_samples

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
    records_live = 14
    bytes_live = 1400
    sse_connections = 3
    ready = True
    recovery_progress = 1.0
    uptime_ms = 84012
    loop_stall_max_ms = 2.5
    pressure = 0.25

    def __init__(self) -> None:
        self.journal = Journal()
        self.staged = Staged()
        self.backlog = Waiting()


def test_the_names_are_those_of_the_contract() -> None:
    samples = read_samples(Process())
    assert sorted(sample.name for sample in samples) == sorted(NAMES)
    assert all(sample.help for sample in samples)


def test_every_line_is_prometheus_text() -> None:
    text = render_prometheus(read_samples(Process()))
    line = re.compile(
        r'# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{[a-z]+="[^"]*"\})? ([0-9.e+-]+|[+-]Inf|NaN)'
    )
    assert all(line.fullmatch(each) for each in text.splitlines())
    assert 'topics_wal_fsync_latency_us_bucket{le="500"} 1' in text
    assert "topics_wal_fsync_latency_us_count 1" in text
    assert "topics_ready 1\n" in text
