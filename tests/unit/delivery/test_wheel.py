"""The wheel: everybody is attended to when it is time, and soon after."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.limits import WHEEL_TICK_S
from headrace.delivery.wheel import Wheel
from support.virtual import VirtualLoop


class Patient:
    """Notes when it was attended to; asks for each of its waits in turn."""

    def __init__(self, waits: list[float], loop: VirtualLoop) -> None:
        self.tick = 0
        self.seen: list[float] = []
        self._waits = waits
        self._loop = loop

    def attend(self, now: float) -> float:
        assert now == self._loop.time()
        self.seen.append(now)
        return self._waits[len(self.seen)] if len(self.seen) < len(self._waits) else 0


@given(st.lists(st.lists(st.floats(0.01, 70.0), min_size=1, max_size=4), max_size=6))
def test_nobody_is_early_and_nobody_is_late(everybody: list[list[float]]) -> None:
    loop = VirtualLoop()

    async def run() -> None:
        wheel = Wheel()
        patients = [Patient(waits, loop) for waits in everybody]
        for patient, waits in zip(patients, everybody, strict=True):
            wheel.put(patient, waits[0])
        await asyncio.sleep(400)
        for patient, waits in zip(patients, everybody, strict=True):
            assert len(patient.seen) == len(waits)
            before = 0.0
            for seen, wait_s in zip(patient.seen, waits, strict=True):
                assert wait_s <= seen - before + 1e-9 <= wait_s + 2 * WHEEL_TICK_S
                before = seen
        assert len(wheel) == 0

    loop.run(run())
    loop.close()


def test_what_was_taken_off_is_let_be() -> None:
    loop = VirtualLoop()

    async def run() -> None:
        wheel = Wheel()
        gone, here = Patient([1.0], loop), Patient([1.0], loop)
        wheel.put(gone, 1.0)
        wheel.put(here, 1.0)
        wheel.take(gone)
        wheel.take(gone)
        assert len(wheel) == 1
        await asyncio.sleep(5)
        assert (len(gone.seen), len(here.seen)) == (0, 1)

    loop.run(run())
    loop.close()
