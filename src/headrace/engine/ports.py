"""What the engine needs from outside, as narrow protocols."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, ParamSpec, Protocol, TypeVar

from headrace.formats.manifest import Segment
from headrace.storage.sealing import SealJob

P = ParamSpec("P")
T = TypeVar("T")

_POOL_QUEUE_FULL = 8
"""Calls waiting for each thread that make a pool wholly busy."""


class Clock(Protocol):
    """Wall-clock time; may be virtual."""

    def now_ms(self) -> int: ...

    def now_ns(self) -> int: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def now_ns(self) -> int:
        return time.time_ns()


class Ids(Protocol):
    """Names nobody else has."""

    def token(self) -> str: ...


class RandomIds:
    def token(self) -> str:
        return secrets.token_hex(6)


class Load(NamedTuple):
    """How many threads there are, how many work, and how much waits for one."""

    threads: int
    active: int
    queued: int


class Pool(Protocol):
    """Runs blocking work off the event loop."""

    @property
    def busy(self) -> float:
        """How much work finds no thread, from 0 to 1."""

    @property
    def load(self) -> Load: ...

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...


class ThreadPool:
    """A few threads for disk reads; payload work is short, so two suffice on small machines."""

    def __init__(self, threads: int = 2) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="reader")
        self._threads = threads
        self._under_way = 0

    @property
    def busy(self) -> float:
        return min(1.0, self.load.queued / (_POOL_QUEUE_FULL * self._threads))

    @property
    def load(self) -> Load:
        active = min(self._under_way, self._threads)
        return Load(self._threads, active, self._under_way - active)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        self._under_way += 1
        try:
            return await loop.run_in_executor(self._executor, lambda: work(*args, **kwargs))
        finally:
            self._under_way -= 1

    def close(self) -> None:
        self._executor.shutdown(wait=True)


class Sealer(Protocol):
    """Does the heavy work of upkeep."""

    async def seal(self, job: SealJob) -> Segment | None:
        """Turn a closed journal range into a segment."""

    async def blank(self, path: str, size_bytes: int) -> None:
        """Make a file of zeroes, or make a file one."""

    def hurry(self, hurried: bool) -> None:
        """Have a full share of the machine, or only what others leave."""
