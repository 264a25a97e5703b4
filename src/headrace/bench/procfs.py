"""What Linux says about a running process."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Literal

from headrace.bench.errors import BenchError

MemoryField = Literal["VmRSS", "VmHWM"]


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


def require_files(count: int) -> None:
    """Let this process and its children have so many files open at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise BenchError(f"needs {count} open files, may have {hard}: see `ulimit -Hn`")
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def _read_status(pid: int) -> str:
    return Path(f"/proc/{pid}/status").read_text()
