"""What Linux says about a running process."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Literal

from headrace_bench.errors import BenchError

MemoryField = Literal["VmRSS", "VmHWM"]
IDLE_LOOK_S = 0.25
IDLE_TICKS_MAX = 2


def resident_mb(pid: int) -> float:
    """The memory the process holds now."""
    return parse_memory_mb(_read_status(pid), "VmRSS")


def peak_resident_mb(pid: int) -> float:
    """The most memory the process ever held."""
    return parse_memory_mb(_read_status(pid), "VmHWM")


def parse_memory_mb(status: str, field: MemoryField) -> float:
    for line in status.splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise BenchError(f"no {field} in the status of the process")


def wait_idle(pid: int, timeout_s: float) -> None:
    """Wait until the process and its children have nothing to do, or the time is up."""
    deadline = time.monotonic() + timeout_s
    before = _cpu_ticks(pid)
    while time.monotonic() < deadline:
        time.sleep(IDLE_LOOK_S)
        now = _cpu_ticks(pid)
        if now - before <= IDLE_TICKS_MAX:
            return
        before = now


def _cpu_ticks(pid: int) -> int:
    """The processor time of a process and its children, in hundredths of a second."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(_own_ticks(number) for number in (str(pid), *children))


def _own_ticks(pid: str) -> int:
    try:
        return parse_ticks(Path(f"/proc/{pid}/stat").read_text())
    except OSError:
        return 0  # ended since it was listed


def parse_ticks(stat: str) -> int:
    """The processor time of a process, its own and what the kernel did for it."""
    return sum(map(int, stat.rpartition(")")[2].split()[11:13]))


def require_files(count: int) -> None:
    """Let this process and its children have so many files open at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise BenchError(f"needs {count} open files, may have {hard}: see `ulimit -Hn`")
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def _read_status(pid: int) -> str:
    return Path(f"/proc/{pid}/status").read_text()
