"""Feeds: from an event that is sent to the hint that a consumer gets over gRPC."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from functools import partial

from headrace_bench.arena import Arena
from headrace_bench.jobs import Hints
from headrace_bench.process import ServerProcess
from headrace_bench.report import Row, ValueAtMost
from headrace_bench.stats import percentile
from headrace_bench.wire import format_post
from headrace_bench.worker import run_hints

CONSUMERS = (1, 100)
EVENTS, WARMUP_EVENTS = 100, 10
P50_MS_MAX = 10.0
PERCENTILES = (("p50", 0.5), ("p99", 0.99))
_EVENT = json.dumps(
    {"type": "theme.updated", "resourceRef": {"resourceType": "theme", "resourceId": "dark"}}
).encode()


def hints(arena: Arena) -> Iterator[Row]:
    """The sync of the event is in it, as it is for everybody who is told of what is stored."""
    with arena.folder() as folder:
        port_file = folder / "grpc-port"
        settings = {"FEEDS_GRPC_PORT": "0", "FEEDS_GRPC_PORT_FILE": str(port_file)}
        with arena.server(settings) as server:
            grpc_port = int(port_file.read_text())
            tenants = (f"tenant-{number}" for number in itertools.count())
            for consumers in CONSUMERS:
                (found,) = arena.take_turns(
                    f"hints to {consumers}",
                    partial(_measure, server, grpc_port, consumers, tenants),
                )
                for name, part in PERCENTILES:
                    yield Row(
                        what=f"event sent to hint over gRPC, {consumers} consumers, {name}",
                        unit="ms",
                        headrace=tuple(percentile(values, part) for values in found),
                        reach=ValueAtMost(P50_MS_MAX) if name == "p50" else None,
                    )


def _measure(
    server: ServerProcess, grpc_port: int, consumers: int, tenants: Iterator[str]
) -> list[float]:
    tenant = next(tenants)
    request = format_post(f"/tenants/{tenant}/events", _EVENT)
    job = Hints(server.port, grpc_port, tenant, consumers, request, EVENTS, WARMUP_EVENTS)
    return run_hints(job).latencies_ms


SCENARIOS: dict[str, Callable[[Arena], Iterator[Row]]] = {"feeds-grpc": hints}
