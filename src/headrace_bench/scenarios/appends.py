"""How many appends a second: alone or in batches, durable or not."""

from __future__ import annotations

from collections.abc import Iterator

from headrace_bench import wrk
from headrace_bench.arena import Arena, Contenders
from headrace_bench.control import Durability, create_topic
from headrace_bench.jobs import Appends, Cycle, Http, Timed
from headrace_bench.process import ServerProcess
from headrace_bench.redis import Fsync
from headrace_bench.report import RatioAtLeast, Reach, Row
from headrace_bench.scenarios.workload import RECORD_BYTES, make_batches
from headrace_bench.wire import make_payloads
from headrace_bench.worker import run_appends

BATCH_RECORDS = 100
BATCH_CONNECTIONS = 16
TOPIC = "bench"


def single(arena: Arena) -> Iterator[Row]:
    """One record a request: what group commit makes of many small writers."""
    rows = []
    with arena.contenders("always") as contenders:
        create_topic(contenders.server.url, TOPIC, "fsync")
        for connections in (16, 64, 256):
            reach = RatioAtLeast(0.25) if connections == 64 else None
            rows.append(
                compare_appends(
                    contenders,
                    f"single durable appends, {connections} connections",
                    connections=connections,
                    batch_records=1,
                    reach=reach,
                )
            )
            yield rows[-1]
    yield Row(
        what="single durable appends, 256 connections against 16",
        unit="/s",
        headrace=rows[-1].headrace,
        baseline=rows[0].headrace,
        baseline_is="with 16",
        reach=RatioAtLeast(1.0),
    )


def single_by_wrk(arena: Arena) -> Iterator[Row]:
    """The same without our load generator, which a fast server may outrun."""
    if not wrk.is_installed():
        return
    with arena.contenders("always") as contenders:
        create_topic(contenders.server.url, TOPIC, "fsync")
        for connections, ratio in ((64, 0.5), (256, 0.4)):
            yield compare_appends(
                contenders,
                f"single durable appends by wrk, {connections} connections",
                connections=connections,
                batch_records=1,
                reach=RatioAtLeast(ratio),
                by_wrk=True,
            )


def batched(arena: Arena) -> list[Row]:
    """Batches into class `fsync`, against Redis pipelines with a sync for every turn."""
    return [_batches(arena, "fsync", "always", RatioAtLeast(1.5))]


def disk(arena: Arena) -> list[Row]:
    """The same batches into class `disk`, against Redis with a sync every second."""
    return [_batches(arena, "disk", "everysec", None)]


def _batches(arena: Arena, durability: Durability, fsync: Fsync, reach: Reach | None) -> Row:
    with arena.contenders(fsync) as contenders:
        create_topic(contenders.server.url, TOPIC, durability)
        return compare_appends(
            contenders,
            f"appends in batches of {BATCH_RECORDS}, class {durability} (Redis {fsync}), records",
            connections=BATCH_CONNECTIONS,
            batch_records=BATCH_RECORDS,
            reach=reach,
        )


def compare_appends(
    contenders: Contenders,
    what: str,
    *,
    connections: int,
    batch_records: int,
    reach: Reach | None,
    by_wrk: bool = False,
) -> Row:
    """Records a second through Headrace, and through Redis with pipelines as long as a batch."""
    sizes = contenders.arena.sizes
    requests = make_batches(TOPIC, batch_records)
    (payload,) = make_payloads(1, RECORD_BYTES, seed=1)

    def append_rate(server: ServerProcess) -> float:
        if by_wrk:
            window = {"warmup_s": sizes.warmup_s, "window_s": sizes.window_s}
            return wrk.request_rate(server.port, connections, requests, **window) * batch_records
        plan = Timed(warmup_s=sizes.warmup_s, window_s=sizes.window_s)
        tally = run_appends(Appends(server.port, connections, Http(), Cycle(requests), plan))
        return tally.rate_per_s * batch_records

    ours, theirs = contenders.compare(
        what,
        append_rate,
        lambda redis: redis.append_rate(
            connections, payload, pipeline=batch_records, window_s=sizes.window_s
        ),
    )
    return Row(what=what, unit="/s", headrace=ours, baseline=theirs, reach=reach)
