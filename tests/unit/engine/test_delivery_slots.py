"""Slots for webhooks: nobody who is slow, or has many, takes them all."""

from __future__ import annotations

import asyncio

import pytest

from headrace.core.limits import WEBHOOK_SLOW_S
from headrace.engine.callbacks.delivery_slots import DeliverySlots
from support.virtual import VirtualLoop


class Caller:
    """Holds a slot until it is told to go on."""

    def __init__(self, slots: DeliverySlots, key: str, *, slow: bool = False) -> None:
        self.holds = False
        self._over = asyncio.Event()
        self.task = asyncio.create_task(self._call(slots, key, slow))

    async def _call(self, slots: DeliverySlots, key: str, slow: bool) -> None:
        async with slots.hold(key, slow=slow):
            self.holds = True
            try:
                await self._over.wait()
            finally:
                self.holds = False

    async def end(self) -> None:
        self._over.set()
        await self.task
        await settle()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def holding(callers: list[Caller]) -> int:
    return sum(caller.holds for caller in callers)


def test_a_key_has_its_share_and_no_more() -> None:
    async def story() -> None:
        slots = DeliverySlots(total=8, per_key=3, slow=8)
        many = [Caller(slots, "a") for _ in range(10)]
        await settle()
        assert holding(many) == 3
        other = Caller(slots, "b")
        await settle()
        assert other.holds
        await many[0].end()
        assert holding(many) == 3

    asyncio.run(story())


def test_slow_receivers_leave_room_for_others() -> None:
    async def story() -> None:
        slots = DeliverySlots(total=8, per_key=8, slow=4)
        slow = [Caller(slots, "", slow=True) for _ in range(20)]
        await settle()
        assert holding(slow) == 4
        fast = [Caller(slots, "") for _ in range(5)]
        await settle()
        assert holding(fast) == 4
        await slow[0].end()
        assert (holding(slow), holding(fast)) in ((4, 4), (3, 5))

    asyncio.run(story())


def test_keys_take_turns() -> None:
    async def story() -> None:
        slots = DeliverySlots(total=1, per_key=1, slow=1)
        first = Caller(slots, "a")
        await settle()
        many = [Caller(slots, "a") for _ in range(10)]
        await settle()
        late = Caller(slots, "b")
        await settle()
        await first.end()
        await next(caller for caller in [*many, late] if caller.holds).end()
        assert late.holds or (late.task.done() and holding(many) == 1)

    asyncio.run(story())


def test_who_waits_no_more_leaves_nothing_behind() -> None:
    async def story() -> None:
        slots = DeliverySlots(total=1, per_key=1, slow=1)
        holder = Caller(slots, "a")
        await settle()
        waiting = [Caller(slots, "a") for _ in range(3)]
        await settle()
        waiting[0].task.cancel()
        waiting[2].task.cancel()
        await settle()
        await holder.end()
        assert waiting[1].holds
        # Given a slot and cancelled in the same turn: the slot goes on.
        last = Caller(slots, "a")
        await settle()
        waiting[1]._over.set()
        await asyncio.sleep(0)
        last.task.cancel()
        await settle()
        assert not slots._lanes
        assert not slots._held

    asyncio.run(story())


def test_all_are_cancelled_at_once() -> None:
    async def story() -> None:
        slots = DeliverySlots(total=2, per_key=2, slow=2)
        callers = [Caller(slots, key, slow=key == "b") for key in "aaabbb"]
        await settle()
        for caller in callers:
            caller.task.cancel()
        ended = await asyncio.gather(*(each.task for each in callers), return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended
        assert not slots._lanes
        assert not slots._held
        fresh = Caller(slots, "a")
        await settle()
        assert fresh.holds
        await fresh.end()

    asyncio.run(story())


def test_a_call_that_turns_out_to_be_slow_gives_its_slot_to_others() -> None:
    loop = VirtualLoop()

    async def story() -> None:
        slots = DeliverySlots(total=2, per_key=2, slow=1, overdue=3)
        many = [Caller(slots, "a") for _ in range(6)]
        await settle()
        assert holding(many) == 2
        await asyncio.sleep(WEBHOOK_SLOW_S + 0.1)
        assert holding(many) == 4
        await asyncio.sleep(WEBHOOK_SLOW_S)
        assert holding(many) == 5, "three go on without a slot, and no more"
        await asyncio.sleep(10 * WEBHOOK_SLOW_S)
        assert holding(many) == 5
        await many[0].end()
        assert holding(many) == 4, "it had no slot to give"
        for caller in many[1:5]:
            await caller.end()
        assert holding(many) == 1
        late = [Caller(slots, "b") for _ in range(3)]
        await settle()
        assert holding(late) == 1, "every slot was given back once"

    loop.run(story())
    loop.close()


class CountedKey(str):
    """A key that counts how often somebody looks for it, whoever it is of."""

    looks = 0

    def __hash__(self) -> int:
        CountedKey.looks += 1
        return super().__hash__()

    __eq__ = str.__eq__


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("per_key", [0, 1])
def test_a_slot_that_is_freed_costs_the_same_however_many_keys_wait(
    per_key: int, slow: bool
) -> None:
    async def looks(waiting: int) -> int:
        slots = DeliverySlots(total=4, per_key=per_key, slow=2)
        keys = [CountedKey(f"key{number}") for number in range(waiting)]
        first = Caller(slots, keys[0], slow=slow)
        callers = [Caller(slots, key, slow=slow) for key in [*keys, *keys]]
        await settle()
        CountedKey.looks = 0
        await first.end()
        taken = CountedKey.looks
        for caller in callers:
            caller.task.cancel()
        await asyncio.gather(*(each.task for each in callers), return_exceptions=True)
        assert not slots._lanes
        assert not slots._held
        assert not any(slots._turns.values())
        return taken

    assert asyncio.run(looks(10)) == asyncio.run(looks(500))


def test_who_waits_for_a_share_of_its_key_goes_on_with_it() -> None:
    async def story() -> None:
        slots = DeliverySlots(total=4, per_key=1, slow=4)
        holder = Caller(slots, "a", slow=True)
        await settle()
        prompt, slow = Caller(slots, "a"), Caller(slots, "a", slow=True)
        others = [Caller(slots, key) for key in "bcde"]
        await settle()
        assert holding(others) == 3
        await holder.end()
        assert (prompt.holds, slow.holds, holding(others)) == (False, False, 4)
        await others[0].end()
        assert (prompt.holds, slow.holds) == (True, False)
        await prompt.end()
        assert slow.holds
        await slow.end()

    asyncio.run(story())
