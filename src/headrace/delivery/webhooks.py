"""Calling webhooks: only where that is safe, without redirects, with bounds on time and size."""

from __future__ import annotations

import asyncio
import http.client
import ipaddress
import re
import socket
import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import SplitResult, urlsplit

from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    WEBHOOK_REPLY_BYTES_MAX,
    WEBHOOK_TIMEOUT_S,
    WEBHOOKS_AT_ONCE,
)
from headrace.engine.subscriptions import DeliveryFailed

_LOCAL = ipaddress.ip_network("127.0.0.0/24")
_URL_LENGTH_MAX = 2048
_VISIBLE = re.compile(r"[!-~]+")
_PORTS = {"http": 80, "https": 443}
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Webhooks:
    """Sends requests from threads of its own: they wait for others, who may take their time."""

    def __init__(self, *, allow_local: bool) -> None:
        self._allow_local = allow_local
        self._pool = ThreadPoolExecutor(WEBHOOKS_AT_ONCE, thread_name_prefix="webhook")
        self._tls = ssl.create_default_context()

    def check(self, url: str) -> None:
        """Refuse a URL that must not be called, as far as the URL itself tells."""
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname or "", parts.port
            host.encode("idna")
        except ValueError:
            raise _rejected("it is not a URL") from None
        if len(url) > _URL_LENGTH_MAX or _VISIBLE.fullmatch(url) is None:
            raise _rejected("it is written in visible ASCII characters, not too many")
        if parts.username is not None or parts.password is not None or not host:
            raise _rejected("it needs a host, and no credentials")
        if parts.scheme not in _PORTS:
            raise _rejected("it must begin with https://")
        if self._is_local(parts):
            return
        if parts.scheme != "https":
            raise _rejected("it must begin with https://")
        if (address := _literal(host)) is not None and not _is_public(address):
            raise _rejected(f"{host} is not a public address")

    def _is_local(self, parts: SplitResult) -> bool:
        """Whether this is a receiver on this machine, which development may use."""
        address = _literal(parts.hostname or "")
        local = parts.hostname == "localhost" or (address is not None and address in _LOCAL)
        return self._allow_local and parts.scheme == "http" and local

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        """The body of the reply; DeliveryFailed unless it was a success."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(WEBHOOK_TIMEOUT_S):
                return await loop.run_in_executor(self._pool, self._post, url, body, headers)
        except TimeoutError:
            raise DeliveryFailed(f"no answer in {WEBHOOK_TIMEOUT_S:.0f} s") from None

    def _post(self, url: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        parts = urlsplit(url)
        target = parts.path or "/"
        if parts.query:
            target += f"?{parts.query}"
        try:
            connection = self._connect(parts)
            try:
                connection.request("POST", target, body, {**headers, "host": parts.netloc})
                response = connection.getresponse()
                reply = response.read(WEBHOOK_REPLY_BYTES_MAX)
            finally:
                connection.close()
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise DeliveryFailed(f"{type(error).__name__}: {error}") from None
        if not 200 <= response.status < 300:
            raise DeliveryFailed(f"status {response.status}")
        return reply

    def _connect(self, parts: SplitResult) -> http.client.HTTPConnection:
        """A connection to an address that was looked at: what a name means can change."""
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [str(address[0]) for *_, address in found]
        for address in map(ipaddress.ip_address, addresses):
            if not self._is_local(parts) and not _is_public(address):
                raise DeliveryFailed(f"{host} is not a public address")
        connection = http.client.HTTPConnection(host, port, timeout=WEBHOOK_TIMEOUT_S)
        connection.sock = socket.create_connection((addresses[0], port), WEBHOOK_TIMEOUT_S)
        if parts.scheme == "https":
            connection.sock = self._tls.wrap_socket(connection.sock, server_hostname=host)
        return connection

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_public(address: Address) -> bool:
    return address.is_global and not address.is_multicast


def _rejected(why: str) -> Refused:
    return Refused(Code.URL_REJECTED, f"this webhook URL is not accepted: {why}")
