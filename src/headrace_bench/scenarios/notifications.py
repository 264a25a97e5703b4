"""Notifications: against appends and watchers of topics in the same run, and replay of the past."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from headrace_bench import notices
from headrace_bench.arena import Arena, rest
from headrace_bench.control import create_topic, seal_logs
from headrace_bench.errors import BenchError
from headrace_bench.jobs import (
    Appends,
    Counted,
    Cycle,
    Http,
    Listen,
    Opening,
    Paced,
    Stamped,
    Step,
    Timed,
    Watch,
)
from headrace_bench.link import RECEIVE_BYTES, SILENCE_S_MAX, connect
from headrace_bench.matching import Matching
from headrace_bench.process import ServerProcess
from headrace_bench.procfs import require_files
from headrace_bench.report import RatioAtLeast, RatioAtMost, Row, ValueAtLeast
from headrace_bench.scenarios import stages
from headrace_bench.scenarios.fanout import OPEN_FILES, WRITER_CONNECTIONS, measure_latencies
from headrace_bench.scenarios.pipeline import wait_pipeline
from headrace_bench.scenarios.stages import PAYLOAD
from headrace_bench.scenarios.workload import RECORD_BYTES, make_batches
from headrace_bench.stats import percentile
from headrace_bench.wire import make_payloads, split_at_stamp
from headrace_bench.worker import background_watchers, run_appends, run_watch

TOPICS = "topics"
TOPIC = "bench"
CONNECTIONS = 64
WATCHERS = 1000
LATENCY_RATE_PER_S = 4.0
ESTABLISHED = b"connection_established"
KEPT = 1000
"""A replay keeps one of so many notifications."""
VARIANTS = 1000
_LISTEN_S_MAX = 3600.0
_ENV = {"TOPICS_MAX_WATCH_SESSIONS": "0"}


def notify(arena: Arena) -> Iterator[Row]:
    """Notifications a second, alone and with a thousand different watchers."""
    require_files(OPEN_FILES)
    with _server(arena) as server:
        create_topic(server.url, TOPIC, "fsync")
        requests = tuple(
            notices.format_notify(place, payload)
            for place, payload in enumerate(make_payloads(notices.PLACES, RECORD_BYTES, seed=1))
        )
        yield _compare_rates(arena, server, "notify", requests, RatioAtLeast(0.5))
        openings = tuple(map(_opening, notices.all_watchers()))
        with background_watchers(Listen(server.port, openings, _LISTEN_S_MAX)):
            what = f"notify, {len(openings):,} different watchers"
            yield _compare_rates(arena, server, what, requests, RatioAtLeast(0.3))


def match(arena: Arena) -> Iterator[Row]:
    """Who wants a notification, without a server."""
    matching, window_s = Matching(), arena.sizes.window_s
    found, looped = arena.take_turns(
        "matching",
        lambda: matching.index_rate(window_s),
        lambda: matching.loop_rate(window_s),
    )
    what = f"notifications matched with {WATCHERS:,} watchers"
    yield Row(
        what=what,
        unit="/s",
        headrace=found,
        baseline=looped,
        baseline_is="a loop",
        reach=RatioAtLeast(10),
    )
    yield Row(what=f"{what}, absolute", unit="/s", headrace=found, reach=ValueAtLeast(20_000))


def deliver(arena: Arena) -> Iterator[Row]:
    """From notify to delivery: to a thousand who want everything, and to ten of a thousand."""
    require_files(OPEN_FILES)
    plan = Paced(LATENCY_RATE_PER_S, arena.sizes.warmup_s, arena.sizes.latency_window_s)
    with _server(arena) as server:
        topics = stages.headrace_events(server)
        ours, theirs = arena.take_turns(
            "delivery",
            partial(_measure_deliveries, server, plan),
            lambda: measure_latencies(topics, WATCHERS, plan),
        )
        for name, part in (("p50", 0.5), ("p99", 0.99)):
            yield Row(
                what=f"notify to delivery, {WATCHERS:,} watchers, {name}",
                unit="ms",
                headrace=tuple(percentile(values, part) for values in ours),
                baseline=tuple(percentile(values, part) for values in theirs),
                baseline_is=TOPICS,
                reach=RatioAtMost(3) if name == "p99" else None,
            )
        others = tuple(
            _opening(each) for place in range(1, notices.PLACES) for each in notices.watchers(place)
        )
        with background_watchers(Listen(server.port, others, _LISTEN_S_MAX)):
            (few,) = arena.take_turns(
                "delivery to a few", partial(_measure_deliveries, server, plan, few=True)
            )
        for name, part in (("p50", 0.5), ("p99", 0.99)):
            yield Row(
                what=f"notify to delivery, 10 of {WATCHERS:,} different watchers, {name}",
                unit="ms",
                headrace=tuple(percentile(values, part) for values in few),
            )


def replay(arena: Arena) -> Iterator[Row]:
    """The past, of which a polygon keeps one in a thousand: with companions, and without."""
    records = arena.sizes.history_records
    for indexed in (True, False):
        with _server(arena, {"HEADRACE_PIPELINE": "local"} if indexed else {}) as server:
            arena.say(f"writing {records:,} notifications")
            _write(server, records)
            seal_logs(server.url)
            if indexed:
                arena.say("indexing")
                wait_pipeline(server, _is_indexed, "the index")
            rest(server)
            times_s = arena.take_turns("replay", partial(_measure_replay, server, records))[0]
            yield Row(
                what=f"replay of {records:,} notifications, {'' if indexed else 'not '}indexed",
                unit="/s",
                headrace=tuple(records / each for each in times_s),
                reach=ValueAtLeast(200_000) if indexed else None,
            )


@contextmanager
def _server(arena: Arena, env: dict[str, str] | None = None) -> Iterator[ServerProcess]:
    with ExitStack() as stack:
        config = notices.write_config(stack.enter_context(arena.folder()))
        known = {"NOTIFICATIONS_CONFIG": str(config)}
        yield stack.enter_context(arena.server(_ENV | known | (env or {})))


def _opening(identifier: notices.Identifier) -> Opening:
    return (Step(notices.format_watch(identifier), ESTABLISHED),)


def _compare_rates(
    arena: Arena, server: ServerProcess, what: str, requests: tuple[bytes, ...], reach: RatioAtLeast
) -> Row:
    plan = Timed(arena.sizes.warmup_s, arena.sizes.window_s)

    def rate(source: tuple[bytes, ...]) -> float:
        rest(server)
        return run_appends(
            Appends(server.port, CONNECTIONS, Http(), Cycle(source), plan)
        ).rate_per_s

    appends = make_batches(TOPIC, 1)
    ours, theirs = arena.take_turns(what, partial(rate, requests), partial(rate, appends))
    return Row(
        what=f"{what}, {CONNECTIONS} connections",
        unit="/s",
        headrace=ours,
        baseline=theirs,
        baseline_is=TOPICS,
        reach=reach,
    )


def _measure_deliveries(server: ServerProcess, plan: Paced, *, few: bool = False) -> list[float]:
    wanted = list(notices.watchers(0)) if few else [{}] * WATCHERS
    source = Stamped(*split_at_stamp(notices.format_notify(0, PAYLOAD)))
    writer = Appends(server.port, WRITER_CONNECTIONS, Http(), source, plan)
    job = Watch(server.port, tuple(map(_opening, wanted)), plan.requests, plan.warmup_s)
    return run_watch(job, writer).latencies_ms


def _write(server: ServerProcess, records: int) -> None:
    payloads = make_payloads(VARIANTS, RECORD_BYTES, seed=1)
    requests = Cycle(tuple(notices.format_notify(place, payloads[place]) for place in range(KEPT)))
    run_appends(Appends(server.port, CONNECTIONS, Http(), requests, Counted(records)))


def _is_indexed(told: dict[str, object]) -> bool:
    return bool(told["segments"]) and not told["waiting_segments"]


def _measure_replay(server: ServerProcess, records: int) -> float:
    """How long a replay takes; it must have all that the polygon keeps."""
    lat, lon = notices.middle(KEPT // 2)
    request = notices.format_replay({"polygon": notices.square(lat, lon, 1.0)})
    start = time.perf_counter()
    with connect(server.port) as link:
        link.settimeout(SILENCE_S_MAX)
        link.sendall(request)
        count = _count_events(link)
    elapsed_s = time.perf_counter() - start
    if count != records // KEPT:
        raise BenchError(f"a replay had {count} notifications, not {records // KEPT}")
    return elapsed_s


def _count_events(link: socket.socket) -> int:
    """How many notifications come before the frame that ends a replay."""
    event, end = b"event: replay\n", b"event: connection-closing"
    count, held = 0, b""
    while True:
        chunk = link.recv(RECEIVE_BYTES)
        held += chunk
        count += held.count(event)
        if end in held:
            return count
        if not chunk:
            raise BenchError(f"a replay ended after {count} notifications: {held[-500:]!r}")
        # What may go on in the next chunk; nothing that was counted.
        held = held.rpartition(event)[2][-len(end) :]


SCENARIOS: dict[str, Callable[[Arena], Iterator[Row]]] = {
    "notify": notify,
    "notify-match": match,
    "notify-deliver": deliver,
    "notify-replay": replay,
}
