"""A log of a million records: reading it all, starting again with it, and the memory it takes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from headrace_bench.arena import Arena, Contenders
from headrace_bench.control import create_topic, read_head_seq
from headrace_bench.errors import BenchError
from headrace_bench.jobs import Appends, CatchUp, Counted, Cycle, Http, Resp
from headrace_bench.process import ServerProcess
from headrace_bench.procfs import resident_mb
from headrace_bench.redis import RedisProcess
from headrace_bench.report import RatioAtLeast, RatioAtMost, Row
from headrace_bench.scenarios.workload import make_batches, make_pipelines
from headrace_bench.worker import run_appends, run_catch_up

TOPIC = "history"
BATCH_RECORDS = 100
CONNECTIONS = 16
PAGE_RECORDS = 1000


def history(arena: Arena) -> Iterator[Row]:
    # Loaded from the file as it was written, then from its compact form: each when we say so.
    with arena.contenders("always", rewrites=False) as contenders:
        records = f"{arena.sizes.history_records:,} records"
        arena.say(f"loading {records}")
        _load(contenders)
        yield _memory_row(contenders, f"resident memory after loading {records}")
        yield _catch_up_row(contenders, f"catch-up read of {records}", RatioAtLeast(0.5))
        yield _memory_row(contenders, "resident memory after catching up")
        yield from _recovery_rows(contenders, f"ready after SIGKILL with {records}")
        yield _catch_up_row(contenders, f"catch-up read of {records} after a restart", None)


def _load(contenders: Contenders) -> None:
    plan = Counted(contenders.arena.sizes.history_records // BATCH_RECORDS)
    server, redis = contenders.server, contenders.redis
    create_topic(server.url, TOPIC, "fsync")
    batches = Cycle(make_batches(TOPIC, BATCH_RECORDS))
    run_appends(Appends(server.port, CONNECTIONS, Http(), batches, plan))
    if redis is not None:
        pipelines = Cycle(make_pipelines(TOPIC, BATCH_RECORDS))
        run_appends(Appends(redis.port, CONNECTIONS, Resp(BATCH_RECORDS), pipelines, plan))


def _memory_row(contenders: Contenders, what: str) -> Row:
    redis = contenders.redis
    return Row(
        what=what,
        unit="MB",
        headrace=(resident_mb(contenders.server.pid),),
        baseline=() if redis is None else (resident_mb(redis.pid),),
    )


def _catch_up_row(contenders: Contenders, what: str, reach: RatioAtLeast | None) -> Row:
    records = contenders.arena.sizes.history_records

    def server_rate(server: ServerProcess) -> float:
        reading = run_catch_up(CatchUp(server.port, Http(), TOPIC, PAGE_RECORDS))
        if reading.cursor != str(records):
            raise BenchError(f"the reader of Headrace ended at {reading.cursor}, not {records}")
        return records / reading.elapsed_s

    def redis_rate(redis: RedisProcess) -> float:
        reading = run_catch_up(CatchUp(redis.port, Resp(), TOPIC, PAGE_RECORDS))
        if reading.pages * PAGE_RECORDS != records:
            raise BenchError(f"the reader of Redis got {reading.pages} pages")
        return records / reading.elapsed_s

    ours, theirs = contenders.compare(what, server_rate, redis_rate)
    return Row(what=what, unit="/s", headrace=ours, baseline=theirs, reach=reach)


def _recovery_rows(contenders: Contenders, what: str) -> list[Row]:
    """Against the append-only file as it was written, and against its compact form."""
    server, redis = contenders.server, contenders.redis
    server.kill()
    saved = server.data_dir.with_name("saved")
    server.data_dir.rename(saved)
    ours, as_written = contenders.compare(
        what, lambda server: _recovery_s(contenders, server, saved), _reload_s
    )
    rows = [Row(what, "s", ours, as_written, reach=RatioAtMost(1.5))]
    if redis is not None:
        redis.rewrite()
        (compact,) = contenders.arena.take_turns("Redis compacted", lambda: _reload_s(redis))
        rows.append(Row(f"{what}, Redis compacted", "s", ours, compact))
    shutil.rmtree(saved)
    return rows


def _recovery_s(contenders: Contenders, server: ServerProcess, saved: Path) -> float:
    """From process start to ready, on a copy: recovery may tidy up and spare the next round."""
    server.kill()
    shutil.rmtree(server.data_dir, ignore_errors=True)
    shutil.copytree(saved, server.data_dir)
    os.sync()
    start = perf_counter()
    server.start()
    elapsed_s = perf_counter() - start
    records = contenders.arena.sizes.history_records
    if (head_seq := read_head_seq(server.url, TOPIC)) != records:
        raise BenchError(f"{head_seq} records came back after SIGKILL, not {records}")
    return elapsed_s


def _reload_s(redis: RedisProcess) -> float:
    """From process start to the first answer, which Redis gives when everything is loaded."""
    records = int(redis.ask("XLEN", TOPIC))
    redis.kill()
    start = perf_counter()
    redis.start()
    elapsed_s = perf_counter() - start
    if int(redis.ask("XLEN", TOPIC)) != records:
        raise BenchError("Redis did not bring back what it acknowledged")
    return elapsed_s
