"""The load of appends: one selector, prebuilt bytes out, barely parsed bytes in.

It shares two cores with the server under test, so a request must cost it far less than it costs
the server.
"""

from __future__ import annotations

import itertools
import math
import selectors
from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter, perf_counter_ns

from headrace_bench.jobs import (
    Appends,
    Counted,
    Cycle,
    Http,
    Numbered,
    Paced,
    Resp,
    Stamped,
    Tally,
    Timed,
)
from headrace_bench.link import SILENCE_S_MAX, Connection, wait_replies
from headrace_bench.replies import HttpReply, Reply, RespReplies, format_excerpt
from headrace_bench.wire import STAMP_DIGITS


class Meter:
    """Counts the replies of a window, and every failure whenever it comes."""

    def __init__(self, start: float, stop: float) -> None:
        self._start = start
        self._stop = stop
        self._last = start
        self._latencies_ms: list[float] = []
        self._failures = 0
        self._first_failure = ""

    def note(self, connection: Connection, now: float, counts_at: float) -> None:
        """A reply came `now`; whether it falls into the window is decided by `counts_at`."""
        if not connection.reply.succeeded():
            self._failures += 1
            self._first_failure = self._first_failure or format_excerpt(connection.reply)
        elif self._start <= counts_at < self._stop:
            self._last = now
            self._latencies_ms.append((now - connection.since) * 1000)

    def tally(self) -> Tally:
        stop = self._stop if math.isfinite(self._stop) else self._last
        return Tally(
            completed=len(self._latencies_ms),
            elapsed_s=stop - self._start,
            failures=self._failures,
            first_failure=self._first_failure,
            latencies_ms=self._latencies_ms,
        )


def append(job: Appends) -> Tally:
    """Carry out a load of appends."""
    with make_selector(job) as selector:
        connections = [
            Connection(job.port, make_reply(job.speaks), selector) for _ in range(job.connections)
        ]
        requests = make_requests(job.source)
        now = perf_counter()
        match job.plan:
            case Timed(warmup_s, window_s):
                start, stop = now + warmup_s, now + warmup_s + window_s
                meter = Meter(start, stop)
                run_closed(selector, connections, requests, meter, lambda at: at < stop)
            case Counted(count):
                meter = Meter(now, math.inf)
                run_closed(selector, connections, itertools.islice(requests, count), meter)
            case Paced(rate_per_s, warmup_s, window_s):
                meter = Meter(now + warmup_s, now + warmup_s + window_s)
                due = (now + number / rate_per_s for number in range(job.plan.requests))
                run_paced(selector, connections, requests, meter, due)
    for connection in connections:
        connection.close()
    return meter.tally()


def run_closed(
    selector: selectors.BaseSelector,
    connections: list[Connection],
    requests: Iterator[bytes],
    meter: Meter,
    may_send: Callable[[float], bool] = lambda _: True,
) -> None:
    """Each connection sends its next request when its last one is answered."""
    busy = 0
    # Connections first: zip must not take a request that no connection is left to send.
    for connection, request in zip(connections, requests, strict=False):
        connection.send(request, perf_counter())
        busy += 1
    while busy:
        for connection in wait_replies(selector, SILENCE_S_MAX):
            now = perf_counter()
            meter.note(connection, now, counts_at=now)
            request = next(requests, b"") if may_send(now) else b""
            if request:
                connection.send(request, now)
            else:
                busy -= 1


def run_paced(
    selector: selectors.BaseSelector,
    connections: list[Connection],
    requests: Iterator[bytes],
    meter: Meter,
    due: Iterator[float],
) -> None:
    """Requests go out when due; with every connection busy they wait, and the wait counts."""
    # First in, first out: every connection takes its turn, none is left alone for long.
    idle = deque(connections)
    next_due = next(due, None)
    while next_due is not None or len(idle) < len(connections):
        while idle and next_due is not None and next_due <= perf_counter():
            idle.popleft().send(next(requests), next_due)
            next_due = next(due, None)
        wait_s = next_due - perf_counter() if idle and next_due is not None else SILENCE_S_MAX
        for connection in wait_replies(selector, wait_s):
            meter.note(connection, perf_counter(), counts_at=connection.since)
            idle.append(connection)


def make_selector(job: Appends) -> selectors.BaseSelector:
    # Python's epoll rounds a wait up to a millisecond; select(2) is exact, which pacing needs.
    if isinstance(job.plan, Paced):
        return selectors.SelectSelector()
    return selectors.DefaultSelector()


def make_reply(speaks: Http | Resp) -> Reply:
    match speaks:
        case Http():
            return HttpReply()
        case Resp(replies):
            return RespReplies(replies)


def make_requests(source: Cycle | Numbered | Stamped) -> Iterator[bytes]:
    match source:
        case Cycle(requests):
            return itertools.cycle(requests)
        case Numbered(head, tail):
            return (b"%b%d%b" % (head, number, tail) for number in itertools.count())
        case Stamped(head, tail):
            return (
                b"%b%0*d%b" % (head, STAMP_DIGITS, perf_counter_ns(), tail)
                for _ in itertools.count()
            )
