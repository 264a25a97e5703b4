"""Workers of a queue: claim a few jobs, do nothing with them, acknowledge them, claim again."""

from __future__ import annotations

import re
import selectors
from collections.abc import Iterator, Sequence
from time import perf_counter, process_time
from typing import Protocol

import msgspec

from headrace_bench.errors import BenchError
from headrace_bench.jobs import Drain, Flow, Http, Resp
from headrace_bench.link import SILENCE_S_MAX, Connection, wait_replies
from headrace_bench.replies import HttpReply, Reply, RespEntries, RespLines, format_excerpt
from headrace_bench.wire import format_post, format_xack, format_xreadgroup

GROUP = "workers"
_ENTRY_ID = re.compile(rb"\r\n(\d+-\d+)\r\n")


def drain(job: Drain) -> Flow:
    """Work until no worker finds another job."""
    with selectors.DefaultSelector() as selector:
        workers: dict[Connection, Iterator[int]] = {}
        for number in range(job.workers):
            queue = make_queue(job, f"worker-{number}")
            connection = Connection(job.port, queue.claimed, selector)
            workers[connection] = work(connection, queue)
        start, computed_s = perf_counter(), process_time()
        completed, last, busy = 0, start, 0
        for worker in workers.values():
            busy += 1
            next(worker)
        while busy:
            for connection in wait_replies(selector, SILENCE_S_MAX):
                acked = next(workers[connection], None)
                if acked is None:
                    busy -= 1
                elif acked:
                    completed += acked
                    last = perf_counter()
        computed_s = process_time() - computed_s
    for connection in workers:
        connection.close()
    return Flow(completed, last - start, computed_s / (last - start))


class Queue(Protocol):
    """What one worker says to a queue, and how it reads the answers."""

    @property
    def claim(self) -> bytes: ...

    @property
    def claimed(self) -> Reply: ...

    @property
    def acked(self) -> Reply: ...

    def parse_claimed(self) -> Sequence[bytes]:
        """The ids of the jobs in `claimed`."""

    def format_ack(self, ids: Sequence[bytes]) -> bytes: ...

    def parse_acked(self) -> int:
        """How many jobs are gone for good, by `acked`."""


def work(connection: Connection, queue: Queue) -> Iterator[int]:
    """Pauses for each reply, and says how many jobs the one before it acknowledged."""
    acked = 0
    while True:
        _send(connection, queue.claim, queue.claimed)
        yield acked
        _require_success(queue.claimed)
        ids = queue.parse_claimed()
        if not ids:
            return
        _send(connection, queue.format_ack(ids), queue.acked)
        yield 0
        _require_success(queue.acked)
        acked = queue.parse_acked()
        if acked != len(ids):
            raise BenchError(f"{acked} of {len(ids)} jobs acknowledged")


def make_queue(job: Drain, node: str) -> Queue:
    match job.speaks:
        case Http():
            return HttpQueue(job.queue, node, job.claim_jobs)
        case Resp():
            return RespQueue(job.queue, node, job.claim_jobs)


class Job(msgspec.Struct):
    seq: msgspec.Raw = msgspec.field(name="$seq")


class Claimed(msgspec.Struct):
    claimed: list[Job]


class Acked(msgspec.Struct):
    acked: int


class HttpQueue:
    """A queue of Headrace: two requests over one connection that stays open."""

    def __init__(self, queue: str, node: str, claim_jobs: int) -> None:
        self.claimed = HttpReply()
        self.acked = HttpReply()
        self._path = f"/v0/topics/{queue}"
        self._node = node
        self.claim = format_post(
            f"{self._path}/claim", b'{"node":"%b","max":%d}' % (node.encode(), claim_jobs)
        )

    def parse_claimed(self) -> Sequence[bytes]:
        claimed = _CLAIMED.decode(self.claimed.body)
        return [bytes(job.seq) for job in claimed.claimed]

    def format_ack(self, ids: Sequence[bytes]) -> bytes:
        body = b'{"node":"%b","seqs":[%b]}' % (self._node.encode(), b",".join(ids))
        return format_post(f"{self._path}/ack", body)

    def parse_acked(self) -> int:
        return _ACKED.decode(self.acked.body).acked


class RespQueue:
    """A consumer of a group of a Redis stream."""

    def __init__(self, stream: str, consumer: str, claim_jobs: int) -> None:
        self.claimed = RespEntries()
        self.acked = RespLines(2)
        self._stream = stream
        self.claim = format_xreadgroup(stream, GROUP, consumer, claim_jobs)

    def parse_claimed(self) -> Sequence[bytes]:
        return _ENTRY_ID.findall(self.claimed.held)

    def format_ack(self, ids: Sequence[bytes]) -> bytes:
        return format_xack(self._stream, GROUP, ids)

    def parse_acked(self) -> int:
        acked, deleted = (int(line[1:]) for line in self.acked.held.split())
        return min(acked, deleted)


_CLAIMED = msgspec.json.Decoder(Claimed)
_ACKED = msgspec.json.Decoder(Acked)


def _send(connection: Connection, request: bytes, reply: Reply) -> None:
    connection.reply = reply
    connection.send(request, 0.0)


def _require_success(reply: Reply) -> None:
    if not reply.succeeded():
        raise BenchError(f"a worker was refused; {format_excerpt(reply)}")
