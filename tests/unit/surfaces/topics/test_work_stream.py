"""The stream of a worker over a whole engine: what goes over the wire, and when nothing does."""

from __future__ import annotations

import asyncio

from headrace.core.config import Kind
from headrace.core.entry import Claim
from headrace.core.errors import Code, Refused
from headrace.engine.timings import Timings
from headrace.surfaces.topics.queues import QueueLimits
from headrace.surfaces.topics.work import JobStream, WorkRoutes
from support.asking import make_call, make_gate, make_request
from support.plumbing import Pipe
from support.serving import House, live


class Worker:
    """A worker on a connection."""

    def __init__(self, house: House, depth: int) -> None:
        queues = house.engine.queues
        dispatcher = queues.dispatcher(queues.find("q"))
        self.stream = JobStream(house.hub, dispatcher, "q")
        self.stream.node, self.stream.depth = "w", depth
        self.pipe = Pipe()
        self.pipe.protocol = self.stream
        self.stream.chunked = False
        self.stream.attach(self.pipe, b"head|", lambda: None, lambda: None)
        assert self.pipe.take() == b"head|"


async def soon() -> None:
    await asyncio.sleep(0.05)


def test_a_job_is_an_event_with_its_seq_as_id() -> None:
    async def story(house: House) -> None:
        await house.put("q", kind=Kind.QUEUE)
        await house.append("q", b'{"a":\n1}', tags=["t"], keys=["g"], metas=[b'{"m":1}'])
        worker = Worker(house, depth=1)
        await soon()
        frame = worker.pipe.take()
        assert frame.startswith(
            b'id: 1\nevent: job\ndata: {"topic":"q","$seq":1,"lease_id":"lease_'
        )
        assert b'"$tag":"t","$group":"g","deliveries":1,"data":{"a": 1},"meta":{"m":1}}' in frame
        assert frame.endswith(b"\n\n")

    live(story)


def test_a_stream_opens_when_its_queue_is_there_to_stay() -> None:
    async def story(house: House) -> None:
        creating = asyncio.create_task(house.put("q", kind=Kind.QUEUE))
        await asyncio.sleep(0)
        journal = house.engine.journal
        created = journal.tail
        assert journal.synced < created
        work = WorkRoutes(QueueLimits(claim=1, node_bytes=1))
        request = make_request("GET", "/v0/topics/q/work?node=w")
        await work.open(make_call(make_gate(house.engine), request, name="q"))
        assert journal.synced >= created
        await creating

    live(story)


def test_jobs_that_are_lost_before_they_are_sent_leave_no_trace() -> None:
    """An empty chunk would end the stream."""

    async def story(house: House) -> None:
        await house.put("q", kind=Kind.QUEUE)
        worker = Worker(house, depth=1)
        worker.stream.chunked = True
        claim = Claim(1, "w", 0, 0, 1, [1])
        worker.stream.give(house.engine.live("q"), claim, [])
        assert worker.pipe.take() == b""

    live(story)


def test_a_worker_who_does_not_read_gets_no_more() -> None:
    async def story(house: House) -> None:
        await house.put("q", kind=Kind.QUEUE)
        worker = Worker(house, depth=9)
        worker.pipe.choke()
        await house.append("q", b"1", b"2")
        await soon()
        queues = house.engine.queues
        assert queues.count(house.engine.live("q")).ready == 2
        worker.pipe.drain()
        await soon()
        assert worker.pipe.take().count(b"event: job") == 2

    live(story)


def test_a_worker_is_told_why_it_ends() -> None:
    async def story(house: House) -> None:
        await house.put("q", kind=Kind.QUEUE)
        worker = Worker(house, depth=1)
        worker.stream.on_throttled()
        assert b'event: error\ndata: {"code":429' in worker.pipe.take()
        worker.stream.close(Refused(Code.NOT_A_QUEUE, "no longer a queue"))
        assert b'event: error\ndata: {"code":409' in worker.pipe.take()
        assert worker.pipe.closing

    live(story)


def test_a_connection_that_breaks_gives_its_jobs_back_at_once() -> None:
    async def story(house: House) -> None:
        await house.put("q", kind=Kind.QUEUE)
        await house.append("q", b"1", b"2")
        worker = Worker(house, depth=2)
        await soon()
        queues = house.engine.queues
        await queues.ack("q", "w", [1], None, Timings())
        worker.stream.connection_lost(None)
        counters = queues.count(house.engine.live("q"))
        assert (counters.ready, counters.in_flight) == (1, 0)

    live(story)
