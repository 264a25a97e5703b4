"""Every default scenario by name: a function from an arena to rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headrace_bench.arena import Arena
from headrace_bench.report import Row
from headrace_bench.scenarios.appends import batched, disk, single, single_by_wrk
from headrace_bench.scenarios.fanout import fanout, websocket
from headrace_bench.scenarios.history import history
from headrace_bench.scenarios.latency import latency
from headrace_bench.scenarios.queue import queue
from headrace_bench.scenarios.streams import stream_appends, stream_fanout, stream_reads
from headrace_bench.scenarios.upkeep import upkeep
from headrace_bench.scenarios.webhooks import webhooks

Scenario = Callable[[Arena], Iterable[Row]]
"""Gives each row as soon as it is known."""

DEFAULT: dict[str, Scenario] = {
    "single": single,
    "wrk": single_by_wrk,
    "batched": batched,
    "disk": disk,
    "latency": latency,
    "upkeep": upkeep,
    "history": history,
    "fanout": fanout,
    "websocket": websocket,
    "queue": queue,
    "webhooks": webhooks,
    "stream-appends": stream_appends,
    "stream-reads": stream_reads,
    "stream-fanout": stream_fanout,
}
