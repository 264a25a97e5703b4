"""Flags: a change of a manifest on its way to a thousand clients, and what uploads cost others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from headrace_bench import manifests
from headrace_bench.arena import Arena
from headrace_bench.changing import EVENT
from headrace_bench.control import create_namespace, create_topic, read_metric
from headrace_bench.jobs import Appends, Changes, Counted, Cycle, Http, Opening, Paced, Step
from headrace_bench.process import ServerProcess
from headrace_bench.procfs import require_files
from headrace_bench.report import RatioAtMost, Row, ValueAtMost
from headrace_bench.scenarios import stages
from headrace_bench.scenarios.fanout import OPEN_FILES, PERCENTILES, measure_latencies
from headrace_bench.scenarios.workload import make_batches
from headrace_bench.stats import percentile
from headrace_bench.worker import background_appends, run_appends, run_changes

TOPICS = "topics"
TOPIC = "probed"
SUBSCRIBERS = 1000
CHANGES, WARMUP_CHANGES = 12, 2
CLOSURES = "flags_closures_total"
TOPICS_RATE_PER_S = 4.0
PROBE_RATE_PER_S, PROBE_CONNECTIONS = 500, 8
UPLOADS_PER_S = 4.0
EDITIONS = 8
_ENV = stages.SERVER_ENV


def deliver(arena: Arena) -> Iterator[Row]:
    """From the reply to an upload until a thousand subscribers have the delta."""
    require_files(OPEN_FILES)
    plan = Paced(TOPICS_RATE_PER_S, arena.sizes.warmup_s, arena.sizes.latency_window_s)
    with _server(arena) as server:
        topics = stages.headrace_events(server)
        closures: list[float] = []
        ours, theirs = arena.take_turns(
            "changes",
            partial(_measure_changes, server, closures),
            lambda: measure_latencies(topics, SUBSCRIBERS, plan),
        )
        what = (
            f"change of a manifest of {manifests.FLAGS:,} flags to delivery, {SUBSCRIBERS:,}"
            f" subscribers of {manifests.SUBSCRIPTIONS} kinds"
        )
        for name, part in PERCENTILES:
            yield Row(
                what=f"{what}, {name}",
                unit="ms",
                headrace=tuple(percentile(values, part) for values in ours),
                baseline=tuple(percentile(values, part) for values in theirs),
                baseline_is=TOPICS,
                reach=RatioAtMost(3) if name == "p99" else None,
            )
        yield Row(
            what="closures worked out for a version",
            unit="closures",
            headrace=tuple(closures),
            reach=ValueAtMost(manifests.SUBSCRIPTIONS),
        )


def upload(arena: Arena) -> Iterator[Row]:
    """The p99 of appends elsewhere while manifests are uploaded, and while none is."""
    with _server(arena) as server:
        create_topic(server.url, TOPIC, "fsync")
        during, without = arena.take_turns(
            "appends beside uploads",
            partial(_measure_appends, arena, server, uploads=True),
            partial(_measure_appends, arena, server, uploads=False),
        )
        yield Row(
            what=f"append p99 during uploads of {manifests.FLAGS:,} flags, class fsync",
            unit="ms",
            headrace=during,
            baseline=without,
            baseline_is="idle",
            reach=RatioAtMost(3),
        )


@contextmanager
def _server(arena: Arena) -> Iterator[ServerProcess]:
    """A server with the first edition of the manifest."""
    with arena.server(_ENV) as server:
        create_namespace(server.url, manifests.TENANT, manifests.NAMESPACE)
        first = Cycle((manifests.format_upload(0),))
        run_appends(Appends(server.port, 1, Http(), first, Counted(1)))
        yield server


def _measure_changes(server: ServerProcess, closures: list[float]) -> list[float]:
    """How long deliveries took; notes how many closures were worked out for each version."""
    wanted = manifests.list_subscriptions()
    openings = tuple(_opening(wanted[n % len(wanted)]) for n in range(SUBSCRIBERS))
    uploads = tuple(manifests.format_upload(edition) for edition in range(1, CHANGES + 1))
    job = Changes(server.port, openings, uploads, WARMUP_CHANGES)
    before = read_metric(server.url, CLOSURES)
    latencies = run_changes(job)
    # The version that is there when they come, and those that are uploaded.
    closures.append((read_metric(server.url, CLOSURES) - before) / (1 + CHANGES))
    return latencies.latencies_ms


def _opening(flags: str) -> Opening:
    return (Step(manifests.format_follow(flags), EVENT),)


def _measure_appends(arena: Arena, server: ServerProcess, *, uploads: bool) -> float:
    warmup_s, window_s = arena.sizes.warmup_s, arena.sizes.latency_window_s
    probe = Appends(
        server.port,
        PROBE_CONNECTIONS,
        Http(),
        Cycle(make_batches(TOPIC, 1)),
        Paced(PROBE_RATE_PER_S, warmup_s, window_s),
    )
    with ExitStack() as stack:
        if uploads:
            editions = Cycle(tuple(map(manifests.format_upload, range(EDITIONS))))
            plan = Paced(UPLOADS_PER_S, 0.0, warmup_s + window_s)
            uploader = Appends(server.port, 1, Http(), editions, plan)
            stack.enter_context(background_appends(uploader))
        return percentile(run_appends(probe).latencies_ms, 0.99)


SCENARIOS: dict[str, Callable[[Arena], Iterator[Row]]] = {
    "flags-deliver": deliver,
    "flags-upload": upload,
}
