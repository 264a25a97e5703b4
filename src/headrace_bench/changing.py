"""Changes of a manifest, and many who follow it: how long after the reply to the upload each of
them has the delta.
"""

from __future__ import annotations

import selectors
from contextlib import closing
from time import perf_counter_ns, sleep

from headrace_bench.errors import BenchError
from headrace_bench.jobs import Changes, Latencies
from headrace_bench.link import Connection, wait_replies
from headrace_bench.replies import HttpReply, format_excerpt
from headrace_bench.watching import WATCH_PAUSE_S, Watchers, no_collection

EVENT = b"event: version\n"
_SPLIT_BYTES = len(EVENT) - 1


def change(job: Changes) -> Latencies:
    """Upload one after the other, each when everybody has the one before."""
    latencies_ms: list[float] = []
    with (
        Watchers(job.port, job.openings) as watchers,
        selectors.EpollSelector() as selector,
        closing(Connection(job.port, HttpReply(), selector)) as uploader,
        no_collection(),
    ):
        watchers.poller.register(selector.fileno(), selectors.EVENT_READ)
        for number, upload in enumerate(job.uploads):
            found = _deliver(watchers, selector, uploader, upload, len(job.openings))
            if number >= job.warmup_uploads:
                latencies_ms += found
    return Latencies(latencies_ms)


def _deliver(
    watchers: Watchers,
    selector: selectors.EpollSelector,
    uploader: Connection,
    upload: bytes,
    count: int,
) -> list[float]:
    """One upload: when each watcher had it, after the reply. Who had it before that waited none."""
    came_ns: dict[int, int] = {}
    held: dict[int, bytes] = {}
    replied_ns = 0
    uploader.send(upload, 0.0)
    while len(came_ns) < count or not replied_ns:
        for fd in watchers.wait():
            now_ns = perf_counter_ns()
            if fd == selector.fileno():
                for connection in wait_replies(selector, 0):
                    if not connection.reply.succeeded():
                        raise BenchError(f"an upload failed; {format_excerpt(connection.reply)}")
                    replied_ns = now_ns
                continue
            data = held.get(fd, b"") + watchers.receive(fd)
            if fd not in came_ns and EVENT in data:
                came_ns[fd] = now_ns
            held[fd] = data[-_SPLIT_BYTES:]
        sleep(WATCH_PAUSE_S)
    return [max(0, each - replied_ns) / 1e6 for each in came_ns.values()]
