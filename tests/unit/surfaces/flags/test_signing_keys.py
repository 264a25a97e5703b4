"""Signing keys: one is made when it is needed, outlives crashes, and is changed by appending."""

from __future__ import annotations

import asyncio
from random import Random

from headrace.core.limits import CLOSURE_TOKEN_S
from headrace.engine.start import Started
from headrace.surfaces.flags.signing_keys import SIGNING_LOG, SigningKeys
from support.engine_harness import boot, halt
from support.hostile import HostileDisk, Survival
from support.virtual import VirtualClock, VirtualLoop


async def start(disk: HostileDisk, loop: VirtualLoop) -> tuple[Started, SigningKeys]:
    started = await boot(disk, VirtualClock(loop))
    return started, SigningKeys(started.engine)


def test_of_two_who_need_the_first_key_one_makes_it(loop: VirtualLoop) -> None:
    async def story() -> None:
        started, keys = await start(HostileDisk(), loop)
        assert await keys.accepted() == ()
        assert SIGNING_LOG not in started.engine.state.by_name
        found = await asyncio.gather(*[keys.newest() for _ in range(5)])
        assert len(set(found)) == 1
        assert len(found[0]) == 32
        assert await keys.accepted() == (found[0],)
        assert started.engine.state.by_name[SIGNING_LOG].head == 1
        assert "key" not in repr(keys._known[0]).lower().replace("signingkey", "")

    loop.run(story())


def test_the_one_before_holds_for_as_long_as_what_it_signed(loop: VirtualLoop) -> None:
    async def story() -> None:
        started, keys = await start(HostileDisk(), loop)
        first = await keys.newest()
        assert await keys.rotate() == started.engine.clock.now_ms()
        second = await keys.newest()
        assert await keys.accepted() == (second, first)
        await asyncio.sleep(CLOSURE_TOKEN_S)
        assert await keys.accepted() == (second, first)
        await asyncio.sleep(1)
        assert await keys.accepted() == (second,)
        made = await asyncio.gather(keys.rotate(), keys.rotate())
        assert len(made) == 2
        assert started.engine.state.by_name[SIGNING_LOG].head == 4
        assert len(await keys.accepted()) == 2
        assert second not in await keys.accepted()

    loop.run(story())


def test_keys_outlive_a_crash_and_none_signs_that_does_not(loop: VirtualLoop) -> None:
    async def story() -> None:
        disk = HostileDisk()
        started, keys = await start(disk, loop)
        first = await keys.newest()
        await keys.rotate()
        known = await keys.accepted()
        making = asyncio.ensure_future(keys.rotate())  # nobody has heard of this one
        await asyncio.sleep(0)
        left = disk.lose_power(Survival.NOTHING, Random(0))
        halt(started)
        disk.crash()
        making.cancel()
        _, after = await start(left, loop)
        assert await after.accepted() == known
        assert await after.newest() == known[0] != first

    loop.run(story())


def test_a_key_whose_maker_went_away_is_the_newest(loop: VirtualLoop) -> None:
    async def story() -> None:
        _, keys = await start(HostileDisk(), loop)
        first = await keys.newest()
        making = asyncio.ensure_future(keys.rotate())
        await asyncio.sleep(0)
        making.cancel()
        await asyncio.sleep(1)
        second = await keys.newest()
        assert second != first
        assert await keys.accepted() == (second, first)

    loop.run(story())
