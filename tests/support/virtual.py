"""An event loop and a clock without real time: nothing sleeps, and every run is the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

EPOCH_MS = 1_700_000_000_000


class Stuck(Exception):
    """Everybody waits and nothing is going to happen."""


class _Selector:
    """Where a real loop would sleep, time passes at once."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise Stuck
        self._loop.now_s += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """Callbacks in the order asyncio promises; time moves only when nothing else can."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.complaints: list[dict[str, Any]] = []
        self._readers: dict[int, Callable[[], object]] = {}
        self._selector = _Selector(self)
        self.set_exception_handler(lambda loop, context: self.complaints.append(context))

    def time(self) -> float:
        return self.now_s

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end, together with whatever it started; then stop what is left."""
        task = self.create_task(work)
        try:
            return self.run_until_complete(task)
        finally:
            self.stop_all()

    def stop_all(self) -> None:
        """Cancel every task and every timer; how they end does not matter."""
        while tasks := asyncio.all_tasks(self):
            for task in tasks:
                task.cancel()
            self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        for timer in [*self._scheduled, *self._ready]:
            timer.cancel()

    def add_reader(self, fd: int, callback: Callable[[], object]) -> None:
        """Nobody watches descriptors here: whoever has one calls `readable`."""
        self._readers[fd] = callback

    def remove_reader(self, fd: int) -> bool:
        return self._readers.pop(fd, None) is not None

    def readable(self, fd: int) -> None:
        if fd in self._readers:
            self._readers[fd]()

    def run_in_executor(  # type: ignore[override]
        self, executor: None, work: Callable[..., T], *args: object
    ) -> asyncio.Future[T]:
        """Soon, and not beside anything else: there are no threads."""

        async def run() -> T:
            return work(*args)

        return self.create_task(run())

    def _process_events(self, event_list: list[object]) -> None:
        assert not event_list

    def _write_to_self(self) -> None:
        raise AssertionError("no other threads here")


class VirtualClock:
    """Wall-clock time that follows a virtual loop."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._held_ms: int | None = None
        self.skew_ms = 0

    def now_ms(self) -> int:
        if self._held_ms is not None:
            return self._held_ms
        return EPOCH_MS + int(self._loop.now_s * 1000) + self.skew_ms

    def now_ns(self) -> int:
        return self.now_ms() * 1_000_000

    @contextmanager
    def held(self) -> Iterator[int]:
        """Nothing grows older while one looks at all of it."""
        self._held_ms = self.now_ms()
        yield self._held_ms
        self._held_ms = None
