"""Looking up host names: the one part of a callback that the operating system does in a thread."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable

from headrace.core.limits import WEBHOOK_LOOKUPS_MAX
from headrace.delivery.addresses import Address, parse_address


class LookupFailed(Exception):
    """There is no address to be had for a name."""


class Resolver:
    """Finds the addresses of hosts.

    A lookup cannot be interrupted, and a hostile name server can draw it out: each has a daemon
    thread, which neither other lookups nor the end of the process wait for.
    """

    def __init__(self) -> None:
        self._under_way = 0

    async def resolve(self, host: str, port: int) -> list[Address]:
        """The addresses of a host, in the order to try them in."""
        if (address := parse_address(host)) is not None:
            return [address]
        if self._under_way >= WEBHOOK_LOOKUPS_MAX:
            raise LookupFailed(f"{WEBHOOK_LOOKUPS_MAX} lookups are under way")
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[Address]] = loop.create_future()

        def look_up() -> None:
            try:
                addresses, problem = _look_up(host, port), None
            except (OSError, ValueError) as error:
                addresses, problem = [], error
            _call(loop, lambda: self._end(found, addresses, problem))

        threading.Thread(target=look_up, name="lookup", daemon=True).start()
        self._under_way += 1
        return await found

    def _end(
        self,
        found: asyncio.Future[list[Address]],
        addresses: list[Address],
        problem: Exception | None,
    ) -> None:
        self._under_way -= 1
        if found.done():
            return  # nobody waited so long
        if problem is not None or not addresses:
            found.set_exception(LookupFailed(f"the name has no address: {problem}"))
        else:
            found.set_result(addresses)


def _look_up(host: str, port: int) -> list[Address]:
    rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = (parse_address(str(row[4][0])) for row in rows)
    return [address for address in addresses if address is not None]


def _call(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        pass  # the loop has ended, and with it who asked
