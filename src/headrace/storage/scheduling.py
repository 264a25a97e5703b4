"""Whose turn it is on a processor: short turns for who answers, long ones for who works beside.

Linux lets a process finish its turn of some milliseconds before another gets one, however nice it
is; but who asks for shorter turns gets theirs at once (since 6.12; before, asking changes nothing).
A request takes a few such turns, so it waits for none of the pipeline's any more.
"""

from __future__ import annotations

import ctypes
import os
import platform
from contextlib import suppress
from pathlib import Path

SHORT_NS = 200_000
DEFAULT_NS = 0
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}


class _Attributes(ctypes.Structure):
    """`struct sched_attr` in its first version."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


def ask_for_turns(pid: int, length_ns: int) -> None:
    """Turns of this length for a process, 0 for ourselves, and what it starts from here on."""
    number = _SCHED_SETATTR.get(platform.machine())
    if platform.system() != "Linux" or number is None:
        return
    with suppress(OSError, AttributeError):
        if os.sched_getscheduler(pid) != os.SCHED_OTHER:
            return  # whoever chose something else knows why
        nice = os.getpriority(os.PRIO_PROCESS, pid)
        wanted = _Attributes(ctypes.sizeof(_Attributes), os.SCHED_OTHER, 0, nice, 0, length_ns)
        ctypes.CDLL(None).syscall(number, pid, ctypes.byref(wanted), 0)


def step_back(pid: int, nice: int) -> None:
    """Give the session of a process this much less than others.

    Linux may share processors out among sessions first and inside of them after that: then how
    nice a process is means nothing to those of other sessions, and the server is one of them.
    """
    with suppress(OSError):  # not so on this system: being nice is enough
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))
