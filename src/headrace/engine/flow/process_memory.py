"""How much memory the process has, as far as anybody can tell; and the most there ever was.

Python knows how many blocks it gave out, not how many bytes; the C library knows what it holds free
of its heap; Arrow knows what its pool gave out; Linux knows what is resident, and of what kind.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

_STATUS = Path("/proc/self/status")
_KIB = 1024


class ProcessMemory(NamedTuple):
    """The process, in bytes. Zero where nobody can tell."""

    source: str
    rss: int
    anonymous: int
    """Resident and backed by no file: heaps and stacks."""
    file: int
    shared: int
    arrow: int
    """What Arrow's pool gave out."""
    heap: int
    """Anonymous memory without Arrow's."""
    heap_used: int
    """Of it, what the C library does not hold free."""


class Collector(NamedTuple):
    """What Python's collector did, and what it need not look at."""

    collections: tuple[int, ...]
    collected: tuple[int, ...]
    tracked: tuple[int, ...]
    """New objects in each generation."""
    frozen: int
    blocks: int
    """Blocks that Python's allocator gave out."""


def measure() -> ProcessMemory:
    """As it is now. Takes some fifty microseconds."""
    lines = _read_status()
    rss, anonymous, file, shared = (
        lines.get(name, 0) for name in ("VmRSS", "RssAnon", "RssFile", "RssShmem")
    )
    arrow = pa.total_allocated_bytes()
    heap = max(0, anonymous - arrow)
    used = max(0, heap - _free_bytes())
    source = "linux_proc_status" if lines else "unavailable"
    return ProcessMemory(source, rss, anonymous, file, shared, arrow, heap, used)


def look_at_collector() -> Collector:
    stats = gc.get_stats()
    return Collector(
        tuple(one["collections"] for one in stats),
        tuple(one["collected"] for one in stats),
        gc.get_count(),
        gc.get_freeze_count(),
        sys.getallocatedblocks(),
    )


def _read_status() -> Mapping[str, int]:
    try:
        text = _STATUS.read_text()
    except OSError:
        return {}
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB":
            found[name] = int(words[0]) * _KIB
    return found


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def _find_mallinfo() -> ctypes._NamedFuncPointer | None:
    try:
        found = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return None
    found.restype = _Mallinfo2
    return found


_mallinfo = _find_mallinfo()


def _free_bytes() -> int:
    return int(_mallinfo().fordblks) if _mallinfo is not None else 0


class Peak(NamedTuple):
    value: int
    at_ms: int


class Peaks:
    """The highest value of each number so far, and when it was."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, Peak]] = {}

    def note(self, group: str, numbers: Mapping[str, int], now_ms: int) -> None:
        peaks = self.groups.setdefault(group, {})
        for name, value in numbers.items():
            if name not in peaks or value > peaks[name].value:
                peaks[name] = Peak(value, now_ms)
