"""Turns: one at a time, and no tenant before its time."""

from __future__ import annotations

import asyncio

import pytest

from headrace.core.cap import Cap
from headrace.core.errors import Refused
from headrace.surfaces.flags.turns import Turns


def test_a_tenant_that_brings_much_waits_for_itself() -> None:
    async def story() -> None:
        turns = Turns(Cap("total", 0), Cap("per_tenant", 0))
        served: list[str] = []
        at_work = 0

        async def work(item: str) -> None:
            nonlocal at_work
            async with turns.take(item[0]):
                at_work += 1
                assert at_work == 1
                await asyncio.sleep(0)
                served.append(item)
                at_work -= 1

        await asyncio.gather(*map(work, ("a1", "a2", "a3", "a4", "b1", "c1", "b2")))
        assert served == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]
        await work("d1")
        assert served[-1] == "d1"

    asyncio.run(story())


def test_too_many_of_one_tenant_are_refused_and_others_are_not() -> None:
    async def story() -> None:
        turns = Turns(Cap("total", 0), Cap("per_tenant", 1))
        async with turns.take("a"):
            waiting = [asyncio.ensure_future(turns.take(each).__aenter__()) for each in "ab"]
            await asyncio.sleep(0)
            with pytest.raises(Refused, match="per_tenant"):
                await turns.take("a").__aenter__()
            for each in waiting:
                each.cancel()

    asyncio.run(story())


@pytest.mark.parametrize("is_its_turn", [False, True])
def test_who_goes_away_holds_up_nobody(is_its_turn: bool) -> None:
    async def story() -> None:
        turns = Turns(Cap("total", 0), Cap("per_tenant", 0))
        first, second, third = turns.take("a"), turns.take("a"), turns.take("a")
        await first.__aenter__()
        gone, behind = (asyncio.ensure_future(each.__aenter__()) for each in (second, third))
        await asyncio.sleep(0)
        if is_its_turn:
            await first.__aexit__(None, None, None)
            gone.cancel()
        else:
            gone.cancel()
            await asyncio.sleep(0)
            await first.__aexit__(None, None, None)
        await behind
        assert gone.cancelled()
        await third.__aexit__(None, None, None)
        async with turns.take("b"):
            pass

    asyncio.run(story())
