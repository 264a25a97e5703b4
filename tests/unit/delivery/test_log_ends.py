"""Followers of a stream hear of its end behind its last record, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator

import pytest

from headrace.core.limits import STREAM_SSE_S, WHEEL_TICK_S
from headrace.core.record import draft
from headrace.core.selector import EVERYTHING
from headrace.core.stream_rules import Spec
from headrace.core.stream_state import JSON, Write
from headrace.delivery.hub import Hub
from headrace.delivery.sse import LAST_CHUNK
from headrace.delivery.timer_wheel import TimerWheel
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog
from headrace.surfaces.streams.following import StreamSink, StreamView
from support.engine_harness import boot
from support.hostile import HostileDisk
from support.plumbing import Pipe
from support.virtual import VirtualClock, VirtualLoop

CLOSED = b'"streamClosed":true'


class Reader:
    """Follows a stream from its beginning."""

    def __init__(self, hub: Hub, live: OpenLog, after: int = 0) -> None:
        engine = hub.engine
        view = StreamView(live.log, EVERYTHING, "0", engine.clock, engine.ingest)
        self.sink, self.pipe = StreamSink(hub, live, view, after), Pipe()
        self.pipe.protocol = self.sink
        self.sink.attach(self.pipe, b"", lambda: None, lambda: None)


class Site:
    """A stream, and who writes to it."""

    def __init__(self, engine: Engine, live: OpenLog) -> None:
        self.engine = engine
        self.live = live
        self.hub = Hub(engine, TimerWheel())

    def read(self, after: int = 0) -> Reader:
        return Reader(self.hub, self.live, after)

    async def append(self, data: bytes, *, close: bool = False) -> None:
        await self.engine.streams.write("a", draft([data]), Write(JSON, close=close))

    async def close(self) -> None:
        await self.engine.streams.write("a", None, Write(close=True))


Story = Callable[[Site], Coroutine[None, None, None]]


@pytest.fixture
def live() -> Iterator[Callable[[Story], None]]:
    loop = VirtualLoop()

    def run(story: Story) -> None:
        async def tell() -> None:
            engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
            stream, _ = await engine.streams.create("a", Spec(content_type=JSON), None)
            await story(Site(engine, stream))

        loop.run(tell())
        assert not loop.complaints

    yield run
    loop.close()


def test_the_end_is_told_behind_the_last_record(live: Callable[[Story], None]) -> None:
    async def story(site: Site) -> None:
        here, behind = site.read(), site.read()
        behind.pipe.choke()
        await site.append(b"1")
        await site.append(b"2", close=True)
        await asyncio.sleep(0.01)
        late, at_end = site.read(), site.read(after=2)
        for reader in (here, behind, late, at_end):
            reader.pipe.drain()
            await asyncio.sleep(0.01)
            sent = reader.pipe.take()
            assert sent.count(CLOSED) == 1
            assert sent.endswith(LAST_CHUNK)
            assert reader.sink.closed
            assert (b"event: data" in sent) == (reader is not at_end)
        assert len(site.hub) == 0

    live(story)


def test_whoever_is_blocked_by_the_end_has_heard_it(live: Callable[[Story], None]) -> None:
    async def story(site: Site) -> None:
        reader = site.read()
        reader.pipe.stuck = True
        reader.pipe._held = reader.pipe._high - 1
        await site.close()
        await asyncio.sleep(0.01)
        assert reader.sink.blocked
        assert reader.sink.closed
        assert CLOSED in reader.pipe.take()

    live(story)


def test_a_stream_that_lives_on_in_its_forks_is_gone_for_its_readers(
    live: Callable[[Story], None],
) -> None:
    async def story(site: Site) -> None:
        await site.append(b"1")
        reader, blocked = site.read(), site.read()
        blocked.pipe.choke()
        await site.engine.streams.create("b", Spec(source="a"), None)
        await site.engine.streams.delete("a")
        await asyncio.sleep(0.01)
        assert site.live.log.id in site.engine.open_logs
        assert reader.sink.closed
        blocked.pipe.drain()
        assert blocked.sink.closed
        assert CLOSED not in reader.pipe.take() + blocked.pipe.take()
        assert len(site.hub) == 0

    live(story)


def test_a_reader_stays_for_a_minute(live: Callable[[Story], None]) -> None:
    async def story(site: Site) -> None:
        gc.collect()
        gc.disable()
        try:
            reader = site.read()
            await asyncio.sleep(STREAM_SSE_S + 2 * WHEEL_TICK_S)
            assert reader.sink.closed
            assert reader.pipe.take().endswith(LAST_CHUNK)
            reader.sink.connection_lost(None)
            reader.pipe.protocol = None
            del reader
            assert not any(isinstance(one, StreamSink) for one in gc.get_objects())
        finally:
            gc.enable()

    live(story)
