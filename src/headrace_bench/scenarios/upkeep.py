"""What sealing, snapshots and eviction do to the appends beside them."""

from __future__ import annotations

import time
from collections.abc import Iterator

from headrace_bench.arena import Arena
from headrace_bench.control import Durability, create_topic, read_metric
from headrace_bench.errors import BenchError
from headrace_bench.jobs import Appends, Cycle, Http, Paced
from headrace_bench.process import ServerProcess
from headrace_bench.report import RatioAtMost, Row, ValueAtMost
from headrace_bench.scenarios.workload import make_batches
from headrace_bench.stats import percentile
from headrace_bench.worker import background_appends, run_appends

SEAL_BYTES_BUSY = 4 * 1024 * 1024
SEAL_BYTES_NEVER = 1 << 30
CAP_RECORDS_BUSY = 20_000

PROBE_RATE_PER_S = 500
PROBE_CONNECTIONS = 8
# About 4 MB a second: the busy server seals about once a second.
WRITER_RATE_PER_S = 200
WRITER_BATCH_RECORDS = 100
WRITER_CONNECTIONS = 4
WRITER_HEAD_START_S = 0.5


def upkeep(arena: Arena) -> Iterator[Row]:
    """The p99 of appends beside a writer, with upkeep running and with none."""
    busy_env = {"HEADRACE_SEAL_BYTES": str(SEAL_BYTES_BUSY)}
    idle_env = {"HEADRACE_SEAL_BYTES": str(SEAL_BYTES_NEVER), "HEADRACE_SEAL_MS": "0"}
    with arena.server(busy_env) as busy, arena.server(idle_env) as idle:
        create_topic(busy.url, "written", "disk", cap_records=CAP_RECORDS_BUSY)
        create_topic(idle.url, "written", "disk")
        yield _compare_p99(arena, busy, idle, "fsync")
        yield _compare_p99(arena, busy, idle, "disk")
        _require_upkeep(busy, idle)
        stall_ms = read_metric(busy.url, "headrace_loop_stall_max_ms")
    yield Row(
        what="longest stall of the event loop during upkeep",
        unit="ms",
        headrace=(stall_ms,),
        reach=ValueAtMost(20),
    )


def _compare_p99(
    arena: Arena, busy: ServerProcess, idle: ServerProcess, durability: Durability
) -> Row:
    topic = f"probed-{durability}"
    for server in (busy, idle):
        create_topic(server.url, topic, durability)
    during, without = arena.take_turns(
        f"appends beside upkeep, class {durability}",
        lambda: _measure_p99(arena, busy, topic),
        lambda: _measure_p99(arena, idle, topic),
    )
    return Row(
        what=f"append p99 during upkeep, class {durability}",
        unit="ms",
        headrace=during,
        baseline=without,
        baseline_is="idle",
        reach=RatioAtMost(3),
    )


def _measure_p99(arena: Arena, server: ServerProcess, topic: str) -> float:
    warmup_s, window_s = arena.sizes.warmup_s, arena.sizes.latency_window_s
    probe = Appends(
        server.port,
        PROBE_CONNECTIONS,
        Http(),
        Cycle(make_batches(topic, 1)),
        Paced(PROBE_RATE_PER_S, warmup_s, window_s),
    )
    writer = Appends(
        server.port,
        WRITER_CONNECTIONS,
        Http(),
        Cycle(make_batches("written", WRITER_BATCH_RECORDS)),
        Paced(WRITER_RATE_PER_S, WRITER_HEAD_START_S, warmup_s + window_s),
    )
    with background_appends(writer):
        time.sleep(WRITER_HEAD_START_S)
        tally = run_appends(probe)
    return percentile(tally.latencies_ms, 0.99)


def _require_upkeep(busy: ServerProcess, idle: ServerProcess) -> None:
    """Without this a server that never seals would pass best of all."""
    if not _count_segments(busy):
        raise BenchError("the busy server sealed nothing: there was no upkeep to measure")
    if _count_segments(idle):
        raise BenchError("the idle server sealed segments: it was not idle")


def _count_segments(server: ServerProcess) -> int:
    return sum(1 for _ in server.data_dir.rglob("*.parquet"))
