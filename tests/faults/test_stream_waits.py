"""What writers of streams are told when storing takes too long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from diary import Client, Diary
from hostile import HostileDisk
from rig import boot, small
from virtual import VirtualClock, VirtualLoop

from headrace.core.errors import Code, Refused


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    with small():
        yield made
    made.close()


def test_a_slow_disk_leaves_the_outcome_open(loop: VirtualLoop) -> None:
    async def story() -> None:
        slow = 0.0
        started = await boot(HostileDisk(), VirtualClock(loop), delay_s=lambda: slow)
        client = Client(started.engine, Diary())
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
        client = Client(started.engine, Diary())
        await client.create("a", b"1")
        started.engine.door.room.clear()
        began = loop.time()
        for work in (client.write("a", b"2"), client.create("b")):
            with pytest.raises(Refused) as refused:
                await work
            assert refused.value.code is Code.THROTTLED
        assert loop.time() - began == pytest.approx(6.0, abs=0.1)
        started.engine.door.room.set()
        await client.write("a", b"3")
        assert started.engine.state.by_name["a"].head == 2
        assert "b" not in started.engine.state.by_name

    loop.run(story())
