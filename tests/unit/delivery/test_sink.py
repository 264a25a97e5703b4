"""A stream of events on a connection: heartbeats, blocking, and every way to end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from math import inf

import pytest

from headrace.core.limits import CLOSE_S, SLOW_CONSUMER_S, WHEEL_TICK_S
from headrace.delivery import sse
from headrace.delivery.endings import Over, Replaced
from headrace.delivery.hub import Hub
from headrace.delivery.sse import EventStream
from support.plumbing import NoLogs, Pipe
from support.virtual import VirtualClock, VirtualLoop

BEAT_S = 15.0
Story = Callable[["Watched"], Coroutine[None, None, None]]


class Watched(EventStream):
    """Keeps a diary of its hooks."""

    def __init__(self, hub: Hub, deadline_s: float = inf) -> None:
        super().__init__(hub, BEAT_S, deadline_s)
        self.hub = hub
        self.state_journal: list[str] = []
        self.pipe = Pipe()
        self.pipe.protocol = self

    def open(self) -> None:
        self.attach(
            self.pipe,
            b"head|",
            lambda: self.state_journal.append("free"),
            lambda: self.state_journal.append("gone"),
        )

    def on_open(self) -> None:
        self.state_journal.append("opened")

    def on_writable(self) -> None:
        self.state_journal.append("writable")

    def on_end(self) -> None:
        self.state_journal.append("ended")


@pytest.fixture
def live() -> Iterator[Callable[[Story], None]]:
    loop = VirtualLoop()

    def run(story: Story) -> None:
        async def tell() -> None:
            stream = Watched(NoLogs(VirtualClock(loop)))
            stream.open()
            await story(stream)

        loop.run(tell())
        assert not loop.complaints

    yield run
    loop.close()


def test_an_idle_stream_beats_and_a_busy_one_does_not(live: Callable[[Story], None]) -> None:
    async def story(stream: Watched) -> None:
        assert stream.pipe.take() == b"head|"
        await asyncio.sleep(BEAT_S + WHEEL_TICK_S)
        first = stream.pipe.take()
        assert b": hb 17000000" in first
        await asyncio.sleep(BEAT_S - 1)
        stream.send(b"x")
        assert stream.pipe.take() == b"1\r\nx\r\n"
        await asyncio.sleep(BEAT_S - 1)
        assert stream.pipe.take() == b"", "data went out within the window"
        await asyncio.sleep(1 + 2 * WHEEL_TICK_S)
        assert b": hb" in stream.pipe.take()

    live(story)


def test_the_peer_hangs_up(live: Callable[[Story], None]) -> None:
    async def story(stream: Watched) -> None:
        stream.connection_lost(None)
        assert stream.state_journal == ["opened", "free", "ended", "gone"]
        assert len(stream.hub.wheel) == 0
        stream.send(b"too late")
        stream.end(Over())
        assert stream.state_journal == ["opened", "free", "ended", "gone"]
        assert stream.pipe.take() == b"head|"

    live(story)


def test_the_server_ends_it_and_the_peer_takes_the_last_words(
    live: Callable[[Story], None],
) -> None:
    async def story(stream: Watched) -> None:
        stream.pipe.take()
        stream.end(Replaced())
        last = stream.pipe.take()
        assert b"event: error" in last
        assert b'"code":409' in last
        assert last.endswith(sse.LAST_CHUNK)
        assert stream.state_journal == ["opened", "free", "ended"]
        assert stream.pipe.closing
        stream.connection_lost(None)
        await asyncio.sleep(CLOSE_S * 2)
        assert not stream.pipe.aborted
        assert stream.state_journal == ["opened", "free", "ended", "gone"]

    live(story)


def test_last_words_nobody_takes_are_dropped(live: Callable[[Story], None]) -> None:
    async def story(stream: Watched) -> None:
        stream.pipe.fill()
        stream.shutdown()
        assert b'"code":503' in stream.pipe.take()
        assert not stream.pipe.aborted
        await asyncio.sleep(CLOSE_S + 2 * WHEEL_TICK_S)
        assert stream.pipe.aborted

    live(story)


def test_an_end_without_a_reason_says_nothing(live: Callable[[Story], None]) -> None:
    async def story(stream: Watched) -> None:
        stream.pipe.take()
        stream.end(Over())
        assert stream.pipe.take() == sse.LAST_CHUNK

    live(story)


def test_a_blocked_stream_gets_no_heartbeats_and_goes_on_when_it_drains(
    live: Callable[[Story], None],
) -> None:
    async def story(stream: Watched) -> None:
        stream.pipe.fill()
        assert stream.blocked
        assert stream.backlog > 0
        stream.pipe.take()
        await asyncio.sleep(SLOW_CONSUMER_S - 1)
        assert stream.pipe.take() == b""
        stream.pipe.drain()
        assert not stream.blocked
        assert stream.state_journal == ["opened", "writable"]
        await asyncio.sleep(SLOW_CONSUMER_S)
        assert b": hb" in stream.pipe.take()

    live(story)


def test_a_stream_that_stays_blocked_is_closed(live: Callable[[Story], None]) -> None:
    async def story(stream: Watched) -> None:
        stream.pipe.fill()
        stream.pipe.take()
        await asyncio.sleep(SLOW_CONSUMER_S + 2 * WHEEL_TICK_S)
        assert b'"code":408' in stream.pipe.take()
        assert stream.state_journal == ["opened", "free", "ended"]
        await asyncio.sleep(CLOSE_S + 2 * WHEEL_TICK_S)
        assert stream.pipe.aborted

    live(story)


@pytest.mark.parametrize("blocked", [False, True])
def test_a_stream_lasts_no_longer_than_to_its_deadline(
    live: Callable[[Story], None], blocked: bool
) -> None:
    async def story(other: Watched) -> None:
        stream = Watched(other.hub, deadline_s=20.0)
        stream.open()
        if blocked:
            stream.pipe.fill()
        await asyncio.sleep(20.0)
        assert not stream.closed
        stream.pipe.take()
        await asyncio.sleep(2 * WHEEL_TICK_S)
        assert stream.pipe.take() == sse.LAST_CHUNK
        assert stream.state_journal == ["opened", "free", "ended"]

    live(story)


def test_a_connection_that_is_gone_already_opens_nothing(live: Callable[[Story], None]) -> None:
    async def story(other: Watched) -> None:
        stream = Watched(other.hub)
        stream.pipe.closing = True
        stream.open()
        assert stream.state_journal == ["free", "gone"]
        assert stream.pipe.take() == b""

    live(story)


def test_an_http_1_0_peer_gets_no_chunks(live: Callable[[Story], None]) -> None:
    async def story(stream: Watched) -> None:
        stream.pipe.take()
        stream.chunked = False
        stream.send(b"plain")
        stream.end(Over())
        assert stream.pipe.take() == b"plain"

    live(story)


def test_data_never_holds_a_line_break() -> None:
    frame = sse.event(b"record", b'{"a":\n1,\r\n"b":2}', id=b"c1")
    assert frame == b'id: c1\nevent: record\ndata: {"a": 1,  "b":2}\n\n'
