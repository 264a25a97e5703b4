"""The loops of the load generator, over connections that only pretend."""

from __future__ import annotations

import itertools
import math

import pytest

from headrace_bench.errors import BenchError
from headrace_bench.jobs import Cycle, Numbered, Paced, Stamped, Tally, require_success
from headrace_bench.load import Meter, make_requests
from headrace_bench.replies import HttpReply

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
THROTTLED = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n"


class Answered:
    """Stands in for a connection whose reply has arrived."""

    def __init__(self, since: float, raw: bytes = OK) -> None:
        self.since = since
        self.reply = HttpReply()
        self.reply.feed(raw)


def note(meter: Meter, connection: Answered, now: float, counts_at: float) -> None:
    meter.note(connection, now, counts_at)  # type: ignore[arg-type]


def test_only_the_window_counts() -> None:
    meter = Meter(10.0, 20.0)
    for now in (9.9, 10.0, 15.0, 20.0):
        note(meter, Answered(since=now - 0.5), now, counts_at=now)
    tally = meter.tally()
    assert tally.completed == 2
    assert tally.elapsed_s == 10.0
    assert tally.rate_per_s == 0.2
    assert tally.latencies_ms == [500.0, 500.0]


def test_a_request_due_in_the_window_counts_however_late_its_reply() -> None:
    meter = Meter(10.0, 20.0)
    note(meter, Answered(since=19.0), 29.0, counts_at=19.0)
    assert meter.tally().latencies_ms == [10_000.0]


def test_without_an_end_the_last_reply_ends_the_window() -> None:
    meter = Meter(10.0, math.inf)
    for now in (11.0, 14.0):
        note(meter, Answered(since=10.0), now, counts_at=now)
    assert meter.tally().elapsed_s == 4.0


def test_a_failure_in_the_warm_up_is_still_a_failure() -> None:
    meter = Meter(10.0, 20.0)
    note(meter, Answered(5.0, THROTTLED), 6.0, counts_at=6.0)
    note(meter, Answered(11.0), 12.0, counts_at=12.0)
    with pytest.raises(BenchError, match=r"1 of 2 requests failed; HTTP/1\.1 429"):
        require_success(meter.tally())


def test_a_load_that_did_nothing_is_a_failure() -> None:
    with pytest.raises(BenchError, match="no request"):
        require_success(Tally(0, 1.0, 0, "", []))


def test_requests_go_round() -> None:
    requests = make_requests(Cycle((b"a", b"b")))
    assert list(itertools.islice(requests, 3)) == [b"a", b"b", b"a"]


def test_requests_are_numbered() -> None:
    requests = make_requests(Numbered(b"POST /t", b" HTTP"))
    assert list(itertools.islice(requests, 2)) == [b"POST /t0 HTTP", b"POST /t1 HTTP"]


def test_stamps_are_as_long_as_each_other_and_grow() -> None:
    requests = make_requests(Stamped(b"<", b">"))
    first, second = itertools.islice(requests, 2)
    assert len(first) == len(second) == 21
    assert first < second


def test_a_pace_covers_warm_up_and_window() -> None:
    assert Paced(rate_per_s=4, warmup_s=0.5, window_s=2).requests == 10
