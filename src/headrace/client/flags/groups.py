"""Groups: flags of some namespaces of a tenant, kept up to date over one connection.

`AsyncFlagGroup` runs on the event loop of who uses it, `FlagGroup` in a thread of its own. Both are
the same session and driver; only how one waits for them differs.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, Thread
from time import monotonic
from typing import Self

from headrace.client.flags.actions import StateChanged, TreePublished
from headrace.client.flags.addresses import ServerAddress
from headrace.client.flags.driver import GroupDriver
from headrace.client.flags.listeners import Deliver
from headrace.client.flags.mirror import NamespaceMirror
from headrace.client.flags.namespaces import FlagNamespace
from headrace.client.flags.options import Namespaces, make_session
from headrace.client.flags.policy import RefreshPolicy
from headrace.client.flags.session import GroupSession
from headrace.client.http_address import Connect, connect_to

_VERIFIERS = 4
"""Trees that are verified at a time, so that a large one does not keep another one waiting."""
_CLOSE_S = 5.0
"""How long closing waits for the thread, which may be looking up a name."""
_logger = logging.getLogger("headrace.client.flags")


class _Group:
    """What both kinds of groups are made of."""

    def __init__(
        self,
        url: str,
        token: str | None,
        namespaces: Namespaces,
        policy: RefreshPolicy | None,
        connect: Connect | None,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.server = ServerAddress.parse(url)
        self.session: GroupSession = make_session(self.server, token, namespaces, policy)
        self.connect = connect or connect_to(self.server, tls)

    def drive(self, namespaces: dict[str, FlagNamespace]) -> tuple[GroupDriver, ThreadPoolExecutor]:
        """A driver of this group that tells its namespaces what there is to see."""

        def show(shown: TreePublished | StateChanged) -> None:
            namespaces[shown.namespace].tell(shown)

        executor = ThreadPoolExecutor(_VERIFIERS, "headrace-flags-verify")
        return GroupDriver(self.session, self.server, self.connect, show, executor), executor


class AsyncFlagNamespace(FlagNamespace):
    """Flags of one namespace, for who can await them."""

    def __init__(self, mirror: NamespaceMirror, environment: str | None) -> None:
        super().__init__(mirror, environment, _call_soon)
        self._decided = asyncio.Event()

    async def wait_ready(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Until there is a tree to serve.

        FlagsNotReady after so many seconds without one, or when the group ends before.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._decided.wait()
        except TimeoutError:
            pass
        self.check_ready()

    def decide(self) -> None:
        self._decided.set()


class AsyncFlagGroup:
    """Flags of some namespaces, kept up to date while `async with` lasts.

    `environment` is the one that flags are evaluated in unless a call says another. `connect` makes
    connections instead of the group, for proxies and other ways to a server. Callbacks run on the
    loop.
    """

    def __init__(
        self,
        url: str,
        *,
        namespaces: Namespaces,
        token: str | None = None,
        environment: str | None = None,
        policy: RefreshPolicy | None = None,
        connect: Connect | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._group = _Group(url, token, namespaces, policy, connect, tls)
        self._namespaces = {
            name: AsyncFlagNamespace(mirror, environment)
            for name, mirror in self._group.session.mirrors.items()
        }
        self._running: asyncio.Task[None] | None = None

    def namespace(self, name: str) -> AsyncFlagNamespace:
        """One of the namespaces that the group was made with; KeyError for any other."""
        return self._namespaces[name]

    async def wait_ready(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Until there is a tree for every namespace; FlagsNotReady after so many seconds."""
        time = asyncio.get_running_loop().time
        deadline = None if timeout is None else time() + timeout
        for namespace in self._namespaces.values():
            await namespace.wait_ready(None if deadline is None else deadline - time())

    async def __aenter__(self) -> Self:
        if self._running is not None:
            raise RuntimeError("a group is used once")
        self._driver, self._executor = self._group.drive(dict(self._namespaces))
        self._running = running = asyncio.create_task(self._driver.run())
        for namespace in self._namespaces.values():
            namespace.keep_up(lambda: not running.done())
            running.add_done_callback(lambda _, each=namespace: each.decide())  # type: ignore[misc]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._running is not None
        self._driver.stop()
        try:
            await self._running
        finally:
            self._executor.shutdown(wait=False, cancel_futures=True)


class SyncFlagNamespace(FlagNamespace):
    """Flags of one namespace, for who can block until they are there."""

    def __init__(self, mirror: NamespaceMirror, environment: str | None, deliver: Deliver) -> None:
        super().__init__(mirror, environment, deliver)
        self._decided = Event()

    def wait_ready(self, timeout: float | None = None) -> None:
        """Until there is a tree to serve.

        FlagsNotReady after so many seconds without one, or when the group ends before.
        """
        self._decided.wait(timeout)
        self.check_ready()

    def decide(self) -> None:
        self._decided.set()


class FlagGroup:
    """Flags of some namespaces, kept up to date by a thread, from `start` to `close` or in `with`.

    `environment` is the one that flags are evaluated in unless a call says another. `connect` makes
    connections instead of the group, for proxies and other ways to a server. Callbacks run one
    after another in a thread of their own. A process that forks starts its groups behind that.
    """

    def __init__(
        self,
        url: str,
        *,
        namespaces: Namespaces,
        token: str | None = None,
        environment: str | None = None,
        policy: RefreshPolicy | None = None,
        connect: Connect | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._group = _Group(url, token, namespaces, policy, connect, tls)
        self._listening = ThreadPoolExecutor(1, "headrace-flags-listen")
        self._namespaces = {
            name: SyncFlagNamespace(mirror, environment, self._deliver)
            for name, mirror in self._group.session.mirrors.items()
        }
        self._thread = Thread(target=self._run, name="headrace-flags", daemon=True)
        self._started = Event()
        for namespace in self._namespaces.values():
            namespace.keep_up(self._thread.is_alive)

    def namespace(self, name: str) -> SyncFlagNamespace:
        """One of the namespaces that the group was made with; KeyError for any other."""
        return self._namespaces[name]

    def wait_ready(self, timeout: float | None = None) -> None:
        """Until there is a tree for every namespace; FlagsNotReady after so many seconds."""
        deadline = None if timeout is None else monotonic() + timeout
        for namespace in self._namespaces.values():
            left = None if deadline is None else max(0.0, deadline - monotonic())
            namespace.wait_ready(left)

    def start(self) -> None:
        """Begin to follow; returns at once. A group is started once."""
        self._thread.start()
        self._started.wait()

    def close(self) -> None:
        """Stop following. Trees can still be evaluated, but are not kept up to date."""
        if self._thread.is_alive():
            try:
                self._loop.call_soon_threadsafe(self._driver.stop)
            except RuntimeError:
                pass  # it has just ended
            self._thread.join(_CLOSE_S)
        self._listening.shutdown(wait=False)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        asyncio.run(self._follow())

    async def _follow(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._driver, executor = self._group.drive(dict(self._namespaces))
        self._started.set()
        try:
            await self._driver.run()
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
            for namespace in self._namespaces.values():
                namespace.decide()

    def _deliver(self, call: Callable[[], None]) -> None:
        self._listening.submit(call).add_done_callback(_log_failure)


def _call_soon(call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(call)


def _log_failure(told: Future[None]) -> None:
    """A callback of a user failed: that is no reason to stop."""
    if not told.cancelled() and (error := told.exception()) is not None:
        _logger.error("a listener of flags failed", exc_info=error)
