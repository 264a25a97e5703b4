"""Runs a session on an event loop: connections, tasks, clock. All decisions are the session's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from headrace.client.feeds.actions import (
    BeatWanted,
    FeedAction,
    HintsCancelled,
    HintsWanted,
    PageCancelled,
    PageFetched,
    PageRefused,
    PageWanted,
)
from headrace.client.feeds.items import FeedGap, FeedPage, FeedRefused
from headrace.client.feeds.requests import FeedRequest, parse_reply
from headrace.client.feeds.session import FeedSession
from headrace.client.kept_connection import KeptConnection
from headrace.core.limits import FEED_CLIENT_PAGE_BYTES_MAX
from headrace.http_response import MalformedResponse

_FAILURES = (OSError, MalformedResponse, UnicodeError)
"""UnicodeError: a host that cannot be looked up by its name."""
_logger = logging.getLogger("headrace.client.feeds")


class HintCall(Protocol):
    """One call for hints."""

    problem: str
    """Why it ended, if somebody knows."""

    def follow(self) -> AsyncIterator[tuple[str, int]]: ...
    async def beat(self) -> None: ...


class FeedDriver:
    """One run of a session, from `run` to `stop`."""

    def __init__(
        self,
        session: FeedSession,
        request: FeedRequest,
        connection: KeptConnection,
        call_hints: Callable[[], HintCall] | None,
    ) -> None:
        self._session = session
        self._request = request
        self._connection = connection
        self._call_hints = call_hints
        self._stopped = asyncio.Event()
        self._changed = asyncio.Event()
        self._page: asyncio.Task[None] | None = None
        self._hints: asyncio.Task[None] | None = None
        self._call: HintCall | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._problem = self._hints_problem = ""
        """What was last told of."""

    async def run(self) -> None:
        """Follow until stopped."""
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.TaskGroup() as self._tasks:
                try:
                    self._tell(self._session.start)
                    await self._stopped.wait()
                finally:
                    self._end()
        finally:
            self._connection.close()

    def stop(self) -> None:
        self._stopped.set()
        self._changed.set()

    async def next(self, is_done: bool) -> FeedPage | FeedGap:
        """What comes next; with `is_done`, the reader is done with what it had. Raises FeedRefused,
        and StopAsyncIteration once stopped.
        """
        if is_done:
            self._tell(self._session.release)
        while (ready := self._session.ready) is None:
            if self._stopped.is_set():
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        if isinstance(ready, FeedRefused):
            raise ready
        return ready

    def _end(self) -> None:
        self.stop()
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._page, self._hints):
            if task is not None:
                task.cancel()

    def _tell(self, happened: Callable[..., None], *about: object) -> None:
        """Tell the session what happened, and do what it wants."""
        if self._stopped.is_set():
            return
        happened(*about, self._loop.time())
        self._report()
        for action in self._session.take_actions():
            self._do(action)
        if self._session.ready is not None:
            self._changed.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (wake_at := self._session.wake_at) is not None:
            self._timer = self._loop.call_at(wake_at, self._tell, self._session.tick)

    def _report(self) -> None:
        """Say why nothing comes, once: whoever waits would not know."""
        if self._problem == (problem := self._session.problem):
            return
        self._problem = problem
        where = self._request.tenant, self._request.server.authority
        if problem:
            _logger.warning("no events of %s from %s: %s; it is tried again", *where, problem)
        else:
            _logger.info("events of %s come from %s", *where)

    def _report_hints(self, problem: str) -> None:
        """Say why there are none, once."""
        if problem and problem != self._hints_problem:
            tenant = self._request.tenant
            _logger.warning("no hints for %s: %s; events come all the same", tenant, problem)
        self._hints_problem = problem

    def _do(self, action: FeedAction) -> None:
        match action:
            case PageWanted():
                self._page = self._tasks.create_task(self._fetch(action))
            case PageCancelled():
                if self._page is not None:
                    self._page.cancel()
            case HintsWanted(number=number):
                self._hints = self._tasks.create_task(self._follow(number))
            case HintsCancelled():
                self._report_hints("no answer")
                if self._hints is not None:
                    self._hints.cancel()
            case BeatWanted():
                if self._call is not None:
                    self._tasks.create_task(self._call.beat())

    async def _fetch(self, wanted: PageWanted) -> None:
        outcome: PageFetched | PageRefused
        request = self._request
        try:
            reply = await self._connection.get(
                request.target(wanted), request.headers, FEED_CLIENT_PAGE_BYTES_MAX
            )
            outcome = parse_reply(reply)
        except _FAILURES as error:
            outcome = PageRefused(0, message=str(error) or type(error).__name__)
        self._tell(self._session.fetched, wanted.number, outcome)

    async def _follow(self, number: int) -> None:
        assert self._call_hints is not None
        session = self._session
        self._call = call = self._call_hints()
        happened = {"confirmed": session.hints_confirmed, "hinted": session.hinted}
        async for said, latest in call.follow():
            self._hints_problem = ""
            if said in happened:
                self._tell(happened[said], number, latest)
            else:
                self._tell(session.hints_alive, number)
        self._report_hints(call.problem)
        self._tell(session.hints_ended, number)
