"""A task that answers one request, begun at once.

An `asyncio.Task` would begin in the next turn of the loop and would cost every small request a
handle for that. This one runs to its first wait where it is made. To everything it awaits it is the
current task, as the extension interface of asyncio has it.
"""

from __future__ import annotations

import asyncio
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class RequestTask(Generic[T]):
    """Runs a coroutine that never raises but when it is cancelled."""

    __slots__ = ("_cancelling", "_coroutine", "_loop", "_must_cancel", "_on_done", "_waiting")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, T],
        on_done: Callable[[RequestTask[T], T | None], None],
    ) -> None:
        self._loop = loop
        self._coroutine: Coroutine[Any, Any, T] | None = coroutine
        self._on_done = on_done
        """Called with the result, or with nothing when the task was cancelled."""
        self._waiting: asyncio.Future[Any] | None = None
        self._cancelling = 0
        self._must_cancel = False

    def step(self, _: object = None) -> None:
        """Go on to the next wait, or to the end."""
        coroutine, self._waiting = self._coroutine, None
        assert coroutine is not None
        loop = self._loop
        waiting, result, ended = None, None, True
        _enter_task(loop, self)  # type: ignore[arg-type]
        try:
            if self._must_cancel:
                self._must_cancel = False
                waiting = coroutine.throw(asyncio.CancelledError())
            else:
                waiting = coroutine.send(None)
            ended = False
        except StopIteration as end:
            result = end.value
        except asyncio.CancelledError:
            pass
        except BaseException:
            self._coroutine = None
            loop.call_soon(self._on_done, self, None)
            raise
        finally:
            _leave_task(loop, self)  # type: ignore[arg-type]
        if ended:
            self._coroutine = None
            self._on_done(self, result)
        else:
            self._wait(waiting)

    def _wait(self, waiting: asyncio.Future[Any] | None) -> None:
        if waiting is None:  # it gave way to others, as `asyncio.sleep(0)` does
            self._loop.call_soon(self.step)
            return
        waiting._asyncio_future_blocking = False
        waiting.add_done_callback(self.step)
        self._waiting = waiting
        if self._must_cancel and waiting.cancel():
            self._must_cancel = False

    # --- what asyncio asks of a task --------------------------------------------------------------

    def done(self) -> bool:
        return self._coroutine is None

    def cancel(self, msg: object = None) -> bool:
        if self._coroutine is None:
            return False
        self._cancelling += 1
        if self._waiting is None or not self._waiting.cancel():
            self._must_cancel = True
        return True

    def cancelling(self) -> int:
        return self._cancelling

    def uncancel(self) -> int:
        if self._cancelling:
            self._cancelling -= 1
        return self._cancelling
