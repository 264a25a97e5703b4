"""A million streams: made, listed, restarted, and written to while a snapshot holds them all."""

from __future__ import annotations

import time
from time import perf_counter

from headrace.bench.arena import Arena, rest
from headrace.bench.control import create_stream, list_streams, read_metric
from headrace.bench.errors import BenchError
from headrace.bench.jobs import Appends, Counted, Cycle, Http, Numbered, Paced
from headrace.bench.process import ServerProcess
from headrace.bench.procfs import resident_mb
from headrace.bench.report import RatioAtMost, Row, ValueAtMost
from headrace.bench.scenarios.streamhosts import PREFIX, TEXT
from headrace.bench.scenarios.workload import RECORD_BYTES
from headrace.bench.stats import percentile
from headrace.bench.wire import format_post, format_put, make_payloads
from headrace.bench.worker import run_appends

CREATE_CONNECTIONS = 64
PAGE_STREAMS = 1000
PAGES_SHOWN = 10
STREAM_BYTES_MAX = 1536
READY_S_MAX = 30

# So little is written before a snapshot is due; the first one after a start always is.
SEAL_BYTES = 1 << 20
TRIGGER_BYTES = SEAL_BYTES // 4
TRIGGER_REQUESTS = 5
SNAPSHOT_S_MAX = 120.0
PROBE = f"{PREFIX}probe"
PROBE_RATE_PER_S = 500
PROBE_CONNECTIONS = 8
PROBE_ROUNDS = 3
PROBE_S_MIN = 0.5


def many_streams(arena: Arena) -> list[Row]:
    """Streams with nothing in them, over HTTP; then what there being so many of them costs."""
    with arena.server() as server:
        return [
            *_create_and_list(arena, server),
            *_restart_rows(arena, server),
            *_snapshot_rows(arena, server),
        ]


def _create_and_list(arena: Arena, server: ServerProcess) -> list[Row]:
    streams = arena.sizes.streams
    what = f"{streams:,} streams"
    arena.say(f"creating {what}")
    before_mb = resident_mb(server.pid)
    created = run_appends(
        Appends(server.port, CREATE_CONNECTIONS, Http(), numbered_streams(), Counted(streams))
    )
    rest(server)
    held_bytes = (resident_mb(server.pid) - before_mb) * 2**20 / streams
    arena.say(f"listing {what}")
    listing = list_streams(server.port, PAGE_STREAMS)
    if listing.streams != streams:
        raise BenchError(f"{listing.streams} of {streams} streams were listed")
    pages = listing.pages_ms
    middle = max(0, (len(pages) - PAGES_SHOWN) // 2)
    page = f"{what}: a page of {PAGE_STREAMS} of the listing"
    return [
        Row(f"{what}: created", "/s", (created.rate_per_s,)),
        Row(
            f"{what}: resident memory of each",
            "bytes",
            (held_bytes,),
            reach=ValueAtMost(STREAM_BYTES_MAX),
        ),
        Row(f"{page}, at the start", "ms", tuple(pages[:PAGES_SHOWN])),
        Row(f"{page}, in the middle", "ms", tuple(pages[middle : middle + PAGES_SHOWN])),
        Row(f"{page}, at the end", "ms", tuple(pages[-PAGES_SHOWN:])),
    ]


def _restart_rows(arena: Arena, server: ServerProcess) -> list[Row]:
    streams = arena.sizes.streams
    what = f"{streams:,} streams: ready after"
    reach = ValueAtMost(READY_S_MAX)
    create_stream(server.port, PROBE, TEXT)
    arena.say("restarting after SIGKILL")
    server.kill()
    killed_s = _start_s(server)
    if list_streams(server.port, PAGE_STREAMS).streams != streams + 1:
        raise BenchError("streams were lost")
    arena.say("restarting after SIGTERM")
    server.stop()
    stopped_s = _start_s(server)
    return [
        Row(f"{what} SIGKILL", "s", (killed_s,), reach=reach),
        Row(f"{what} SIGTERM", "s", (stopped_s,), reach=reach),
    ]


def _snapshot_rows(arena: Arena, server: ServerProcess) -> list[Row]:
    """Appends beside a snapshot against appends beside nothing, in turns."""
    server.stop()
    # Whatever was not sealed before is sealed now, and then nothing is due but what we cause.
    server.change_env({"HEADRACE_SEAL_BYTES": str(SEAL_BYTES)})
    took_s = [_first_snapshot(arena, server)]
    during, without, stalls_ms = [], [], []
    for number in range(PROBE_ROUNDS):
        arena.say(f"appends beside a snapshot, round {number + 1} of {PROBE_ROUNDS}")
        server.stop()
        server.start()
        rest(server)
        window_s = max(PROBE_S_MIN, min(took_s))
        without.append(_probe_p99(arena, server, window_s))
        known = _snapshots(server)
        start = perf_counter()
        _trigger(server)
        during.append(_probe_p99(arena, server, window_s))
        took_s.append(_wait_snapshot(server, known, start))
        stalls_ms.append(read_metric(server.url, "headrace_loop_stall_max_ms"))
    what = f"snapshot of {arena.sizes.streams:,} streams"
    return [
        Row(f"{what}: takes", "s", tuple(took_s)),
        Row(
            f"append p99 during a {what}",
            "ms",
            tuple(during),
            tuple(without),
            baseline_is="idle",
            reach=RatioAtMost(3),
        ),
        Row(f"{what}: longest stall of the event loop", "ms", tuple(stalls_ms)),
    ]


def _first_snapshot(arena: Arena, server: ServerProcess) -> float:
    """How long a snapshot takes while nobody writes."""
    server.start()
    rest(server)
    arena.say("sealing, then one snapshot")
    known = _snapshots(server)
    start = perf_counter()
    _trigger(server)
    return _wait_snapshot(server, known, start)


def _trigger(server: ServerProcess) -> None:
    """Write as much as makes upkeep begin."""
    (text,) = make_payloads(1, TRIGGER_BYTES, seed=1)
    requests = Cycle((format_post(PROBE, text.encode(), TEXT),))
    run_appends(Appends(server.port, 1, Http(), requests, Counted(TRIGGER_REQUESTS)))


def _wait_snapshot(server: ServerProcess, known: set[str], start: float) -> float:
    deadline = start + SNAPSHOT_S_MAX
    while not _snapshots(server) - known:
        if perf_counter() > deadline:
            raise BenchError("no snapshot came")
        time.sleep(0.01)
    return perf_counter() - start


def _probe_p99(arena: Arena, server: ServerProcess, window_s: float) -> float:
    (text,) = make_payloads(1, RECORD_BYTES, seed=1)
    job = Appends(
        server.port,
        PROBE_CONNECTIONS,
        Http(),
        Cycle((format_post(PROBE, text.encode(), TEXT),)),
        Paced(PROBE_RATE_PER_S, 0.0, window_s),
    )
    return percentile(run_appends(job).latencies_ms, 0.99)


def numbered_streams() -> Numbered:
    """Requests that each create a stream."""
    head, tail = format_put(f"{PREFIX}s#", TEXT).split(b"#", 1)
    return Numbered(head, tail)


def _snapshots(server: ServerProcess) -> set[str]:
    return {path.name for path in (server.data_dir / "snapshots").iterdir() if path.is_file()}


def _start_s(server: ServerProcess) -> float:
    start = perf_counter()
    server.start()
    return perf_counter() - start
