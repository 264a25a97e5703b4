"""Scheduling and admission: at once without pressure, by priority with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import cast

import pytest

from headrace.core.config import LogConfig
from headrace.core.errors import Code, Refused
from headrace.core.limits import PARKED_WRITES_MAX, SEVERE_TICKS
from headrace.core.log import Log
from headrace.engine.flow.admission import WriteAdmission
from headrace.engine.flow.priority_scheduler import PriorityScheduler
from headrace.engine.open_log import OpenLog
from headrace.storage.journal import Journal
from headrace.storage.memory import MemoryDisk
from support.inline_ports import Inline

Done = asyncio.Queue[str]


class StoppedClock:
    def now_ms(self) -> int:
        return 1_000

    def now_ns(self) -> int:
        return self.now_ms() * 1_000_000


def make_scheduler() -> tuple[PriorityScheduler, WriteAdmission]:
    journal = Journal(MemoryDisk(), 0)
    admission = WriteAdmission(journal, StoppedClock())
    return PriorityScheduler(StoppedClock(), Inline(), admission), admission


def live_with(priority: int) -> OpenLog:
    return OpenLog(Log(1, "a", "topics", LogConfig(priority=priority)))


def press(scheduler: PriorityScheduler) -> None:
    for _ in range(SEVERE_TICKS):
        scheduler.feel(lag_ms=100)


def note(done: Done, name: str) -> Callable[[], None]:
    return lambda: done.put_nowait(name)


def on_a_loop(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), 120))

    return run


@on_a_loop
async def test_work_that_fails_does_not_keep_others_waiting() -> None:
    scheduler, _ = make_scheduler()
    done: Done = asyncio.Queue()
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))

    def fail() -> None:
        raise ValueError

    press(scheduler)
    scheduler.serve(live_with(10), fail)
    scheduler.serve(live_with(0), note(done, "other"))
    assert await done.get() == "other"
    assert len(complaints) == 1


@on_a_loop
async def test_without_pressure_work_is_done_at_once() -> None:
    scheduler, _ = make_scheduler()
    done: Done = asyncio.Queue()
    assert scheduler.serve(live_with(0), note(done, "x"))
    assert done.get_nowait() == "x"


@on_a_loop
async def test_under_pressure_the_important_goes_first_and_once() -> None:
    scheduler, _ = make_scheduler()
    scheduler.feel(lag_ms=10)
    done: Done = asyncio.Queue()
    low, high = note(done, "low"), note(done, "high")
    for _ in range(3):
        scheduler.serve(live_with(0), low)
        scheduler.serve(live_with(900), high)
    assert done.empty()
    assert [await done.get(), await done.get()] == ["high", "low"]
    assert done.empty()


@on_a_loop
async def test_negative_priorities_wait_until_pressure_falls() -> None:
    scheduler, _ = make_scheduler()
    press(scheduler)
    done: Done = asyncio.Queue()
    work = note(done, "held")
    assert not scheduler.serve(live_with(-1), work)
    assert not scheduler.serve(live_with(-1), work)
    for _ in range(20):
        scheduler.feel(lag_ms=0)
    assert await done.get() == "held"


@on_a_loop
async def test_cancelled_work_is_passed_over() -> None:
    scheduler, _ = make_scheduler()
    press(scheduler)
    done: Done = asyncio.Queue()
    gone, stays, held = note(done, "gone"), note(done, "stays"), note(done, "held")
    scheduler.serve(live_with(0), gone)
    scheduler.serve(live_with(0), stays)
    scheduler.serve(live_with(-5), held)
    scheduler.cancel(gone)
    scheduler.cancel(held)
    for _ in range(20):
        scheduler.feel(lag_ms=0)
    assert await done.get() == "stays"
    assert done.empty()


@on_a_loop
async def test_parked_writers_are_let_in_by_priority() -> None:
    _, admission = make_scheduler()
    admission.room.clear()
    order: list[int] = []

    async def write(priority: int) -> None:
        await admission.wait(priority, patient=True)
        order.append(priority)

    writers = [asyncio.create_task(write(priority)) for priority in (0, 300, 900)]
    await asyncio.sleep(0)
    assert not admission.open
    admission.room.set()
    await asyncio.gather(*writers)
    assert order == [900, 300, 0]
    assert admission.open


@on_a_loop
async def test_a_full_queue_turns_writers_away_at_once() -> None:
    _, admission = make_scheduler()
    admission.room.clear()
    parked = [
        asyncio.create_task(admission.wait(0, patient=True)) for _ in range(PARKED_WRITES_MAX)
    ]
    await asyncio.sleep(0)
    with pytest.raises(Refused) as refused:
        await admission.wait(0, patient=False)
    assert refused.value.code is Code.THROTTLED
    assert cast(int, refused.value.detail["retry_after_ms"]) > 0
    admission.room.set()
    await asyncio.gather(*parked)
