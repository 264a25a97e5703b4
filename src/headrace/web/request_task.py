"""A task that answers one request, begun at once.

An `asyncio.Task` would begin in the next turn of the loop and would cost every small request a
handle for that. This one runs to its first wait where it is made. To everything it awaits it is the
current task, as the extension interface of asyncio has it.
"""

from __future__ import annotations

import asyncio
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Coroutine
from typing import Any


class RequestTask:
    """Runs coroutines, one after the other; a subclass says what comes after each."""

    _loop: asyncio.AbstractEventLoop
    """Set by the subclass."""
    _coroutine: Coroutine[Any, Any, Any] | None = None
    _waiting: asyncio.Future[Any] | None = None
    _cancelling = 0
    _must_cancel = False

    def ended(self, result: Any, error: BaseException | None) -> None:
        """A coroutine ended with this result, or raised this."""
        raise NotImplementedError

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine to its first wait, or to its end."""
        self._coroutine = coroutine
        self.step()

    def step(self, _: object = None) -> None:
        """Go on to the next wait, or to the end."""
        coroutine, self._waiting = self._coroutine, None
        assert coroutine is not None
        loop = self._loop
        _enter_task(loop, self)  # type: ignore[arg-type]
        try:
            if self._must_cancel:
                self._must_cancel = False
                waiting = coroutine.throw(asyncio.CancelledError())
            else:
                waiting = coroutine.send(None)
        except StopIteration as end:
            _leave_task(loop, self)  # type: ignore[arg-type]
            self._coroutine = None
            self.ended(end.value, None)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  (it is handed on)
            _leave_task(loop, self)  # type: ignore[arg-type]
            self._coroutine = None
            self.ended(None, error)
        except BaseException:
            _leave_task(loop, self)  # type: ignore[arg-type]
            self._coroutine = None
            loop.call_soon(self.ended, None, asyncio.CancelledError())
            raise
        else:
            _leave_task(loop, self)  # type: ignore[arg-type]
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
