"""Turns on a processor, as the kernel tells them."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys

import pytest

from headrace.processes.scheduling import DEFAULT_NS, SHORT_NS, ask_for_turns

_SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}


def turn_ns(pid: int) -> int:
    """How long a turn of a process is; 0 where the kernel does not say."""
    number = _SCHED_GETATTR.get(platform.machine())
    if platform.system() != "Linux" or number is None:
        return 0
    told = (ctypes.c_uint8 * 48)()
    if ctypes.CDLL(None).syscall(number, pid, told, 48, 0):
        return 0
    return int.from_bytes(bytes(told)[24:32], sys.byteorder)


def test_a_process_gets_what_was_asked_for_and_stays_as_nice_as_it_was() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        usual = turn_ns(child.pid)
        os.setpriority(os.PRIO_PROCESS, child.pid, 5)
        ask_for_turns(child.pid, SHORT_NS)
        short = turn_ns(child.pid)
        ask_for_turns(child.pid, DEFAULT_NS)
        assert os.getpriority(os.PRIO_PROCESS, child.pid) == 5
        again = turn_ns(child.pid)
        child.kill()
    if not usual:
        pytest.skip("this kernel does not tell")
    assert (short, again) == (SHORT_NS, usual)


def test_a_process_that_is_gone_is_no_error() -> None:
    ask_for_turns(2**22, SHORT_NS)


POLICY = "import os; print(os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK)"
FIRST = f"""
import os, subprocess, sys, threading
from headrace.processes.scheduling import come_as_others, come_first
def tell(): {POLICY}
come_first(0)
tell()
thread = threading.Thread(target=tell); thread.start(); thread.join()
subprocess.run([sys.executable, "-c", {POLICY!r}], check=True)
come_as_others()
tell()
"""


@pytest.mark.skipif(platform.system() != "Linux", reason="schedulers differ")
def test_who_comes_first_does_so_alone_and_until_it_steps_down() -> None:
    told = subprocess.run(
        [sys.executable, "-u", "-c", FIRST], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.split()
    first, *others = map(int, told)
    assert others == [os.SCHED_OTHER] * 3
    # Without the right to it, and on a single processor, it stays one among others.
    assert first in (os.SCHED_RR, os.SCHED_OTHER)
    if len(os.sched_getaffinity(0)) > 1 and may_come_first():
        assert first == os.SCHED_RR


def may_come_first() -> bool:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        try:
            os.sched_setscheduler(child.pid, os.SCHED_RR, os.sched_param(1))
        except PermissionError:
            return False
        finally:
            child.kill()
    return True
