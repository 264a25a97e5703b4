"""The pipeline beside the server: a process that indexes and does the upkeep, looked after.

It is started once there is a segment, gives way to everybody else on the machine, and is
started again when it ends. It ends when its input does, however the server went away.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from headrace.observe import log_line
from headrace.processes import subprocesses
from headrace.processes.scheduling import (
    DEFAULT_NS,
    ask_for_turns,
    come_as_others,
    come_first,
    step_back,
)
from headrace.processes.subprocesses import Child

CANNOT_RUN = 2
"""What the process ends with when it never will: Spark or Java is not there."""
NICE = 19
STOP_S = 5.0
"""How long the process may take to end when asked."""
RESTART_S = (1.0, 5.0, 15.0, 60.0)
"""Waits before it is started again, ever longer; from the first on after it has run for long."""
LOOK_S = 1.0
"""How often we look whether there is something to do."""
LONG_RUN_S = 300.0
_WORDS_MAX = 20
ALERT = "alert: "
"""What a line begins with that is for whoever runs the server."""


class PipelineProcess:
    """Starts the process and knows how it is doing."""

    def __init__(
        self,
        data_dir: Path,
        objects: str | None = None,
        command: tuple[str, ...] | None = None,
        policy: Path | None = None,
    ) -> None:
        self._bucket = objects is not None
        self._where = ("--data-dir", str(data_dir), *(("--objects", objects) if objects else ()))
        self._command = command or (
            *(sys.executable, "-m", "headrace", "pipeline", "maintain"),
            *(("--policy", str(policy)) if policy is not None else ()),
        )
        self._process: Child | None = None
        self._busy = False
        self._words: deque[str] = deque(maxlen=_WORDS_MAX)
        self.state = "waiting"
        """`waiting` for a segment, `running`, `restarting` or `unavailable`."""
        self.problem: str | None = None
        self.restarts = 0
        self.status: dict[str, Any] = {}
        """What the process said of itself last."""

    async def run(self, is_needed: Callable[[], bool]) -> None:
        """Look after the process, once there is something to do, until there can be none."""
        while not is_needed():  # noqa: ASYNC110  (the manifest tells nobody)
            await asyncio.sleep(LOOK_S)
        failures = 0
        while True:
            started = monotonic()
            try:
                status = await self._live()
                self.problem = self._words[-1] if self._words else f"ended with status {status}"
            except OSError as error:  # no process or no descriptor is left: that may pass
                status, self.problem = -1, str(error)
            if status == CANNOT_RUN:
                self.state = "unavailable"
                log_line(
                    "warning",
                    "no pipeline: no indexes and no upkeep",
                    problem=self.problem,
                )
                return
            failures = 0 if monotonic() - started >= LONG_RUN_S else failures + 1
            wait_s = RESTART_S[min(max(failures, 1), len(RESTART_S)) - 1]
            self.state = "restarting"
            log_line("error", "the pipeline ended", problem=self.problem, wait_s=wait_s)
            await asyncio.sleep(wait_s)
            self.restarts += 1

    async def _live(self) -> int:
        """One life of the process; returns what it ended with."""
        self._words.clear()
        command = [*self._command, *self._where, "--json", "--tied"]
        environ = subprocesses.environment(bucket=self._bucket)
        self._process = process = await subprocesses.start(command, environ, stderr=True)
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
        step_back(process.pid, NICE)
        ask_for_turns(process.pid, DEFAULT_NS)  # it inherits ours
        self.state = "running"
        assert process.stderr is not None
        try:
            await asyncio.gather(self._listen(process.stdout), self._hear(process.stderr))
        finally:
            self._make_way(busy=False)
        return await process.wait()

    async def _listen(self, lines: asyncio.StreamReader) -> None:
        async for line in lines:
            with suppress(msgspec.MsgspecError):
                self.status = msgspec.json.decode(line, type=dict[str, Any])
                status = self.status
                self._make_way(busy=bool(status.get("waiting_segments") or status.get("running")))

    def _make_way(self, *, busy: bool) -> None:
        """While the process is at work, the loop comes first: that of requests, which is ours."""
        if busy is not self._busy:
            self._busy = busy
            if busy:
                come_first(0)
            else:
                come_as_others()

    async def _hear(self, lines: asyncio.StreamReader) -> None:
        async for line in lines:
            if text := line.decode(errors="replace").strip():
                said = text.removeprefix("headrace: ")
                self._words.append(said)
                if said.startswith(ALERT):
                    log_line("warning", "pipeline", said=said)

    async def close(self) -> None:
        """Let the process end; make it end if it does not."""
        process = self._process
        if process is None:
            return
        process.stdin.close()
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # Spark's own processes with it
            await process.wait()
