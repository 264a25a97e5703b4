"""One log, many watchers: how soon they have a record, and how many records they get a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TypeVar

from headrace_bench.arena import Arena, memory_folder
from headrace_bench.jobs import Appends, Flood, Flow, Http, Paced, Stamped, Watch
from headrace_bench.peers import durable_streams, nchan
from headrace_bench.procfs import require_files
from headrace_bench.report import RatioAtLeast, RatioAtMost, Reach, Row
from headrace_bench.scenarios import stages
from headrace_bench.scenarios.rivals import OURS, Side, make_rows, map_rounds, take_turns
from headrace_bench.scenarios.stages import Stage
from headrace_bench.scenarios.streamhosts import StreamHost
from headrace_bench.stats import percentile
from headrace_bench.wire import split_at_stamp
from headrace_bench.worker import run_flow, run_watch

# How many watchers, and a rate of writes that leaves the slowest of the servers idle in between.
LATENCIES = ((1, 100.0), (100, 20.0), (1000, 4.0))
WRITER_CONNECTIONS = 4
FLOOD_WATCHERS = 1000
FLOOD_AHEAD = 64
# A thousand watchers and what else a process has open, with room.
OPEN_FILES = 4096
S = TypeVar("S", Stage, StreamHost)

PERCENTILES = (("p50", 0.5), ("p99", 0.99))


def fanout(arena: Arena) -> Iterator[Row]:
    """Server-sent events of a durable topic: what a watcher sees is on disk."""
    require_files(OPEN_FILES)
    with ExitStack() as stack:
        server = stack.enter_context(arena.server(stages.SERVER_ENV))
        sides = {OURS: stages.headrace_events(server)}
        if arena.with_peers and nchan.is_installed():
            nginx = stack.enter_context(nchan.NchanProcess(stack.enter_context(arena.folder())))
            sides[nchan.NAME] = stages.nchan_events(nginx)
        if arena.with_peers and durable_streams.is_installed():
            folder = stack.enter_context(memory_folder())
            node = stack.enter_context(durable_streams.DurableStreamsProcess(folder))
            sides[durable_streams.NAME] = stages.stream_events(
                StreamHost(node, durable_streams.PREFIX)
            )
        installs = {
            nchan.NAME: nchan.INSTALL,
            durable_streams.NAME: durable_streams.format_install(),
        }
        reaches: dict[str, Reach] = {
            nchan.NAME: RatioAtMost(5),
            durable_streams.NAME: RatioAtMost(1),
        }
        yield from latency_rows(
            arena, "SSE", sides, installs, reaches, LATENCIES, measure_latencies
        )
        held = {durable_streams.NAME: RatioAtLeast(1.5)}
        yield from _flood_rows(arena, "SSE", sides, installs, held)


def websocket(arena: Arena) -> Iterator[Row]:
    """The same over WebSockets, which the Node server does not speak."""
    require_files(OPEN_FILES)
    with ExitStack() as stack:
        server = stack.enter_context(arena.server())
        sides = {OURS: stages.headrace_messages(server)}
        if arena.with_peers and nchan.is_installed():
            nginx = stack.enter_context(nchan.NchanProcess(stack.enter_context(arena.folder())))
            sides[nchan.NAME] = stages.nchan_messages(nginx)
        installs = {nchan.NAME: nchan.INSTALL}
        yield from latency_rows(
            arena, "WebSocket", sides, installs, {}, LATENCIES, measure_latencies
        )
        yield from _flood_rows(arena, "WebSocket", sides, installs, {})


def measure_latencies(stage: Stage, watchers: int, plan: Paced) -> list[float]:
    scene = stage.set_scene(watchers)
    source = Stamped(*split_at_stamp(scene.request))
    writer = Appends(stage.daemon.port, WRITER_CONNECTIONS, Http(), source, plan)
    job = Watch(stage.daemon.port, scene.openings, plan.requests, plan.warmup_s)
    return run_watch(job, writer).latencies_ms


def latency_rows(
    arena: Arena,
    kind: str,
    sides: Mapping[str, S],
    installs: Mapping[str, str],
    reaches: Mapping[str, Reach],
    loads: Sequence[tuple[int, float]],
    measure: Callable[[S, int, Paced], list[float]],
) -> Iterator[Row]:
    """For so many watchers at such a rate each; the reaches are for the p99 of a thousand."""
    for watchers, rate_per_s in loads:
        plan = Paced(rate_per_s, arena.sizes.warmup_s, arena.sizes.latency_window_s)
        what = f"{kind} from write to delivery, {watchers:,} watcher{'s' * (watchers > 1)}"
        rounds = take_turns(
            arena,
            what,
            {
                name: Side(stage.daemon, partial(measure, stage, watchers, plan))
                for name, stage in sides.items()
            },
        )
        for name, part in PERCENTILES:
            held = reaches if (watchers, name) == (FLOOD_WATCHERS, "p99") else {}
            parts = map_rounds(rounds, partial(percentile, part=part))
            yield from make_rows(f"{what}, {name}", "ms", parts, installs, held)


def _flood_rows(
    arena: Arena,
    kind: str,
    sides: Mapping[str, Stage],
    installs: Mapping[str, str],
    reaches: Mapping[str, Reach],
) -> list[Row]:
    what = f"{kind} deliveries, {FLOOD_WATCHERS:,} watchers"
    flows = take_turns(
        arena,
        what,
        {
            name: Side(stage.daemon, partial(_measure_flow, arena, stage))
            for name, stage in sides.items()
        },
    )
    rates = map_rounds(flows, lambda flow: flow.rate_per_s)
    # At 100 % the load generator is the limit, not the server.
    busy = map_rounds(flows, lambda flow: flow.busy * 100)
    return [
        *make_rows(what, "/s", rates, installs, reaches),
        *make_rows(f"{what}: the load generator computes", "%", busy, installs),
    ]


def _measure_flow(arena: Arena, stage: Stage) -> Flow:
    scene = stage.set_scene(FLOOD_WATCHERS)
    return run_flow(
        Flood(
            port=stage.daemon.port,
            openings=scene.openings,
            request=scene.request,
            ahead=FLOOD_AHEAD,
            window_s=arena.sizes.window_s,
        )
    )
