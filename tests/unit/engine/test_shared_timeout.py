"""Waits that take too long end; those that do not cost nothing."""

from __future__ import annotations

import asyncio
import time

import pytest
import uvloop

from headrace.engine.flow.shared_timeout import SharedTimeout


class TooLong(Exception):
    pass


def test_only_what_takes_too_long_is_given_up() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        shared_timeout = SharedTimeout(0.02, TooLong)
        futures = [loop.create_future() for _ in range(4)]
        for future in futures:
            assert shared_timeout.watch(future) is future
        futures[1].set_result(None)
        with pytest.raises(TooLong):
            await futures[0]
        await futures[1]
        for future in futures[2:]:
            with pytest.raises(TooLong):
                await future
        later = shared_timeout.watch(loop.create_future())
        with pytest.raises(TooLong):
            await later

    asyncio.run(story())


def test_what_is_done_is_forgotten() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        shared_timeout = SharedTimeout(60, TooLong)
        for _ in range(100):
            future = shared_timeout.watch(loop.create_future())
            future.set_result(None)
        assert len(shared_timeout._waits) == 1

    asyncio.run(story())


def test_a_task_is_broken_off_when_its_time_is_up() -> None:
    async def story() -> None:
        shared_timeout = SharedTimeout(0.02, TooLong)
        for _ in range(2):
            with pytest.raises(TooLong), shared_timeout.limit():
                await asyncio.Event().wait()
        with shared_timeout.limit():
            pass
        await asyncio.sleep(0.05)  # nobody is broken off who was done in time
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    asyncio.run(story())


def test_the_time_in_which_a_machine_stands_still_does_not_count() -> None:
    """Who answers stood still as well, and needs a moment."""

    async def story() -> None:
        shared_timeout = SharedTimeout(0.02, TooLong)
        loop = asyncio.get_running_loop()
        answer = shared_timeout.watch(loop.create_future())
        time.sleep(0.3)  # noqa: ASYNC251  (it stands still)
        loop.call_later(0.1, answer.set_result, None)
        await answer
        with pytest.raises(TooLong):
            await shared_timeout.watch(loop.create_future())

    asyncio.run(story())


def test_a_loop_that_is_always_held_up_gives_up_nevertheless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headrace.engine.flow.shared_timeout._HELD_UP_S", -1.0)
    monkeypatch.setattr("headrace.engine.flow.shared_timeout._GRACE_S", 0.02)

    async def story() -> None:
        shared_timeout = SharedTimeout(0.02, TooLong)
        for _ in range(2):
            with pytest.raises(TooLong), shared_timeout.limit():
                await asyncio.Event().wait()

    asyncio.run(story())


def test_what_others_break_off_is_not_taken_for_too_slow() -> None:
    async def story() -> None:
        shared_timeout = SharedTimeout(60, TooLong)

        async def work() -> None:
            with shared_timeout.limit():
                began.set()
                await asyncio.Event().wait()

        began = asyncio.Event()
        task = asyncio.create_task(work())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())


def test_time_that_is_up_at_once_is_up() -> None:
    """The loop of servers makes no timer of less than half a millisecond."""

    async def story() -> None:
        shared_timeout = SharedTimeout(0.0001, TimeoutError)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(60) as hanging:
                    await shared_timeout.watch(asyncio.get_running_loop().create_future())
            assert not hanging.expired()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())
