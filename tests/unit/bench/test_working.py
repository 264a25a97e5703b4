"""A worker of a queue, over a connection that only remembers."""

from __future__ import annotations

import json

import pytest

from headrace_bench.errors import BenchError
from headrace_bench.replies import Reply
from headrace_bench.working import HttpQueue, Queue, RespQueue, work


class Remembering:
    def __init__(self) -> None:
        self.reply: Reply | None = None
        self.requests: list[bytes] = []

    def send(self, request: bytes, since: float) -> None:
        assert self.reply is not None
        self.reply.clear()
        self.requests.append(request)


def ok(body: object) -> bytes:
    text = json.dumps(body).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text)


def run(queue: Queue, replies: list[bytes]) -> tuple[Remembering, list[int]]:
    """What the worker sends, and the acknowledged jobs at each of its pauses."""
    connection = Remembering()
    worker = work(connection, queue)  # type: ignore[arg-type]
    acked = [next(worker)]
    for reply in replies:
        assert connection.reply is not None
        assert connection.reply.feed(reply)
        acked += [count for count in (next(worker, None),) if count is not None]
    assert next(worker, None) is None
    return connection, acked


def test_a_worker_claims_acknowledges_and_stops_when_nothing_is_left() -> None:
    claimed = {"claimed": [{"$seq": 7, "data": "x"}, {"$seq": 9, "data": "y"}], "count": 2}
    connection, acked = run(
        HttpQueue("jobs", "w1", 8),
        [ok(claimed), ok({"acked": 2, "skipped": []}), ok({"claimed": [], "count": 0})],
    )
    heads, bodies = zip(*(r.split(b"\r\n\r\n") for r in connection.requests), strict=True)
    assert [head.split()[1] for head in heads] == [
        b"/v0/topics/jobs/claim",
        b"/v0/topics/jobs/ack",
        b"/v0/topics/jobs/claim",
    ]
    assert [json.loads(body) for body in bodies] == [
        {"node": "w1", "max": 8},
        {"node": "w1", "seqs": [7, 9]},
        {"node": "w1", "max": 8},
    ]
    assert acked == [0, 0, 2]


def test_a_consumer_does_the_same_in_its_own_words() -> None:
    entries = b"".join(
        b"*2\r\n$3\r\n%b\r\n*2\r\n$4\r\ndata\r\n$2\r\nxx\r\n" % name for name in (b"5-0", b"5-1")
    )
    connection, acked = run(
        RespQueue("jobs", "c1", 8),
        [b"*1\r\n*2\r\n$4\r\njobs\r\n*2\r\n" + entries, b":2\r\n:2\r\n", b"*-1\r\n"],
    )
    assert [request.split(b"\r\n")[2] for request in connection.requests] == [
        b"XREADGROUP",
        b"XACK",
        b"XREADGROUP",
    ]
    assert connection.requests[1].count(b"5-0") == connection.requests[1].count(b"5-1") == 2
    assert acked == [0, 0, 2]


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (ok({"acked": 1, "skipped": [9]}), "1 of 2 jobs"),
        (b"HTTP/1.1 409 Conflict\r\ncontent-length: 2\r\n\r\n{}", "refused; HTTP/1.1 409"),
    ],
)
def test_a_job_that_is_not_acknowledged_is_a_failure(reply: bytes, message: str) -> None:
    claimed = {"claimed": [{"$seq": 7}, {"$seq": 9}]}
    with pytest.raises(BenchError, match=message):
        run(HttpQueue("jobs", "w1", 8), [ok(claimed), reply])
