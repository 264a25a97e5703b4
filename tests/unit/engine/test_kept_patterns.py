"""Patterns and schemas that were kept before they had bounds: the server starts and serves."""

from __future__ import annotations

from hostile import HostileDisk
from rig import boot
from virtual import VirtualClock, VirtualLoop

from headrace.core.entry import Following
from headrace.core.record import draft
from headrace.core.stream import JSON, Write
from headrace.core.streaming import Spec
from headrace.core.subscription import PULL

PATTERN = "tenant42:" + "*a" * 100 + "*b"
NAME = "tenant42:" + "a" * 900


def test_a_kept_pattern_of_many_stars_is_matched_in_few_steps(loop: VirtualLoop) -> None:
    async def play() -> None:
        clock, disk = VirtualClock(loop), HostileDisk()
        started = await boot(disk, clock)
        following = Following(PULL, PATTERN, [], None, "wakes", 1000, None, "", 0)
        await started.engine.subscriptions.put("s", following)
        await started.engine.streams.create(NAME, Spec(content_type=JSON), None)

        engine = (await boot(disk.kill(), clock)).engine
        await engine.streams.write(NAME, draft([b"1"]), Write(JSON))
        active = engine.subscriptions.find("s")
        assert not active.follows(NAME)
        assert active.follows(NAME + "b")
        assert engine.subscriptions.streams(active) == []

    loop.run(play())
