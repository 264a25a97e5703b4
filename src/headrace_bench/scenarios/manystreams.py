"""A million streams: made, listed, restarted, and written to while a snapshot holds them all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

from headrace_bench.arena import Arena, rest
from headrace_bench.control import create_stream, list_streams, read_metric
from headrace_bench.errors import BenchError
from headrace_bench.jobs import Appends, Counted, Cycle, Http, Numbered, Paced
from headrace_bench.process import ServerProcess
from headrace_bench.procfs import resident_mb
from headrace_bench.report import RatioAtMost, Row, ValueAtMost
from headrace_bench.scenarios.streamhosts import PREFIX, TEXT
from headrace_bench.scenarios.workload import RECORD_BYTES
from headrace_bench.stats import percentile
from headrace_bench.wire import format_post, format_put, make_payloads
from headrace_bench.worker import run_appends

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
PROBE_ROUNDS = 2
PROBE_S_MIN = 0.5


def many_streams(arena: Arena) -> Iterator[Row]:
    """Streams with nothing in them, over HTTP; then what there being so many of them costs."""
    with arena.server() as server:
        yield from _create_and_list(arena, server)
        yield from _restart_rows(arena, server)
        yield from _snapshot_rows(arena, server)


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
    arena.say("sealing what is left")
    server.stop()
    server.change_env({"HEADRACE_SEAL_BYTES": str(SEAL_BYTES)})
    server.start()
    rest(server)
    arena.say("one snapshot while nobody writes")
    took_s = [_restart_and_snapshot(server, _wait)]
    window_s = max(PROBE_S_MIN, took_s[0])
    during: list[float] = []
    without: list[float] = []
    stalls_ms: list[float] = []

    def probe() -> None:
        during.append(_probe_p99(server, window_s))

    for number in range(PROBE_ROUNDS):
        arena.say(f"appends beside a snapshot, round {number + 1} of {PROBE_ROUNDS}")
        took_s.append(_restart_and_snapshot(server, probe))
        stalls_ms.append(read_metric(server.url, "headrace_loop_stall_max_ms"))
        without.append(_probe_p99(server, window_s))
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


def _restart_and_snapshot(server: ServerProcess, meanwhile: Callable[[], None]) -> float:
    """Cause a snapshot, the first of a start; returns how long it took."""
    server.stop()
    server.start()
    rest(server)
    known = _snapshots(server)
    start = perf_counter()
    _trigger(server)
    meanwhile()
    deadline = perf_counter() + SNAPSHOT_S_MAX
    while not (new := _snapshots(server) - known):
        if perf_counter() > deadline:
            raise BenchError("no snapshot came")
        time.sleep(0.01)
    # By its own time: the probe may have ended later.
    ended_s = time.time() - max(path.stat().st_mtime for path in new)
    took_s = perf_counter() - start - ended_s
    # What was written is sealed now; else the next start would begin with a snapshot of its own.
    rest(server)
    return took_s


def _wait() -> None:
    """Nothing happens beside the snapshot."""


def _trigger(server: ServerProcess) -> None:
    """Write as much as makes upkeep begin."""
    (text,) = make_payloads(1, TRIGGER_BYTES, seed=1)
    requests = Cycle((format_post(PROBE, text.encode(), TEXT),))
    run_appends(Appends(server.port, 1, Http(), requests, Counted(TRIGGER_REQUESTS)))


def _probe_p99(server: ServerProcess, window_s: float) -> float:
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


def _snapshots(server: ServerProcess) -> set[Path]:
    return set((server.data_dir / "snapshots").glob("*.snap"))


def _start_s(server: ServerProcess) -> float:
    start = perf_counter()
    server.start()
    return perf_counter() - start
