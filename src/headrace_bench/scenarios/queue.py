"""A queue full of jobs and fifty workers that empty it: jobs a second with durable acks."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from headrace_bench.arena import Arena
from headrace_bench.control import create_queue
from headrace_bench.errors import BenchError
from headrace_bench.jobs import Appends, Counted, Cycle, Drain, Flow, Http, Resp
from headrace_bench.peers import bullmq
from headrace_bench.process import ServerProcess
from headrace_bench.redis import INSTALL, RedisProcess
from headrace_bench.report import RatioAtLeast, Row
from headrace_bench.scenarios.rivals import OURS, Side, make_rows, map_rounds, take_turns
from headrace_bench.scenarios.workload import RECORD_BYTES, make_batches, make_pipelines
from headrace_bench.wire import make_payloads
from headrace_bench.worker import run_appends, run_flow
from headrace_bench.working import GROUP

QUEUE = "jobs"
WORKERS = 50
CLAIM_JOBS = 8
FILL_BATCH_JOBS = 100
FILL_CONNECTIONS = 4
CONSUMER_GROUP = "Redis groups"


def queue(arena: Arena) -> list[Row]:
    """Jobs of 200 bytes that are there before the first worker comes."""
    with ExitStack() as stack:
        server = stack.enter_context(arena.server())
        create_queue(server.url, QUEUE, "fsync")
        sides = {OURS: Side(server, partial(_drain_headrace, arena, server))}
        installs = {bullmq.NAME: bullmq.format_install(), CONSUMER_GROUP: INSTALL}
        if arena.with_redis:
            folder = stack.enter_context(arena.folder())
            redis = stack.enter_context(RedisProcess(folder, fsync="always"))
            redis.ask("XGROUP", "CREATE", QUEUE, GROUP, "0", "MKSTREAM")
            sides[CONSUMER_GROUP] = Side(redis, partial(_drain_group, arena, redis))
            if bullmq.is_installed():
                sides[bullmq.NAME] = Side(redis, partial(_drain_bullmq, arena, redis))
        else:
            installs[bullmq.NAME] = f"{INSTALL}; {installs[bullmq.NAME]}"
        what = f"queue, {WORKERS} workers, jobs done"
        flows = take_turns(arena, what, sides)
    rates = map_rounds(flows, lambda flow: flow.rate_per_s)
    busy = map_rounds(flows, lambda flow: flow.busy * 100)
    return [
        *make_rows(what, "/s", rates, installs, {bullmq.NAME: RatioAtLeast(3)}),
        *make_rows(f"{what}: the workers compute", "%", busy, installs),
    ]


def _drain_headrace(arena: Arena, server: ServerProcess) -> Flow:
    batches = Cycle(make_batches(QUEUE, FILL_BATCH_JOBS))
    plan = Counted(arena.sizes.jobs // FILL_BATCH_JOBS)
    run_appends(Appends(server.port, FILL_CONNECTIONS, Http(), batches, plan))
    return _require_all(arena, run_flow(Drain(server.port, Http(), QUEUE, WORKERS, CLAIM_JOBS)))


def _drain_group(arena: Arena, redis: RedisProcess) -> Flow:
    pipelines = Cycle(make_pipelines(QUEUE, FILL_BATCH_JOBS))
    plan = Counted(arena.sizes.jobs // FILL_BATCH_JOBS)
    run_appends(Appends(redis.port, FILL_CONNECTIONS, Resp(FILL_BATCH_JOBS), pipelines, plan))
    return _require_all(arena, run_flow(Drain(redis.port, Resp(), QUEUE, WORKERS, CLAIM_JOBS)))


def _drain_bullmq(arena: Arena, redis: RedisProcess) -> Flow:
    (payload,) = make_payloads(1, RECORD_BYTES, seed=1)
    return _require_all(
        arena, bullmq.drain(redis, jobs=arena.sizes.jobs, concurrency=WORKERS, payload=payload)
    )


def _require_all(arena: Arena, flow: Flow) -> Flow:
    if flow.completed != arena.sizes.jobs:
        raise BenchError(f"{flow.completed} of {arena.sizes.jobs} jobs were done")
    return flow
