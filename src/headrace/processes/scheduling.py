"""Whose turn it is on a processor: short turns for who answers, long ones for who works beside.

Linux lets a process finish its turn of some milliseconds before another gets one, however nice it
is; but who asks for shorter turns mostly gets theirs at once (since 6.12; before, asking changes
nothing). Mostly: one in some tens still waits for the next tick of the clock, and a request takes a
few turns. Who comes first never waits; that takes a right that the system may not have given us.
"""

from __future__ import annotations

import ctypes
import os
import platform
from contextlib import suppress
from pathlib import Path

SHORT_NS = 200_000
DEFAULT_NS = 0
_RESET_ON_FORK = 1
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
        policy = os.sched_getscheduler(pid)
        if not _is(policy, os.SCHED_OTHER):
            return  # whoever chose something else knows why
        nice = os.getpriority(os.PRIO_PROCESS, pid)
        flags = _RESET_ON_FORK if policy & os.SCHED_RESET_ON_FORK else 0
        wanted = _Attributes(ctypes.sizeof(_Attributes), os.SCHED_OTHER, flags, nice, 0, length_ns)
        ctypes.CDLL(None).syscall(number, pid, ctypes.byref(wanted), 0)


def come_first(pid: int) -> None:
    """Turns before those of all others, where we may, for a thread, 0 for this one.

    What it starts does not inherit that. Only for who works little: others can hardly work beside.
    """
    if platform.system() == "Linux" and len(os.sched_getaffinity(0)) > 1:
        with suppress(OSError):
            if _is(os.sched_getscheduler(pid), os.SCHED_OTHER):
                policy = os.SCHED_RR | os.SCHED_RESET_ON_FORK
                os.sched_setscheduler(pid, policy, os.sched_param(1))


def come_as_others() -> None:
    """This thread, which came first, has turns like everybody again, short ones."""
    if platform.system() == "Linux":
        with suppress(OSError):
            if os.sched_getscheduler(0) == os.SCHED_RR | os.SCHED_RESET_ON_FORK:
                # That children do not inherit it is not ours to take back without the right.
                policy = os.SCHED_OTHER | os.SCHED_RESET_ON_FORK
                os.sched_setscheduler(0, policy, os.sched_param(0))
                ask_for_turns(0, SHORT_NS)


def _is(policy: int, wanted: int) -> bool:
    return policy & ~os.SCHED_RESET_ON_FORK == wanted


def step_back(pid: int, nice: int) -> None:
    """Give the session of a process this much less than others.

    Linux may share processors out among sessions first and inside of them after that: then how
    nice a process is means nothing to those of other sessions, and the server is one of them.
    """
    with suppress(OSError):  # not so on this system: being nice is enough
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))
