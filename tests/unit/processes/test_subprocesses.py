"""Child processes: one whose start is broken off ends, and the one who broke it off hears so."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from headrace.processes import subprocesses
from headrace.processes.subprocesses import Child

TURNS = 5
"""Of the loop, after which the pipes of a child are connected, whichever loop it is."""


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("make_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
@pytest.mark.parametrize("turns", range(1, TURNS))
def test_a_start_that_is_broken_off_says_so_and_leaves_nothing(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
    turns: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A loop closes pipes that it was given: closed once more, it could be another's descriptor,
    and an error of that in place of the cancellation is taken for something to try again.
    """
    started: list[Child] = []

    class Noted(Child):
        def __init__(self, process: Any) -> None:
            super().__init__(process)
            started.append(self)

    monkeypatch.setattr(subprocesses, "Child", Noted)

    async def script() -> None:
        starting = asyncio.create_task(subprocesses.start(["cat"], dict(os.environ)))
        for _ in range(turns):
            await asyncio.sleep(0)
        assert not starting.done()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        for _ in range(2 * TURNS):
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(asyncio.sleep(0))  # a process keeps what its first loop opened
    before = descriptors()
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(script())
    assert descriptors() == before
    assert [child.returncode for child in started] == [-signal.SIGKILL]


def test_a_child_whose_start_was_let_be_is_there() -> None:
    async def script() -> None:
        child = await subprocesses.start(["cat"], dict(os.environ))
        child.stdin.write(b"there\n")
        assert await child.stdout.readline() == b"there\n"
        child.kill()
        assert await child.wait() == -signal.SIGKILL

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(script())
