"""Where a server is, as its users name it, and how to connect to it."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Self
from urllib.parse import SplitResult, urlsplit

import msgspec

_PORTS = {"http": 80, "https": 443}
_VISIBLE = re.compile(r"[!-~]+\Z")

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class HttpAddress(msgspec.Struct, frozen=True):
    """A server; it may live below a path."""

    scheme: str
    host: str
    port: int
    path: str
    """What is before the paths of the surface; empty, or with a slash first and none at its end."""

    @classmethod
    def parse(cls, url: str) -> Self:
        parts = split_url(url)
        if parts is None or parts.query or parts.fragment:
            raise ValueError(f"{url!r} is not the address of a server, as http://127.0.0.1:4000")
        return cls(parts.scheme, parts.hostname or "", port_of(parts), parts.path.rstrip("/"))

    @property
    def authority(self) -> str:
        """The value of `Host`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def split_url(url: str) -> SplitResult | None:
    """The parts of a URL that a request line may hold; None for anything else."""
    if _VISIBLE.match(url) is None:
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None:
        return None
    return parts


def port_of(parts: SplitResult) -> int:
    """The port of a URL that was split."""
    return parts.port or _PORTS[parts.scheme]


def connect_to(server: HttpAddress, tls: ssl.SSLContext | None = None) -> Connect:
    """How to connect to a server; with HTTPS, its certificate is checked unless `tls` says not."""
    if server.scheme != "https":
        return partial(asyncio.open_connection, server.host, server.port)
    context = tls or ssl.create_default_context()
    return partial(asyncio.open_connection, server.host, server.port, ssl=context)
