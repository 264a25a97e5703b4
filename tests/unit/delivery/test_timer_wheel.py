"""The wheel: everybody is called when it is time, and soon after."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.limits import WHEEL_TICK_S
from headrace.delivery.timer_wheel import TimerWheel
from support.virtual import VirtualLoop


class Alarm:
    """Notes when it was called; asks for each of its waits in turn."""

    def __init__(self, waits: list[float], loop: VirtualLoop) -> None:
        self.tick = 0
        self.seen: list[float] = []
        self._waits = waits
        self._loop = loop

    def on_timer(self, now: float) -> float:
        assert now == self._loop.time()
        self.seen.append(now)
        return self._waits[len(self.seen)] if len(self.seen) < len(self._waits) else 0


@given(st.lists(st.lists(st.floats(0.01, 70.0), min_size=1, max_size=4), max_size=6))
def test_nobody_is_early_and_nobody_is_late(everybody: list[list[float]]) -> None:
    loop = VirtualLoop()

    async def run() -> None:
        wheel = TimerWheel()
        alarms = [Alarm(waits, loop) for waits in everybody]
        for alarm, waits in zip(alarms, everybody, strict=True):
            wheel.schedule(alarm, waits[0])
        await asyncio.sleep(400)
        for alarm, waits in zip(alarms, everybody, strict=True):
            assert len(alarm.seen) == len(waits)
            before = 0.0
            for seen, wait_s in zip(alarm.seen, waits, strict=True):
                assert wait_s <= seen - before + 1e-9 <= wait_s + 2 * WHEEL_TICK_S
                before = seen
        assert len(wheel) == 0

    loop.run(run())
    loop.close()


def test_what_was_cancelled_is_not_called() -> None:
    loop = VirtualLoop()

    async def run() -> None:
        wheel = TimerWheel()
        gone, here = Alarm([1.0], loop), Alarm([1.0], loop)
        wheel.schedule(gone, 1.0)
        wheel.schedule(here, 1.0)
        wheel.cancel(gone)
        wheel.cancel(gone)
        assert len(wheel) == 1
        await asyncio.sleep(5)
        assert (len(gone.seen), len(here.seen)) == (0, 1)

    loop.run(run())
    loop.close()


def test_a_tick_that_comes_a_hair_too_early_is_the_tick() -> None:
    """By the resolution of the loop's clock; time does not pass while there is something to do."""
    loop = VirtualLoop()

    async def run() -> None:
        wheel, alarm = TimerWheel(), Alarm([1.0], loop)
        wheel.schedule(alarm, 1.0)
        loop.now_s = 5 * WHEEL_TICK_S - 1e-12
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(alarm.seen) == 1
        assert len(wheel) == 0

    loop.run(run())
    loop.close()
