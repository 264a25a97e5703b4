"""A running engine with a hub, for one story on a virtual loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from headrace.core.config import LogConfig
from headrace.core.record import draft
from headrace.delivery.hub import Hub
from headrace.delivery.timer_wheel import TimerWheel
from headrace.engine.engine import Engine
from support.engine_harness import boot
from support.hostile import HostileDisk
from support.listening import Truth
from support.virtual import VirtualClock, VirtualLoop

SYNC_S = 0.01


class House:
    """What a story takes place in."""

    def __init__(self, engine: Engine, loop: VirtualLoop) -> None:
        self.engine = engine
        self.loop = loop
        self.wheel = TimerWheel()
        self.hub = Hub(engine, self.wheel)
        self.truth = Truth(engine)

    async def put(self, topic: str, **config: Any) -> None:
        await self.engine.logs.put(topic, "topics", LogConfig(**config))

    async def append(self, topic: str, *datas: bytes, **columns: Any) -> None:
        drafts = draft(datas, **columns)
        await self.engine.appender.append(topic, drafts, owner="topics", create=LogConfig())


Story = Callable[[House], Coroutine[None, None, None]]


def live(story: Story) -> None:
    """Tell a story; every sync takes a while, and no time passes but what it waits for."""
    loop = VirtualLoop()

    async def tell() -> None:
        started = await boot(HostileDisk(), VirtualClock(loop), delay_s=lambda: SYNC_S)
        await story(House(started.engine, loop))

    try:
        loop.run(tell())
        assert not loop.complaints, loop.complaints
    finally:
        loop.close()
