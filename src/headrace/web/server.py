"""The HTTP server: one listener, its connections, and how it stops."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from email.utils import formatdate
from functools import partial

from headrace.web.connection import Connection, Connections, Respond

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LOOK_S = 0.05
"""How often a server that stops looks whether all is said."""


class HttpServer:
    """Serves until it is told to stop, by a call or by a signal."""

    def __init__(self, respond: Respond, shared: Connections, drain_s: float) -> None:
        self._respond = respond
        self._shared = shared
        self._drain_s = drain_s
        """How long requests under way may take when the server stops."""
        self._stopping = asyncio.Event()
        self._at_once = False

    async def serve(
        self, listener: socket.socket, backlog: int, on_stop: Callable[[], None]
    ) -> None:
        """Serve until it is time to stop; `on_stop` is called first then.

        SIGTERM stays handled until the process ends: `timeout` and others send it twice, and the
        last snapshot is yet to be written. Ctrl-C breaks even that off.
        """
        loop = asyncio.get_running_loop()
        for each in _SIGNALS:
            loop.add_signal_handler(each, self._on_signal, each, on_stop)
        self._tick(loop)
        make = partial(Connection, self._respond, self._shared)
        server = await loop.create_server(make, sock=listener, backlog=backlog)
        try:
            await self._stopping.wait()
        finally:
            server.close()
            await self._drain()
            loop.remove_signal_handler(signal.SIGINT)

    def stop(self) -> None:
        """Stop gracefully."""
        self._shared.stopping = True
        self._stopping.set()

    def _on_signal(self, number: signal.Signals, on_stop: Callable[[], None]) -> None:
        """Stop gracefully, and at once when asked by Ctrl-C a second time."""
        self._at_once = self._stopping.is_set() and number == signal.SIGINT
        self._shared.stopping = True  # whoever is woken by this gets the last answer
        on_stop()
        self._stopping.set()

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._shared.date = f"date: {formatdate(usegmt=True)}\r\n"
        self._timer = loop.call_later(1.0, self._tick, loop)

    async def _drain(self) -> None:
        """Answer what is under way, end what is followed, and cut off what takes too long."""
        shared = self._shared
        for connection in tuple(shared.open):
            connection.shutdown()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._drain_s
        # (An event that every connection sets when it ends would cost each of them something.)
        while (  # noqa: ASYNC110
            (shared.open or shared.tasks) and not self._at_once and loop.time() < deadline
        ):
            await asyncio.sleep(_LOOK_S)
        self._timer.cancel()
        for task in tuple(shared.tasks.values()):
            task.cancel()
