"""The two ways of a call, over a wire that a test has in its hands and in virtual time."""

from __future__ import annotations

import asyncio

from headrace.core.limits import SLOW_CONSUMER_S
from headrace.delivery.endings import SlowConsumer
from headrace.formats import feed_notifications as messages
from headrace.surfaces.feeds.consumers import Consumers
from headrace.surfaces.feeds.grpc_server import _Connection
from headrace.surfaces.feeds.hint_stream import HintEnding, HintStream
from headrace.web.credentials import LOCAL
from headrace.web.live_connections import REVOKED
from support.serving import House, live


class Wire:
    """A client that says what a test says, and reads only while it is let."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[bytes] = asyncio.Queue()
        self.reads = asyncio.Event()
        self.got: list[messages.ServerMessage] = []

    async def read(self) -> bytes:
        return await self.said.get()

    async def write(self, data: bytes) -> None:
        await self.reads.wait()
        self.got.append(messages.ServerMessage.FromString(data))


def begin(house: House, wire: Wire) -> tuple[HintStream, asyncio.Task[HintEnding]]:
    connection = _Connection(wire)
    stream = HintStream(house.hub, Consumers(), LOCAL, "", connection.wake)
    stream.open()
    return stream, asyncio.create_task(connection.run(stream))


def test_who_does_not_read_is_cut_off_although_it_speaks() -> None:
    async def story(house: House) -> None:
        wire = Wire()
        stream, running = begin(house, wire)
        beat = messages.ClientMessage(heartbeat=messages.Heartbeat()).SerializeToString()
        await asyncio.sleep(16)  # the first heartbeat of the server is not taken
        for _ in range(5):
            wire.said.put_nowait(beat)
            await asyncio.sleep(SLOW_CONSUMER_S / 6)
        assert stream.ending is None
        await asyncio.sleep(SLOW_CONSUMER_S / 6 + 1)
        assert await running == SlowConsumer()

    live(story)


def test_a_stream_that_is_ended_says_what_it_had_to_say_and_lets_go_of_its_reader() -> None:
    async def story(house: House) -> None:
        wire = Wire()
        wire.reads.set()
        stream, running = begin(house, wire)
        await asyncio.sleep(16)
        stream.end(REVOKED)
        assert await running == REVOKED
        assert [each.WhichOneof("message") for each in wire.got] == ["server_heartbeat"]

    live(story)
