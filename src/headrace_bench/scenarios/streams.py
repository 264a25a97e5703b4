"""Streams against the other servers of their protocol: appends, catch-up reads, live readers.

A reach holds against every peer in every configuration, and so against the best of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from headrace_bench.arena import Arena, memory_folder
from headrace_bench.errors import BenchError
from headrace_bench.jobs import (
    Appends,
    CatchUp,
    Counted,
    Cycle,
    Http,
    Offsets,
    Paced,
    Poll,
    Stamped,
    Timed,
)
from headrace_bench.procfs import require_files
from headrace_bench.report import RatioAtLeast, RatioAtMost, Reach, Row
from headrace_bench.scenarios.fanout import (
    OPEN_FILES,
    WRITER_CONNECTIONS,
    latency_rows,
    measure_latencies,
)
from headrace_bench.scenarios.rivals import Side, make_rows, take_turns
from headrace_bench.scenarios.stages import PAYLOAD, stream_events
from headrace_bench.scenarios.streamhosts import (
    JSON,
    TEXT,
    Hosts,
    StreamHost,
    stream_hosts,
    stream_installs,
)
from headrace_bench.scenarios.workload import RECORD_BYTES, VARIANTS
from headrace_bench.wire import STREAM_START, format_post, make_payloads, split_at_stamp
from headrace_bench.worker import run_appends, run_catch_up, run_watch

BATCH_RECORDS = 100
BATCH_CONNECTIONS = 16
FILL_BATCH_RECORDS = 1000
FILL_CONNECTIONS = 4
# Of the records of the scenario `history`: 40 MB.
HISTORY_SHARE = 5
# How many live readers, and a rate of writes that leaves the slowest server idle in between.
EVENTS = ((200, 10.0), (1000, 4.0))
POLLS = ((200, 5.0),)


# --- appends --------------------------------------------------------------------------------------


def stream_appends(arena: Arena) -> Iterator[Row]:
    """Appends that are acknowledged when they are synced, by every server."""
    twice, thrice = RatioAtLeast(2), RatioAtLeast(3)
    with stream_hosts(arena) as hosts:
        compare = partial(_compare_appends, arena, hosts)
        yield from compare("1 connection", connections=1)
        yield from compare("64 connections, 1 stream", connections=64, reach=twice)
        yield from compare("64 connections, 64 streams", connections=64, streams=64)
        yield from compare(
            f"{BATCH_CONNECTIONS} connections, {BATCH_RECORDS} JSON records a request, records",
            connections=BATCH_CONNECTIONS,
            batch_records=BATCH_RECORDS,
            reach=thrice,
        )


def _compare_appends(
    arena: Arena,
    hosts: Hosts,
    load: str,
    *,
    connections: int,
    streams: int = 1,
    batch_records: int = 0,
    reach: Reach | None = None,
) -> list[Row]:
    what = f"durable stream appends, {load}"
    plan = Timed(warmup_s=arena.sizes.warmup_s, window_s=arena.sizes.window_s)

    # The same streams in every round: the Node server refuses appends when it knows more than a
    # hundred of them, as it then closes files between writing and syncing them.
    requests = {
        name: Cycle(make_appends(host, streams, batch_records)) for name, host in hosts.items()
    }

    def append_rate(name: str) -> float:
        port = hosts[name].daemon.port
        tally = run_appends(Appends(port, connections, Http(), requests[name], plan))
        return tally.rate_per_s * max(batch_records, 1)

    rates = _take_turns(arena, what, hosts, append_rate)
    installs = stream_installs()
    return make_rows(what, "/s", rates, installs, dict.fromkeys(installs, reach) if reach else {})


def make_appends(host: StreamHost, streams: int, batch_records: int) -> tuple[bytes, ...]:
    """Requests that append to new streams in turn: a text each, or batches of JSON records."""
    content_type = JSON if batch_records else TEXT
    paths = [host.create(content_type) for _ in range(streams)]
    return tuple(
        format_post(paths[seed % streams], make_body(batch_records, seed), content_type)
        for seed in range(max(VARIANTS, streams))
    )


def make_body(batch_records: int, seed: int) -> bytes:
    """A text of the size of a record; or a JSON array of so many records."""
    payloads = make_payloads(max(batch_records, 1), RECORD_BYTES, seed=seed)
    if not batch_records:
        return payloads[0].encode()
    return json.dumps(payloads, separators=(",", ":")).encode()


# --- catch-up reads -------------------------------------------------------------------------------


def stream_reads(arena: Arena) -> Iterator[Row]:
    """A reader that takes a whole stream, in pages as large as each server makes them."""
    records = arena.sizes.history_records // HISTORY_SHARE
    with stream_hosts(arena) as hosts:
        reach = RatioAtLeast(3)
        yield from _compare_reads(arena, hosts, "text", TEXT, records, "", reach)
        yield from _compare_reads(arena, hosts, "JSON, raw", JSON, records, "format=raw&", reach)
        yield from _compare_reads(arena, hosts, "JSON, as an array", JSON, records, "", None)


def _compare_reads(
    arena: Arena,
    hosts: Hosts,
    kind: str,
    content_type: str,
    records: int,
    query: str,
    reach: Reach | None,
) -> list[Row]:
    size_bytes = records * RECORD_BYTES
    what = f"catch-up read of {size_bytes / 1e6:.0f} MB of {kind}"
    arena.say(f"{what}: writing")
    paths = {name: _fill(host, content_type, records) for name, host in hosts.items()}

    def read_rate(name: str) -> float:
        log = f"{paths[name]}?{query}offset="
        reading = run_catch_up(CatchUp(hosts[name].daemon.port, Offsets(), log))
        # JSON has quotes, and whatever a server puts between messages.
        if not size_bytes <= reading.size_bytes <= size_bytes * 1.1:
            raise BenchError(f"{name} gave {reading.size_bytes} of {size_bytes} bytes")
        return size_bytes / 1e6 / reading.elapsed_s

    rates = _take_turns(arena, what, hosts, read_rate)
    installs = stream_installs()
    reaches = dict.fromkeys(installs, reach) if reach else {}
    return make_rows(what, "MB/s", rates, installs, reaches)


def _fill(host: StreamHost, content_type: str, records: int) -> str:
    """A stream with so many records, or with as many bytes of text."""
    path = host.create(content_type)
    bodies = (make_body(FILL_BATCH_RECORDS, seed) for seed in range(VARIANTS))
    if content_type == TEXT:
        bodies = (
            "".join(make_payloads(FILL_BATCH_RECORDS, RECORD_BYTES, seed=seed)).encode()
            for seed in range(VARIANTS)
        )
    requests = Cycle(tuple(format_post(path, body, content_type) for body in bodies))
    plan = Counted(records // FILL_BATCH_RECORDS)
    run_appends(Appends(host.daemon.port, FILL_CONNECTIONS, Http(), requests, plan))
    return path


# --- live readers ---------------------------------------------------------------------------------


def stream_fanout(arena: Arena) -> Iterator[Row]:
    """Readers of one stream who wait for more, with events and with long-polls."""
    require_files(OPEN_FILES)
    installs = stream_installs()
    reaches: Mapping[str, Reach] = dict.fromkeys(installs, RatioAtMost(1))
    # The Node server is far slower with its files on a disk: see docs/PERFORMANCE.md.
    with stream_hosts(arena, node_folder=memory_folder) as hosts:
        stages = {name: stream_events(host) for name, host in hosts.items()}
        yield from latency_rows(
            arena, "stream SSE", stages, installs, reaches, EVENTS, measure_latencies
        )
        yield from latency_rows(
            arena, "stream long-poll", hosts, installs, {}, POLLS, _measure_polls
        )


def _measure_polls(host: StreamHost, readers: int, plan: Paced) -> list[float]:
    path, port = host.create(TEXT), host.daemon.port
    source = Stamped(*split_at_stamp(format_post(path, PAYLOAD.encode(), TEXT)))
    writer = Appends(port, WRITER_CONNECTIONS, Http(), source, plan)
    path = f"{path}?live=long-poll&offset="
    job = Poll(port, Offsets(), path, STREAM_START, readers, plan.requests, plan.warmup_s)
    return run_watch(job, writer).latencies_ms


def _take_turns(
    arena: Arena, what: str, hosts: Hosts, measure: Callable[[str], float]
) -> Mapping[str, tuple[float, ...]]:
    sides = {name: Side(host.daemon, partial(measure, name)) for name, host in hosts.items()}
    return take_turns(arena, what, sides)
