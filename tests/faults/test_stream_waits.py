"""What writers of streams are told when storing takes too long."""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest

from headrace.core.errors import Code, Refused
from headrace.core.record import draft
from headrace.core.stream_rules import Spec
from headrace.core.stream_state import JSON, Write
from headrace.engine.engine import Engine
from headrace.surfaces.streams import mount as streams
from headrace.surfaces.streams.control import Control
from headrace.surfaces.streams.routes import StreamLimits
from headrace.web.calls import Gate
from headrace.web.concurrency import Slots
from headrace.web.connection import Connections
from headrace.web.credential_store import CredentialStore
from headrace.web.responder import Responder
from support import asking
from support.engine_harness import boot
from support.hostile import HostileDisk
from support.lines import Site
from support.state_journal import Client, StateJournal
from support.virtual import VirtualClock, VirtualLoop


def test_a_slow_disk_leaves_the_outcome_open(loop: VirtualLoop) -> None:
    async def story() -> None:
        slow = 0.0
        started = await boot(HostileDisk(), VirtualClock(loop), delay_s=lambda: slow)
        client = Client(started.engine, StateJournal())
        await client.create("a", b"1")
        slow = 10.0
        began = loop.time()
        with pytest.raises(Refused, match="outcome is unknown") as refused:
            await client.write("a", b"2")
        assert refused.value.code is Code.APPEND_TIMEOUT
        assert loop.time() - began == pytest.approx(3.0, abs=0.1)
        live = started.engine.streams.find("a")
        assert (live.log.head, live.visible) == (2, 1)
        await asyncio.sleep(30)
        assert live.visible == 2, "it was stored after all, and readers see it"

    loop.run(story())


def test_without_room_nothing_is_written(loop: VirtualLoop) -> None:
    async def story() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        client = Client(started.engine, StateJournal())
        await client.create("a", b"1")
        started.engine.admission.room.clear()
        began = loop.time()
        for work in (client.write("a", b"2"), client.create("b")):
            with pytest.raises(Refused) as refused:
                await work
            assert refused.value.code is Code.THROTTLED
        assert loop.time() - began == pytest.approx(6.0, abs=0.1)
        started.engine.admission.room.set()
        await client.write("a", b"3")
        assert started.engine.state.by_name["a"].head == 2
        assert "b" not in started.engine.state.by_name

    loop.run(story())


def make_responder(engine: Engine, wait_ms: int) -> tuple[Gate, Responder]:
    gate = Gate(CredentialStore(), Slots(), Slots(), 1 << 20)
    gate.open(engine)
    limits = StreamLimits(1 << 20, 5000, wait_ms)
    surface = streams.surface(gate, "native", limits, Control(mock.Mock()), mock.Mock())
    return gate, Responder(gate, [surface])


async def ask(
    engine: Engine,
    method: str,
    body: bytes = b"",
    *,
    query: str = "",
    wait_ms: int = 4900,
    **headers: str,
) -> tuple[int, str]:
    """The status and the code of an error that a client of the stream "a" is answered with."""

    _, respond = make_responder(engine, wait_ms)
    answer = await asking.ask(respond, method, f"/v1/stream/a?{query}", body, **headers)
    return answer.status, answer.json["error"]["code"] if answer.status >= 400 else ""


@pytest.mark.parametrize("what", ["?offset=-1&", "/_details?", "/_index_status?"])
def test_who_hangs_up_waits_no_longer(loop: VirtualLoop, what: str) -> None:
    async def story() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        assert await ask(started.engine, "PUT") == (201, "")
        gate, respond = make_responder(started.engine, 4900)
        known = ""
        if "_" in what:
            shown = await asking.ask(respond, "GET", f"/v1/stream/a{what}")
            known = f"if-none-match: {shown.headers['etag']}\r\n"
        line = Site(respond, Connections()).connect()
        target = f"/v1/stream/a{what}live=long-poll&timeout=4s"
        await line.send(f"GET {target} HTTP/1.1\r\nhost: here\r\n{known}\r\n".encode())
        await asyncio.sleep(1)
        assert (len(gate.slots), line.heard) == (1, b"")
        line.close()
        await line.settle()
        await asyncio.sleep(0.1)
        assert len(gate.slots) == 0

    loop.run(story())


def test_every_request_is_answered_in_time(loop: VirtualLoop) -> None:
    async def story() -> None:
        slow = 0.0
        started = await boot(HostileDisk(), VirtualClock(loop), delay_s=lambda: slow)
        engine = started.engine
        text = {"content_type": "text/plain"}
        producer = {"producer_id": "p", "producer_epoch": "0"}
        assert await ask(engine, "PUT", b"1", **text) == (201, "")
        slow = 100.0
        began = loop.time()
        for wait_s, wanted, asked in (
            (3, "append_timeout", ask(engine, "POST", b"2", producer_seq="0", **producer, **text)),
            # What it repeats may be gone after a crash: nobody is told that it was accepted.
            (5, "request_timeout", ask(engine, "POST", b"2", producer_seq="0", **producer, **text)),
            (5, "request_timeout", ask(engine, "POST", b"2", producer_seq="2", **producer, **text)),
            (5, "request_timeout", ask(engine, "DELETE")),
            (5, "request_timeout", ask(engine, "HEAD")),
            (3, "append_timeout", ask(engine, "PUT", **text)),
        ):
            assert await asked == (408, wanted)
            assert loop.time() - began == pytest.approx(wait_s, abs=0.1)
            began = loop.time()

    loop.run(story())


def test_a_stream_is_read_once_it_is_there_to_stay(loop: VirtualLoop) -> None:
    async def story() -> None:
        slow = 0.0
        started = await boot(HostileDisk(), VirtualClock(loop), delay_s=lambda: slow)
        slow = 1.0
        created = asyncio.create_task(ask(started.engine, "PUT"))
        await asyncio.sleep(0.1)
        assert "a" in started.engine.state.by_name
        assert await ask(started.engine, "GET") == (200, "")
        assert created.done()

    loop.run(story())


def test_followers_hear_of_the_end_when_it_is_durable(loop: VirtualLoop) -> None:
    async def story() -> None:
        slow = 0.0
        streams = (
            await boot(HostileDisk(), VirtualClock(loop), delay_s=lambda: slow)
        ).engine.streams
        live, _ = await streams.create("a", Spec(content_type=JSON), None)
        slow = 1.0
        writing = asyncio.create_task(streams.write("a", draft([b"1"]), Write(JSON)))
        await asyncio.sleep(0.1)
        closing = asyncio.create_task(streams.write("a", None, Write(close=True)))
        told: list[bool] = []
        live.listen(lambda: told.append(streams.is_over(live)))
        await asyncio.gather(writing, closing)
        assert told == [False, True], "woken by the record, and then by the end"

    loop.run(story())


def test_a_wait_that_ends_late_is_no_timeout(loop: VirtualLoop) -> None:
    async def story() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        assert await ask(started.engine, "PUT") == (201, "")
        waits = "offset=-1&live=long-poll"
        assert await ask(started.engine, "GET", query=waits, wait_ms=5200) == (204, "")

    loop.run(story())


def test_ends_of_streams_that_are_gone_are_forgotten(loop: VirtualLoop) -> None:
    async def story() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop))
        streams = started.engine.streams
        client = Client(started.engine, StateJournal())
        with mock.patch("headrace.engine.streams.expiry._ENDS_STALE_MAX", 4):
            for _ in range(30):
                await client.create("a", ttl_ms=10**9)
                await client.delete("a")
            assert len(streams.expiry._ends) < 10
            await client.create("a", ttl_ms=1000)
            await asyncio.sleep(10)
            assert streams.expiry.sweep() is False
            assert "a" not in started.engine.state.by_name

    loop.run(story())
