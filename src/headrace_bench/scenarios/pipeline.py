"""The data pipeline: how fast Spark indexes and reads, how far it lags, what it does to appends."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.formats.index_plans import IndexPlans, decode_plans
from headrace.formats.manifest import Manifest, Segment
from headrace.formats.table import read_table
from headrace.pipeline.kernels.build import build
from headrace.storage import manifests
from headrace.storage.disk import RealDisk
from headrace.storage.objects import LocalObjects
from headrace_bench import evlog
from headrace_bench.arena import Arena
from headrace_bench.control import create_topic, put_search, read_pipeline
from headrace_bench.errors import BenchError
from headrace_bench.jobs import Appends, Counted, Cycle, Http, Paced
from headrace_bench.process import ServerProcess
from headrace_bench.report import RatioAtLeast, RatioAtMost, Row, ValueAtMost
from headrace_bench.scenarios.workload import make_batches
from headrace_bench.stats import percentile
from headrace_bench.wire import format_post
from headrace_bench.worker import background_appends, run_appends

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Condition = Callable[[dict[str, Any]], bool]

TOPIC = "evlog"
BATCH_RECORDS = 1000
CONNECTIONS = 8
VARIANTS = 32
CORES = 2
SEAL_BYTES = 16 << 20
_SEALED = re.compile(r"sealed a segment .*rows=(\d+) .*seconds=([0-9.]+)")
_WAIT_S = 300.0

LAG_RECORDS_PER_S = 20_000
LAG_BATCH_RECORDS = 100
LAG_SEAL_BYTES = 8 << 20
LAG_LOOK_S = 0.5
PROBE_RATE_PER_S = 500
PROBE_CONNECTIONS = 8


def index(arena: Arena) -> list[Row]:
    """Sealing, then all companions: through Spark, and by the bare kernel on as many cores."""
    with _history(arena) as (data_dir, sealed_per_s):
        objects = LocalObjects(RealDisk(data_dir))
        through, bare = arena.take_turns(
            "index all companions", lambda: _follow(data_dir, objects), lambda: _bare(objects)
        )
    return [
        Row(what="seal, records", unit="/s", headrace=(sealed_per_s,)),
        Row(
            what="index all companions, records",
            unit="/s",
            headrace=tuple(rate for rate, _ in through),
            baseline=tuple(rate for rate, _ in bare),
            baseline_is="the bare kernel",
            reach=RatioAtLeast(0.75),
        ),
        Row(
            what="index all companions, CPU for a million records (start of Spark included)",
            unit="s",
            headrace=tuple(cpu_s for _, cpu_s in through),
            baseline=tuple(cpu_s for _, cpu_s in bare),
            baseline_is="the bare kernel",
        ),
    ]


def scan(arena: Arena) -> Iterator[Row]:
    """The data source against Spark's own reader, over the same bytes, in one session."""
    from headrace.pipeline.session import session
    from headrace.pipeline.settings import SQL, Target
    from headrace.spark import segments

    with _history(arena) as (data_dir, _), session("bench", Target(), SQL) as spark:
        rows = sum(s.rows for s in manifests.load(LocalObjects(RealDisk(data_dir))).segments)

        def source() -> float:
            options = {"path": str(data_dir), "log": TOPIC}
            return rows / _drain(spark.read.format("headrace").options(**options).load())

        def native() -> float:
            names = ["log", "seq", "ts", "key", "tag", "node", "data", "meta"]
            return rows / _drain(segments(spark, str(data_dir), TOPIC).select(*names))

        source(), native()  # the first of a session starts workers and compiles
        ours, theirs = arena.take_turns("read all columns", source, native)
        yield Row(
            what="data source, all columns, records",
            unit="/s",
            headrace=ours,
            baseline=theirs,
            baseline_is="spark.read.parquet",
            reach=RatioAtLeast(0.6),
        )
        sink = _sink_rate(arena, data_dir, spark)
        yield Row(what="streaming sink, exactly once, records", unit="/s", headrace=(sink,))


def beside(arena: Arena) -> Iterator[Row]:
    """How far indexing lags behind a steady stream, and what it does to appends at full speed."""
    env = {"HEADRACE_PIPELINE": "local", "HEADRACE_SEAL_BYTES": str(LAG_SEAL_BYTES)}
    with arena.server(env) as server, arena.server() as alone:
        for each in (server, alone):
            create_topic(each.url, TOPIC, "disk")
            create_topic(each.url, "probed", "fsync")
        put_search(server.url, TOPIC, evlog.SEARCH)
        lags_s = _lags_s(arena, server)
        yield Row(
            what=f"index lag p95 at {LAG_RECORDS_PER_S:,} records/s",
            unit="s",
            headrace=(percentile(lags_s, 0.95),),
            reach=ValueAtMost(30),
        )
        wait_pipeline(server, lambda told: not told["waiting_segments"], "the end of indexing")
        during, without = arena.take_turns(
            "appends beside indexing",
            lambda: _busy_p99(arena, server),
            lambda: _p99(arena, alone),
        )
    yield Row(
        what="append p99 beside indexing at full speed, class fsync",
        unit="ms",
        headrace=during,
        baseline=without,
        baseline_is="without",
        reach=RatioAtMost(2),
    )


# --- history ---


@contextmanager
def _history(arena: Arena) -> Iterator[tuple[Path, float]]:
    """A data directory with sealed records and nothing indexed, and how fast they were sealed."""
    records = arena.sizes.pipeline_records
    with arena.folder() as folder:
        data_dir = folder / "data"
        with ServerProcess(data_dir, env={"HEADRACE_SEAL_BYTES": str(SEAL_BYTES)}) as server:
            create_topic(server.url, TOPIC, "disk")
            put_search(server.url, TOPIC, evlog.SEARCH)
            arena.say(f"{records:,} records")
            requests = records // BATCH_RECORDS
            run_appends(
                Appends(server.port, CONNECTIONS, Http(), Cycle(_batches()), Counted(requests))
            )
            objects = LocalObjects(RealDisk(data_dir))
            _wait_published(objects, records)
            sealed = [(int(n), float(s)) for n, s in _SEALED.findall(server.output())]
            rate = sum(n for n, _ in sealed) / sum(s for _, s in sealed)
        yield data_dir, rate


def _batches(records: int = BATCH_RECORDS) -> tuple[bytes, ...]:
    source = evlog.documents(VARIANTS * records)
    return tuple(_format(list(islice(source, records))) for _ in range(VARIANTS))


def _format(documents: list[bytes]) -> bytes:
    body = b",".join(b'{"data":%b}' % document for document in documents)
    return format_post(f"/v0/topics/{TOPIC}", b'{"records":[%b]}' % body)


def _wait_published(objects: LocalObjects, records: int) -> None:
    """Until all but the last journal file is in segments, and the plans are there."""
    deadline = time.monotonic() + _WAIT_S
    before = -1
    while True:
        manifest = manifests.load(objects)
        rows = sum(segment.rows for segment in manifest.segments)
        if manifest.plans is not None and rows and rows == before:
            return
        if time.monotonic() > deadline:
            raise BenchError(f"{rows} of {records} records are sealed, and no more")
        before = rows
        time.sleep(5)


# --- indexing ---


def _follow(data_dir: Path, objects: LocalObjects) -> tuple[float, float]:
    """Records a second while there was something to do, and CPU seconds for a million."""
    manifests.update(objects, _without_builds)
    before = _children_cpu_s()
    command = [sys.executable, "-m", "headrace", "pipeline", "follow"]
    options = ["--once", "--no-merge", "--json", "--data-dir", str(data_dir)]
    done = subprocess.run([*command, *options], check=False, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"the pipeline failed: {done.stderr[-500:]}")
    told = [line for line in done.stdout.splitlines() if line.startswith("{")]
    status = msgspec.json.decode(told[-1])
    return status["records_per_s"], (_children_cpu_s() - before) / status["records"] * 1e6


def _without_builds(manifest: Manifest) -> Manifest:
    return msgspec.structs.replace(manifest, builds=())


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _bare(objects: LocalObjects) -> tuple[float, float]:
    """The kernel without Spark, one process a core."""
    manifest = manifests.load(objects)
    assert manifest.plans is not None
    plans = decode_plans(objects.get(manifest.plans.name), manifest.plans.name)
    before = _children_cpu_s()
    with ProcessPoolExecutor(CORES, mp_context=get_context("spawn")) as pool:
        list(pool.map(_nothing, range(CORES)))  # they start before the clock does
        started = perf_counter()
        works = [(objects.get(s.name), objects.get(s.index), plans, s) for s in manifest.segments]
        rows = sum(pool.map(_build, works))
        elapsed_s = perf_counter() - started
    return rows / elapsed_s, (_children_cpu_s() - before) / rows * 1e6


def _nothing(_: int) -> None:
    pa.set_cpu_count(1)


def _build(work: tuple[bytes, bytes, IndexPlans, Segment]) -> int:
    rows, lies, plans, segment = work
    descriptor = build(
        pq.ParquetFile(pa.BufferReader(rows)),
        read_table(lies),
        plans,
        lambda family, content: family,
        segment=segment.number,
        generation=1,
    )
    return descriptor.rows


# --- the data source ---


def _drain(frame: DataFrame) -> float:
    """How long it takes to read all of it."""
    started = perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return perf_counter() - started


def _sink_rate(arena: Arena, data_dir: Path, spark: SparkSession) -> float:
    """Records a second from Parquet files through a streaming query into a topic."""
    from headrace.pipeline.rows import COLUMNS

    with arena.server() as server, arena.folder() as folder:
        source = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 2)
        rows = source.parquet(str(data_dir / "objects" / "segments"))
        started = perf_counter()
        query = (
            rows.selectExpr("decode(data, 'UTF-8') as data")
            .writeStream.format("headrace")
            .option("url", server.url)
            .option("log", "copy")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        elapsed_s = perf_counter() - started
        problem = query.exception()
        if problem is not None:
            raise BenchError(f"the sink failed: {problem}")
        written = sum(progress["numInputRows"] for progress in query.recentProgress)
    return float(written / elapsed_s)


# --- beside appends ---


def _lags_s(arena: Arena, server: ServerProcess) -> list[float]:
    window_s = arena.sizes.lag_window_s
    plan = Paced(LAG_RECORDS_PER_S / LAG_BATCH_RECORDS, 0.0, window_s)
    writer = Appends(server.port, CONNECTIONS, Http(), Cycle(_batches(LAG_BATCH_RECORDS)), plan)
    lags_s: list[float] = []
    with background_appends(writer):
        until = time.monotonic() + window_s
        while time.monotonic() < until:
            arena.say(f"index lag, {until - time.monotonic():.0f} s more")
            told = read_pipeline(server.url)
            if told.get("state") == "running":
                lags_s.append(told["lag_s"])
            time.sleep(LAG_LOOK_S)
    if not lags_s:
        raise BenchError("the pipeline never ran")
    return lags_s


def _busy_p99(arena: Arena, server: ServerProcess) -> float:
    """Beside a pipeline that has all of history to index again, because a plan changed."""
    aliases = evlog.SEARCH["aliases"] | {f"again{time.monotonic_ns()}": "message"}
    put_search(server.url, TOPIC, evlog.SEARCH | {"aliases": aliases})
    wait_pipeline(server, lambda told: bool(told["waiting_segments"]), "something to index")
    p99 = _p99(arena, server)
    wait_pipeline(server, lambda told: not told["waiting_segments"], "the end of indexing")
    return p99


def _p99(arena: Arena, server: ServerProcess) -> float:
    plan = Paced(PROBE_RATE_PER_S, arena.sizes.warmup_s, arena.sizes.latency_window_s)
    requests = Cycle(make_batches("probed", 1))
    probe = Appends(server.port, PROBE_CONNECTIONS, Http(), requests, plan)
    return percentile(run_appends(probe).latencies_ms, 0.99)


def wait_pipeline(server: ServerProcess, condition: Condition, what: str) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not condition(read_pipeline(server.url)):
        if time.monotonic() > deadline:
            raise BenchError(f"waited in vain for {what}")
        time.sleep(LAG_LOOK_S)
