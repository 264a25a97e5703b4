"""The pipeline process is started when needed, again when it ends, and never when it cannot be."""

from __future__ import annotations

import asyncio
import errno
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.processes import pipeline_process, subprocesses
from headrace.processes.pipeline_process import PipelineProcess
from headrace.processes.subprocesses import Child

STATUS = """
import sys
print('{"segments": 3, "lag_s": 0.5}', flush=True)
sys.stdin.read()
"""
FAIL = """
import sys
print("headrace: first\\nheadrace: it broke", file=sys.stderr)
sys.exit(%d)
"""
DEAF = """
import sys, time
print('{"segments": 1}', flush=True)
while True: time.sleep(60)
"""

BUSY = """
print('{"waiting_segments": 2}', flush=True)
print('{"waiting_segments": 1}', flush=True)
"""
DONE = (
    BUSY
    + """
import sys
print('{"waiting_segments": 0}', flush=True)
sys.stdin.read()
"""
)


def _process(tmp_path: Path, program: str) -> PipelineProcess:
    return PipelineProcess(tmp_path, command=(sys.executable, "-c", program))


async def _until(condition: object) -> None:
    async with asyncio.timeout(120):
        while not condition():  # type: ignore[operator]  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_process, "LOOK_S", 0.01)
    monkeypatch.setattr(pipeline_process, "RESTART_S", (0.01,))


async def _with(process: PipelineProcess, condition: object, needed: object = lambda: True) -> None:
    """Let the process live until then; it is not started again while it is being closed."""
    task = asyncio.create_task(process.run(needed))  # type: ignore[arg-type]
    try:
        await _until(condition)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await process.close()


def test_it_waits_until_there_is_something_to_do(tmp_path: Path) -> None:
    process = _process(tmp_path, STATUS)
    looks: list[str] = []

    def needed() -> bool:
        looks.append(process.state)
        return len(looks) > 3

    asyncio.run(_with(process, lambda: process.status, needed))
    assert looks == ["waiting"] * 4
    assert process.status == {"segments": 3, "lag_s": 0.5}
    assert process.state == "running"


def test_it_is_started_again(tmp_path: Path) -> None:
    process = _process(tmp_path, FAIL % 1)
    asyncio.run(_with(process, lambda: process.restarts >= 2))
    assert process.problem == "it broke"


def test_it_is_not_started_again_where_it_cannot_run(tmp_path: Path) -> None:
    process = _process(tmp_path, FAIL % pipeline_process.CANNOT_RUN)
    asyncio.run(process.run(lambda: True))
    assert (process.state, process.problem) == ("unavailable", "it broke")
    asyncio.run(process.close())


def test_one_that_does_not_listen_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_process, "STOP_S", 0.05)
    process = _process(tmp_path, DEAF)
    asyncio.run(_with(process, lambda: process.status))
    assert process._process is not None
    assert process._process.returncode == -9


def test_one_that_is_only_just_being_started_ends_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Child] = []

    class Interrupted(Child):
        async def connect(self) -> None:
            started.append(self)
            await super().connect()
            raise asyncio.CancelledError

    monkeypatch.setattr(subprocesses, "Child", Interrupted)
    process = _process(tmp_path, DEAF)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(process.run(lambda: True))
    assert [child.returncode for child in started] == [-9]


@pytest.mark.parametrize("program", [BUSY, DONE])
def test_requests_come_first_while_it_is_at_work(
    tmp_path: Path, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it has done it all, or ended in the middle."""
    turns: list[str] = []
    monkeypatch.setattr(pipeline_process, "come_first", lambda pid: turns.append("first"))
    monkeypatch.setattr(pipeline_process, "come_as_others", lambda: turns.append("as others"))
    process = _process(tmp_path, program)
    asyncio.run(_with(process, lambda: len(turns) >= 2))
    assert turns[:2] == ["first", "as others"]


def test_a_process_that_cannot_be_started_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, refused = subprocesses.start, [0]

    async def start_late(*command: Any, **how: Any) -> Child:
        refused[0] += 1
        if refused[0] < 3:
            raise OSError(errno.EMFILE, "no descriptor is left")
        return await start(*command, **how)

    monkeypatch.setattr(subprocesses, "start", start_late)
    process = _process(tmp_path, STATUS)
    asyncio.run(_with(process, lambda: process.status))
    assert process.restarts == 2
    assert process.state == "running"
