"""Feeds: every way on which events go to consumers, and what consumers cost those who send."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from headrace_bench.arena import Arena, rest
from headrace_bench.control import (
    change_subscription,
    create_feed,
    create_subscription,
    delete_subscription,
)
from headrace_bench.feed_requests import (
    FIRST,
    format_event,
    format_events,
    format_follow,
    new_tenants,
    poll_path,
)
from headrace_bench.jobs import (
    Appends,
    Counted,
    Cycle,
    Hints,
    Http,
    Listen,
    Numbers,
    Paced,
    Poll,
    Stamped,
    Step,
)
from headrace_bench.process import ServerProcess
from headrace_bench.procfs import require_files
from headrace_bench.receiving import WebhookReceiver, receiving
from headrace_bench.report import RatioAtMost, Row, ValueAtLeast, ValueAtMost
from headrace_bench.scenarios import stages
from headrace_bench.scenarios.fanout import (
    OPEN_FILES,
    PERCENTILES,
    WRITER_CONNECTIONS,
    measure_latencies,
)
from headrace_bench.scenarios.stages import PAYLOAD
from headrace_bench.scenarios.webhooks import (
    APPEND_RECORDS,
    BATCH,
    DELIVERIES_MIN,
    EVENTS_MIN,
    RECORDS,
    SINGLE_RECORDS,
    SINGLE_WEBHOOKS,
)
from headrace_bench.scenarios.workload import RECORD_BYTES, VARIANTS
from headrace_bench.stats import percentile
from headrace_bench.wire import make_payloads, split_at_stamp
from headrace_bench.worker import background_watchers, run_appends, run_hints, run_watch

TOPICS = "topics"
FOLLOWERS = 1000
FOLLOW_RATE_PER_S = 4.0
FOLLOW_RATIO_MAX = 1.5
POLLERS = 1000
# Everybody asks again between two events, and waits when the next one is stored.
POLL_RATE_PER_S = 2.0
POLL_MS_MAX = {"p50": 100.0, "p99": 250.0}
HINTED = (1, 100)
HINTED_EVENTS, HINTED_WARMUP_EVENTS = 100, 10
HINT_P50_MS_MAX = 10.0
STORE_RATE_PER_S, STORE_CONNECTIONS = 20.0, 4
STORE_WINDOWS = 3
"""Windows of latency in a row: at this rate, the p99 of one would be its worst event."""
STORE_POLLERS = 20
STORE_RATIO_MAX = 2.0
_LISTEN_S_MAX = 3600.0
_MANY_POLLED = 1_000_000
"""Events, each of which somebody who polls in the background could take: it is ended before."""
_ENV = stages.SERVER_ENV | {
    # All clients here are one.
    "HEADRACE_MAX_SSE_CONNECTIONS_PER_KEY": "0",
    "HEADRACE_MAX_INFLIGHT_PER_KEY": "0",
    "HEADRACE_WEBHOOK_HOSTS": "127.0.0.1",
}


def follow(arena: Arena) -> Iterator[Row]:
    """From an event that is sent to a thousand followers, beside as many watchers of a topic."""
    require_files(OPEN_FILES)
    plan = Paced(FOLLOW_RATE_PER_S, arena.sizes.warmup_s, arena.sizes.latency_window_s)
    with arena.server(_ENV) as server:
        feeds = stages.feed_events(server, new_tenants())
        topics = stages.headrace_events(server)
        ours, theirs = arena.take_turns(
            "followers",
            lambda: measure_latencies(feeds, FOLLOWERS, plan),
            lambda: measure_latencies(topics, FOLLOWERS, plan),
        )
    for name, part in PERCENTILES:
        yield Row(
            what=f"event sent to SSE, {FOLLOWERS:,} followers, {name}",
            unit="ms",
            headrace=tuple(percentile(values, part) for values in ours),
            baseline=tuple(percentile(values, part) for values in theirs),
            baseline_is=TOPICS,
            reach=RatioAtMost(FOLLOW_RATIO_MAX) if name == "p99" else None,
        )


def poll(arena: Arena) -> Iterator[Row]:
    """From an event that is sent to the replies of a thousand requests that wait for it."""
    require_files(OPEN_FILES)
    plan = Paced(POLL_RATE_PER_S, arena.sizes.warmup_s, arena.sizes.latency_window_s)
    with arena.server(_ENV) as server:
        tenants = new_tenants()
        (found,) = arena.take_turns(
            "long-polls", lambda: _measure_polls(server, next(tenants), plan)
        )
    for name, part in PERCENTILES:
        yield Row(
            what=f"event sent to long-poll, {POLLERS:,} waiting, {name}",
            unit="ms",
            headrace=tuple(percentile(values, part) for values in found),
            reach=ValueAtMost(POLL_MS_MAX[name]),
        )


def hints(arena: Arena) -> Iterator[Row]:
    """The sync of the event is in it, as it is for everybody who is told of what is stored."""
    with arena.folder() as folder:
        port_file = folder / "grpc-port"
        settings = {"FEEDS_GRPC_PORT": "0", "FEEDS_GRPC_PORT_FILE": str(port_file)}
        with arena.server(settings) as server:
            grpc_port = int(port_file.read_text())
            tenants = new_tenants()
            for consumers in HINTED:
                who = f"{consumers} consumer{'s' * (consumers > 1)}"
                (found,) = arena.take_turns(
                    f"hints to {who}",
                    partial(_measure_hints, server, grpc_port, consumers, tenants),
                )
                for name, part in PERCENTILES:
                    yield Row(
                        what=f"event sent to hint over gRPC, {who}, {name}",
                        unit="ms",
                        headrace=tuple(percentile(values, part) for values in found),
                        reach=ValueAtMost(HINT_P50_MS_MAX) if name == "p50" else None,
                    )


def webhooks(arena: Arena) -> Iterator[Row]:
    """Events that wait, to subscriptions: one at a time to several, and fifty at a time to one."""
    with arena.server(_ENV) as server, receiving() as receiver:
        deliver = partial(_measure_deliveries, server, receiver, new_tenants())
        (rates,) = arena.take_turns(
            "subscriptions, one event each", lambda: deliver(SINGLE_WEBHOOKS, SINGLE_RECORDS, 1)
        )
        yield Row(
            what=f"deliveries to {SINGLE_WEBHOOKS} subscriptions",
            unit="/s",
            headrace=rates,
            reach=ValueAtLeast(DELIVERIES_MIN),
        )
        (rates,) = arena.take_turns(
            f"a subscription in batches of {BATCH}", lambda: deliver(1, RECORDS, BATCH) * BATCH
        )
        yield Row(
            what=f"events to a subscription, {BATCH} at a time",
            unit="/s",
            headrace=rates,
            reach=ValueAtLeast(EVENTS_MIN),
        )


def store(arena: Arena) -> Iterator[Row]:
    """How long events take to be stored, with consumers of all kinds who get them and without."""
    require_files(OPEN_FILES)
    window_s = arena.sizes.latency_window_s * STORE_WINDOWS
    plan = Paced(STORE_RATE_PER_S, arena.sizes.warmup_s, window_s)
    with arena.server(_ENV) as server, receiving() as receiver:
        tenants = new_tenants()

        def measure(receiver: WebhookReceiver | None) -> list[float]:
            tenant = next(tenants)
            create_feed(server.url, tenant)
            rest(server)
            with ExitStack() as stack:
                if receiver:
                    stack.enter_context(_consumers(server, tenant, receiver))
                requests = Cycle(_make_stores(tenant, 1))
                job = Appends(server.port, STORE_CONNECTIONS, Http(), requests, plan)
                return run_appends(job).latencies_ms

        beside, alone = arena.take_turns(
            "events beside consumers", partial(measure, receiver), partial(measure, None)
        )
    for name, part in PERCENTILES:
        yield Row(
            what=f"event stored, {FOLLOWERS:,} followers, {STORE_POLLERS} long-polls and a"
            f" subscription, {STORE_RATE_PER_S:g} a second, {name}",
            unit="ms",
            headrace=tuple(percentile(values, part) for values in beside),
            baseline=tuple(percentile(values, part) for values in alone),
            baseline_is="no consumers",
            reach=RatioAtMost(STORE_RATIO_MAX) if name == "p99" else None,
        )


def _measure_polls(server: ServerProcess, tenant: str, plan: Paced) -> list[float]:
    create_feed(server.url, tenant)
    source = Stamped(*split_at_stamp(format_event(tenant, PAYLOAD)))
    writer = Appends(server.port, WRITER_CONNECTIONS, Http(), source, plan)
    return run_watch(_poll(server, tenant, POLLERS, plan), writer).latencies_ms


def _poll(server: ServerProcess, tenant: str, pollers: int, plan: Paced | None = None) -> Poll:
    """Readers of what is behind the first event; without a plan, for as long as they are left."""
    records, warmup_s = (plan.requests, plan.warmup_s) if plan else (_MANY_POLLED, 0.0)
    path = poll_path(tenant)
    return Poll(server.port, Numbers(), path, FIRST, pollers, records, warmup_s)


def _measure_hints(
    server: ServerProcess, grpc_port: int, consumers: int, tenants: Iterator[str]
) -> list[float]:
    tenant = next(tenants)
    return run_hints(
        Hints(
            port=server.port,
            grpc_port=grpc_port,
            tenant=tenant,
            consumers=consumers,
            request=format_event(tenant),
            events=HINTED_EVENTS,
            warmup_events=HINTED_WARMUP_EVENTS,
        )
    ).latencies_ms


def _measure_deliveries(
    server: ServerProcess,
    receiver: WebhookReceiver,
    tenants: Iterator[str],
    subscriptions: int,
    events: int,
    batch: int,
) -> float:
    """Deliveries in a second to so many subscriptions, for which as many events wait each."""
    tenant, url = next(tenants), server.url
    create_feed(url, tenant)
    address = f"http://127.0.0.1:{receiver.port}/{tenant}"
    paths = [create_subscription(url, tenant, address, batch) for _ in range(subscriptions)]
    for path in paths:
        change_subscription(url, path, "paused")
    requests = Cycle(_make_stores(tenant, APPEND_RECORDS))
    plan = Counted(events // APPEND_RECORDS)
    run_appends(Appends(server.port, 1, Http(), requests, plan))
    wanted = subscriptions * events
    receiver.expect(wanted // batch, wanted * RECORD_BYTES)
    for path in paths:
        change_subscription(url, path, "active")
    receiver.wait_complete()
    for path in paths:
        delete_subscription(url, path)
    return receiver.rate_per_s


@contextmanager
def _consumers(server: ServerProcess, tenant: str, receiver: WebhookReceiver) -> Iterator[None]:
    """Followers, readers who wait and a subscription; each kind must be there to the end."""
    followers = ((Step(format_follow(tenant), b": heartbeat"),),) * FOLLOWERS
    address = f"http://127.0.0.1:{receiver.port}/{tenant}"
    receiver.expect(1)
    subscription = create_subscription(server.url, tenant, address, BATCH)
    with (
        background_watchers(Listen(server.port, followers, _LISTEN_S_MAX)),
        background_watchers(_poll(server, tenant, STORE_POLLERS)),
    ):
        yield
        receiver.wait_complete()
    delete_subscription(server.url, subscription)


def _make_stores(tenant: str, events: int) -> tuple[bytes, ...]:
    """Different requests that each store so many events."""
    return tuple(
        format_events(tenant, make_payloads(events, RECORD_BYTES, seed=seed))
        for seed in range(VARIANTS)
    )


SCENARIOS: dict[str, Callable[[Arena], Iterator[Row]]] = {
    "feeds-sse": follow,
    "feeds-poll": poll,
    "feeds-grpc": hints,
    "feeds-webhooks": webhooks,
    "feeds-store": store,
}
