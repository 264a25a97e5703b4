"""How long an append takes at a moderate, fixed load."""

from __future__ import annotations

from collections.abc import Iterator

from headrace_bench.arena import Arena
from headrace_bench.control import Durability, create_topic
from headrace_bench.jobs import Appends, Cycle, Http, Paced, Resp
from headrace_bench.process import ServerProcess
from headrace_bench.redis import Fsync, RedisProcess
from headrace_bench.report import Row
from headrace_bench.scenarios.workload import make_batches, make_pipelines
from headrace_bench.stats import percentile
from headrace_bench.worker import run_appends

RATE_PER_S = 1000
CONNECTIONS = 16
TOPIC = "bench"
CLASSES: tuple[tuple[Durability, Fsync], ...] = (("fsync", "always"), ("disk", "everysec"))
PERCENTILES = (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))


def latency(arena: Arena) -> Iterator[Row]:
    """Open loop, so that a stall is felt by every request that was due during it."""
    for durability, fsync in CLASSES:
        yield from _percentile_rows(arena, durability, fsync)


def _percentile_rows(arena: Arena, durability: Durability, fsync: Fsync) -> list[Row]:
    plan = Paced(RATE_PER_S, arena.sizes.warmup_s, arena.sizes.latency_window_s)
    requests = Cycle(make_batches(TOPIC, 1))
    pipelines = Cycle(make_pipelines(TOPIC, 1))

    def server_latencies(server: ServerProcess) -> list[float]:
        job = Appends(server.port, CONNECTIONS, Http(), requests, plan)
        return run_appends(job).latencies_ms

    def redis_latencies(redis: RedisProcess) -> list[float]:
        job = Appends(redis.port, CONNECTIONS, Resp(), pipelines, plan)
        return run_appends(job).latencies_ms

    with arena.contenders(fsync) as contenders:
        create_topic(contenders.server.url, TOPIC, durability)
        ours, theirs = contenders.compare(
            f"latency, class {durability}", server_latencies, redis_latencies
        )
    return [
        Row(
            what=f"append latency {name} at {RATE_PER_S}/s, class {durability} (Redis {fsync})",
            unit="ms",
            headrace=tuple(percentile(values, part) for values in ours),
            baseline=tuple(percentile(values, part) for values in theirs),
        )
        for name, part in PERCENTILES
    ]
