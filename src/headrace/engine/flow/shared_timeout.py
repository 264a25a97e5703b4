"""A shared time-out: one timer for all waits of one length, since one for each would cost more."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

_HELD_UP_S = 0.1
_GRACE_S = 1.0


class _Wait(Protocol):
    """Something that can take too long."""

    def done(self) -> bool: ...

    def set_exception(self, exception: Exception, /) -> None: ...


class SharedTimeout:
    """Ends waits that take too long. Belongs to one event loop.

    A loop that was held up waits a moment more before it gives up: who answers was probably held up
    as well, and has had no time.
    """

    def __init__(self, limit_s: float, give_up: Callable[[], Exception]) -> None:
        self.limit_s = limit_s
        self._give_up = give_up
        self._waits: deque[tuple[float, _Wait]] = deque()
        self._due: float | None = None
        """When we look next; None while there is nothing to look for."""
        self._lenient = False

    def watch(self, future: asyncio.Future[T]) -> asyncio.Future[T]:
        """The future, which fails unless it is done in time."""
        self._add(future)
        return future

    def limit(self) -> Limit:
        """A context whose task is broken off, and which raises, unless it is left in time."""
        limit = Limit()
        self._add(limit)
        return limit

    def _add(self, wait: _Wait) -> None:
        waits = self._waits
        while waits and waits[0][1].done():
            waits.popleft()
        if not wait.done():
            loop = asyncio.get_running_loop()
            waits.append((loop.time() + self.limit_s, wait))
            if self._due is None:
                self._look_at(waits[0][0], loop)

    def _look_at(self, due: float, loop: asyncio.AbstractEventLoop) -> None:
        self._due = due
        loop.call_at(due, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self._due is not None
        waits, now = self._waits, loop.time()
        self._lenient = now - self._due > _HELD_UP_S and not self._lenient
        if self._lenient:
            self._look_at(now + _GRACE_S, loop)
            return
        self._due = None
        while waits and (waits[0][1].done() or waits[0][0] <= now):
            _, wait = waits.popleft()
            if not wait.done():
                wait.set_exception(self._give_up())
        if waits:
            self._look_at(waits[0][0], loop)


class Limit:
    """What one task does in a limited time."""

    __slots__ = ("_exception", "_task")

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = asyncio.current_task()
        self._exception: Exception | None = None

    def done(self) -> bool:
        return self._task is None

    def set_exception(self, exception: Exception, /) -> None:
        assert self._task is not None
        self._exception = exception
        self._task.cancel()

    def __enter__(self) -> None:
        assert self._task is not None, "only inside a task"

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        task, self._task = self._task, None
        assert task is not None
        # Somebody else may have broken the task off at the same time: that goes on.
        if self._exception and task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise self._exception from problem
