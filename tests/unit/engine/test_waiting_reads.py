"""A reader who waits is answered in time, also by reads that are long under way."""

from __future__ import annotations

import asyncio

from headrace.core.read import Page
from headrace.engine.open_log import OpenLog
from support.fake_indexer import reading
from support.virtual import VirtualClock, VirtualLoop


def test_a_page_that_is_not_the_last_ends_the_wait_when_time_is_up(loop: VirtualLoop) -> None:
    async def slowly(live: OpenLog, after: int, **how: object) -> Page:
        await asyncio.sleep(1)
        return Page([], after + 1, 1000, 1, None, 1, 1, False)

    async def play() -> None:
        scene = await reading(VirtualClock(loop), 0)
        await scene.append([b"{}"])
        began = loop.time()
        page = await scene.engine.reader.read_or_wait(scene.live, 0, wait_ms=2500, read=slowly)
        assert page.next == 3
        assert loop.time() - began < 4

    loop.run(play())
