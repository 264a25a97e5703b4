"""Crash points: the steps of a job at which a test may have it killed.

`HEADRACE_CRASH_AT=step` kills the process when it comes to that step, `step:3` when it comes there
for the third time, `step@file` the first of all processes that share the variable. Nobody else
reads it, and unset it costs nothing.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

VARIABLE = "HEADRACE_CRASH_AT"
_passed: Counter[str] = Counter()


def point(step: str) -> None:
    """Die here, without a word, if this is where we are to die."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    wanted, _, once = wanted.partition("@")
    name, _, turn = wanted.partition(":")
    if name != step:
        return
    _passed[step] += 1
    if _passed[step] == int(turn or 1) and (not once or _first(once)):
        os.kill(os.getpid(), signal.SIGKILL)


def _first(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
