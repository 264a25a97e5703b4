"""Scenarios of size, run on request: very many topics, and a log far larger than memory."""

from __future__ import annotations

from time import perf_counter

from headrace_bench.arena import Arena
from headrace_bench.control import create_topic, read_head_seq
from headrace_bench.errors import BenchError
from headrace_bench.jobs import Appends, CatchUp, Counted, Cycle, Http, Numbered
from headrace_bench.process import ServerProcess
from headrace_bench.procfs import peak_resident_mb, resident_mb
from headrace_bench.report import Row, ValueAtMost
from headrace_bench.scenarios.workload import RECORD_BYTES, make_batches
from headrace_bench.wire import format_append, make_payloads
from headrace_bench.worker import run_appends, run_catch_up

TOPIC_RECORDS = 10
TOPIC_CONNECTIONS = 16
FILES_MAX = 1000

LARGE_BATCH_RECORDS = 500
LARGE_RECORD_BYTES = 1000
LARGE_CONNECTIONS = 4
LARGE_VARIANTS = 16
LARGE_PEAK_MB_MAX = 1024
PAGE_RECORDS = 1000


def many_topics(arena: Arena) -> list[Row]:
    """Topics of ten records each: made, killed, recovered, counted in files."""
    topics = arena.sizes.topics
    what = f"{topics:,} topics of {TOPIC_RECORDS} records"
    arena.say(f"writing {what}")
    # The default limit is just as many, and the server may keep topics of its own.
    with arena.server({"TOPICS_MAX_TOPICS": "0"}) as server:
        tally = run_appends(
            Appends(server.port, TOPIC_CONNECTIONS, Http(), _numbered_topics(), Counted(topics))
        )
        memory_mb = resident_mb(server.pid)
        files = sum(1 for path in server.data_dir.rglob("*") if path.is_file())
        recovery_s = _restart_s(arena, server)
        last = f"t{topics - 1}"
        if (head_seq := read_head_seq(server.url, last)) != TOPIC_RECORDS:
            raise BenchError(f"topic {last} came back with {head_seq} records")
        return [
            Row(f"{what}: created", "/s", (tally.rate_per_s,)),
            Row(f"{what}: files", "files", (float(files),), reach=ValueAtMost(FILES_MAX)),
            Row(f"{what}: resident memory", "MB", (memory_mb,)),
            Row(f"{what}: ready after SIGKILL", "s", (recovery_s,)),
            Row(f"{what}: resident memory then", "MB", (resident_mb(server.pid),)),
        ]


def large_log(arena: Arena, size_gb: float) -> list[Row]:
    """A log that does not fit into the memory it may use: written, recovered and read whole."""
    batches = round(size_gb * 1e9 / (LARGE_BATCH_RECORDS * LARGE_RECORD_BYTES))
    records = batches * LARGE_BATCH_RECORDS
    what = f"log of {size_gb:g} GB"
    reach = ValueAtMost(LARGE_PEAK_MB_MAX)
    with arena.server() as server:
        create_topic(server.url, "large", "disk")
        arena.say(f"writing a {what}")
        tally = run_appends(_large_writes(server, batches))
        written_mb = peak_resident_mb(server.pid)
        recovery_s = _restart_s(arena, server)
        arena.say(f"reading a {what}")
        reading = run_catch_up(CatchUp(server.port, Http(), "large", PAGE_RECORDS))
        if reading.cursor != str(records):
            raise BenchError(f"the reader ended at {reading.cursor}, not {records}")
        read_mb = peak_resident_mb(server.pid)
    return [
        Row(f"{what}: records written", "/s", (tally.rate_per_s * LARGE_BATCH_RECORDS,)),
        Row(f"{what}: peak memory while writing", "MB", (written_mb,), reach=reach),
        Row(f"{what}: ready after SIGKILL", "s", (recovery_s,)),
        Row(f"{what}: records read from the start", "/s", (records / reading.elapsed_s,)),
        Row(f"{what}: peak memory of restart and reading", "MB", (read_mb,), reach=reach),
    ]


def _numbered_topics() -> Numbered:
    """Appends that each make a topic of their own."""
    request = format_append("t#", make_payloads(TOPIC_RECORDS, RECORD_BYTES, seed=1))
    head, tail = request.split(b"#", 1)
    return Numbered(head, tail)


def _large_writes(server: ServerProcess, batches: int) -> Appends:
    requests = make_batches(
        "large",
        LARGE_BATCH_RECORDS,
        record_bytes=LARGE_RECORD_BYTES,
        variants=LARGE_VARIANTS,
    )
    return Appends(server.port, LARGE_CONNECTIONS, Http(), Cycle(requests), Counted(batches))


def _restart_s(arena: Arena, server: ServerProcess) -> float:
    arena.say("restarting after SIGKILL")
    server.kill()
    start = perf_counter()
    server.start()
    return perf_counter() - start
