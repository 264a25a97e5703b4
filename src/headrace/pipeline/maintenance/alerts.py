"""Alerts: somebody is told that a job keeps failing, once for each time it begins to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import msgspec

from headrace.pipeline.maintenance.history import DONE, Run
from headrace.pipeline.maintenance.policy import AlertPolicy

_COMMAND_S = 30.0


class Alert(msgspec.Struct, frozen=True):
    """A job that fails, or does its work again."""

    store: str
    job: str
    state: str
    """`failing`, or `recovered`."""
    failures: int
    problem: str | None
    at_ms: int | None


def _write(line: str) -> None:
    sys.stderr.write(f"headrace: {line}\n")
    sys.stderr.flush()


class Alerts:
    """Tells of jobs that fail, in the log and by a command."""

    def __init__(
        self, policy: AlertPolicy, store: str, write: Callable[[str], None] = _write
    ) -> None:
        self._policy = policy
        self._store = store
        self._write = write
        self._failing: set[str] = set()

    def say(self, line: str) -> None:
        self._write(line)

    def tell(self, run: Run, failures: int) -> None:
        """A run has ended, with so many failures in a row."""
        if run.outcome == DONE:
            if run.job in self._failing:
                self._failing.discard(run.job)
                self._raise(run, "recovered", 0)
            return
        self.say(f"{run.job} failed: {run.problem}")
        # The history remembers how often it failed, also of those who ran before us.
        if failures >= self._policy.after and run.job not in self._failing:
            self._failing.add(run.job)
            self._raise(run, "failing", failures)

    def _raise(self, run: Run, state: str, failures: int) -> None:
        alert = Alert(self._store, run.job, state, failures, run.problem, run.ended_at_ms)
        times = f" ({failures} times in a row)" if failures else ""
        self.say(f"alert: {run.job} of {self._store} is {state}{times}")
        if not self._policy.command:
            return
        try:
            subprocess.run(
                self._policy.command,
                input=msgspec.json.encode(alert),
                timeout=_COMMAND_S,
                check=True,
                capture_output=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            self.say(f"the command of alerts failed: {error}")
