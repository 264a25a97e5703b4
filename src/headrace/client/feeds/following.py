"""Feeds for programs: `AsyncFeed` on the event loop of who uses it, `Feed` in a thread of its own.

Both are the same session and driver; only how one waits for them differs.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Iterable
from concurrent.futures import CancelledError
from functools import partial
from threading import Event, Thread
from typing import Any, Self

from headrace.client.feeds.driver import FeedDriver
from headrace.client.feeds.items import FeedGap, FeedPage
from headrace.client.feeds.policy import FollowPolicy
from headrace.client.feeds.requests import FeedRequest, listed
from headrace.client.feeds.session import FeedSession
from headrace.client.http_address import Connect, HttpAddress, connect_to
from headrace.client.kept_connection import KeptConnection

_CLOSE_S = 5.0
"""How long closing waits for the thread, which may be looking up a name."""


class AsyncFeed:
    """A tenant's events behind `after`, while `async with` lasts; in a loop, pages and gaps.

    A page counts as done when the next one is asked for. Whoever ends before that gets it again,
    from the cursor that was kept. `key` is an API key or a JSON Web Token. `hints` is where gRPC is
    (`host:port`); without it, or while it is not there, requests wait at the server. `hints_tls`
    are certificates to trust there, as PEM; empty: those of the system. `connect` makes connections
    for requests instead of the feed.
    """

    def __init__(
        self,
        url: str,
        tenant: str,
        *,
        after: int = 0,
        key: str | None = None,
        hints: str | None = None,
        hints_tls: bytes | None = None,
        resource_types: Iterable[str] = (),
        event_types: Iterable[str] = (),
        template_id: str | None = None,
        environment_id: str | None = None,
        policy: FollowPolicy | None = None,
        connect: Connect | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        policy, server = policy or FollowPolicy(), HttpAddress.parse(url)
        request = FeedRequest(
            server=server,
            tenant=tenant,
            key=key,
            resource_types=listed(resource_types),
            event_types=listed(event_types),
            template_id=template_id,
            environment_id=environment_id,
            limit=policy.limit,
        )
        call_hints = None
        if hints is not None:
            # (Here and not above: the extra `grpc` need not be there for who has no hints.)
            from headrace.client.feeds.grpc_hints import GrpcHints

            call_hints = partial(
                GrpcHints, hints, hints_tls, tenant, request.resource_types, request.credential
            )
        self._session = FeedSession(after, policy, random.random, with_hints=call_hints is not None)
        connection = KeptConnection(server, connect or connect_to(server, tls), "headrace-feeds")
        self._driver = FeedDriver(self._session, request, connection, call_hints)
        self._running: asyncio.Task[None] | None = None
        self._has_item = False

    @property
    def cursor(self) -> int:
        """Everything up to here is done: go on behind it."""
        return self._session.cursor

    @property
    def has_hints(self) -> bool:
        """Whether the server tells, at the moment, when to ask."""
        return self._session.has_hints

    @property
    def problem(self) -> str:
        """Why the last request brought nothing, and is tried again; empty: it did not fail."""
        return self._session.problem

    async def __aenter__(self) -> Self:
        if self._running is not None:
            raise RuntimeError("a feed is used once")
        self._running = asyncio.create_task(self._driver.run())
        # A driver that fails must not leave who waits behind.
        self._running.add_done_callback(lambda _: self._driver.stop())
        await asyncio.sleep(0)  # it begins
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._running is not None
        self._driver.stop()
        await self._running

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> FeedPage | FeedGap:
        """The next page or gap; raises FeedRefused. May be cancelled, and asked again."""
        is_done, self._has_item = self._has_item, False
        item = await self._driver.next(is_done)
        self._has_item = True
        return item


class Feed:
    """The same for who can block: a thread follows, from `start` to `close` or in `with`."""

    def __init__(self, url: str, tenant: str, **options: Any) -> None:
        self._make = partial(AsyncFeed, url, tenant, **options)
        self._make()  # says at once what is wrong
        self._thread = Thread(target=self._run, name="headrace-feed", daemon=True)
        self._started = Event()

    @property
    def cursor(self) -> int:
        """Everything up to here is done: go on behind it."""
        return self._feed.cursor

    @property
    def has_hints(self) -> bool:
        """Whether the server tells, at the moment, when to ask."""
        return self._feed.has_hints

    @property
    def problem(self) -> str:
        """Why the last request brought nothing, and is tried again; empty: it did not fail."""
        return self._feed.problem

    def start(self) -> None:
        """Begin to follow. A feed is started once."""
        self._thread.start()
        self._started.wait()

    def close(self) -> None:
        """Stop following; who waits for the next page gets no more."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closed.set)
            self._thread.join(_CLOSE_S)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> FeedPage | FeedGap:
        """The next page or gap; raises FeedRefused."""
        if self._loop.is_closed():
            raise StopIteration
        try:
            found = asyncio.run_coroutine_threadsafe(self._next(), self._loop).result()
        except CancelledError:  # closed meanwhile
            found = None
        if found is None:
            raise StopIteration
        return found

    async def _next(self) -> FeedPage | FeedGap | None:
        try:
            return await anext(self._feed)
        except StopAsyncIteration:
            return None

    def _run(self) -> None:
        asyncio.run(self._follow())

    async def _follow(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._closed = asyncio.Event()
        self._feed = self._make()
        async with self._feed:
            self._started.set()
            await self._closed.wait()
