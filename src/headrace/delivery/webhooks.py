"""Calling webhooks: only where that is safe, without redirects, with bounds on time and size."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from functools import cached_property
from urllib.parse import SplitResult, urlsplit

from headrace.core.digits import parse_digits
from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    WEBHOOK_ADDRESSES_MAX,
    WEBHOOK_CHECK_S,
    WEBHOOK_CONNECT_S,
    WEBHOOK_REPLY_BYTES_MAX,
    WEBHOOK_RETRY_AFTER_MS_MAX,
    WEBHOOK_TIMEOUT_S,
    WEBHOOK_URL_LENGTH_MAX,
)
from headrace.delivery.addresses import (
    Address,
    AllowedHosts,
    is_host_name,
    is_loopback,
    is_number,
    is_public,
    parse_address,
)
from headrace.delivery.connection_pool import ConnectionPool, HostKey, HttpConnection
from headrace.delivery.http_exchange import HttpReply, exchange
from headrace.delivery.resolver import LookupFailed, Resolver
from headrace.engine.callbacks.sender import DeliveryFailed, ReceiverReply
from headrace.http_response import MalformedResponse

_VISIBLE = re.compile(r"[!-~]+")
_PORTS = {"http": 80, "https": 443}
_HOW_TO_ALLOW = "the operator may allow it with HEADRACE_WEBHOOK_HOSTS"
_FAILURES = (OSError, ValueError, LookupFailed, MalformedResponse)


class Webhooks:
    """Sends requests to receivers, which may be slow, elsewhere than they seem, or hostile."""

    def __init__(self, allowed: AllowedHosts, resolver: Resolver | None = None) -> None:
        self._allowed = allowed
        self._resolver = resolver or Resolver()
        self._pool = ConnectionPool()

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()

    async def check(self, url: str) -> None:
        """Refuse a URL that must not be called: by itself, or by what its host means now."""
        self.check_url(url)
        parts = urlsplit(url)
        host = parts.hostname or ""
        try:
            async with asyncio.timeout(WEBHOOK_CHECK_S):
                addresses = await self._resolver.resolve(host, _port(parts))
        except (TimeoutError, LookupFailed):
            return  # a call looks again, and at what it finds
        try:
            self._check_addresses(parts, addresses)
        except DeliveryFailed as failure:
            raise _rejected(str(failure)) from None

    def check_url(self, url: str) -> None:
        """Refuse a URL that must not be called, as far as the URL itself tells."""
        if len(url) > WEBHOOK_URL_LENGTH_MAX or _VISIBLE.fullmatch(url) is None:
            raise _rejected("it is written in visible ASCII characters, not too many")
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname or "", parts.port
        except ValueError:
            raise _rejected("it is not a URL") from None
        if parts.username is not None or parts.password is not None:
            raise _rejected("it holds credentials")
        address = parse_address(host)
        if address is None and not is_host_name(host):
            raise _rejected("it needs a host, as https://example.com/hook")
        if address is None and is_number(host):
            raise _rejected("an address of IPv4 is written as four decimal numbers")
        if parts.scheme not in _PORTS:
            raise _rejected("it must begin with https://")
        if address is not None:
            self._check_address(parts, address)
        elif not self._may_be_private(host):
            if is_loopback(host):
                raise _rejected(f"{host} is not public; {_HOW_TO_ALLOW}")
            if parts.scheme != "https":
                raise _rejected(f"it must begin with https://; {_HOW_TO_ALLOW}")

    def _check_address(self, parts: SplitResult, address: Address) -> None:
        if self._allowed.has_address(address):
            return
        if not is_public(address):
            raise _rejected(f"{address} is not a public address; {_HOW_TO_ALLOW}")
        if parts.scheme != "https":
            raise _rejected(f"it must begin with https://; {_HOW_TO_ALLOW}")

    def _may_be_private(self, host: str) -> bool:
        """Whether a name may turn out to lead where private addresses and HTTP are allowed."""
        return self._allowed.has_name(host) or bool(self._allowed.networks)

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> ReceiverReply:
        """The reply; DeliveryFailed unless it was a success, in time."""
        try:
            async with asyncio.timeout(WEBHOOK_TIMEOUT_S):
                reply = await self._post(urlsplit(url), body, headers)
        except TimeoutError:
            raise DeliveryFailed(f"no answer in {WEBHOOK_TIMEOUT_S:g} s") from None
        except _FAILURES as error:
            raise DeliveryFailed(f"{type(error).__name__}: {error}") from None
        if not reply.status:
            raise DeliveryFailed("no answer")
        if not 200 <= reply.status < 300:
            retry_after_ms = _parse_retry_after(reply.headers.get("retry-after"), time.time())
            raise DeliveryFailed(f"status {reply.status}", reply.status, retry_after_ms)
        return ReceiverReply(reply.status, reply.body)

    async def _post(self, parts: SplitResult, body: bytes, headers: Mapping[str, str]) -> HttpReply:
        key = (parts.scheme, parts.hostname or "", _port(parts))
        if (kept := self._pool.take(key)) is not None:
            try:
                reply = await self._exchange(key, kept, parts, body, headers)
            except ConnectionError:
                pass  # it was closed meanwhile
            else:
                if reply.status:
                    return reply
        return await self._exchange(key, await self._connect(parts), parts, body, headers)

    async def _exchange(
        self,
        key: HostKey,
        connection: HttpConnection,
        parts: SplitResult,
        body: bytes,
        headers: Mapping[str, str],
    ) -> HttpReply:
        reply = await exchange(
            connection.reader, connection.writer, "POST", parts, headers,
            body=body, reply_bytes_max=WEBHOOK_REPLY_BYTES_MAX, keep=True,
        )  # fmt: skip
        if reply.reusable:
            self._pool.give(key, connection)
        return reply

    async def _connect(self, parts: SplitResult) -> HttpConnection:
        """A connection to an address that was looked at: what a name means can change."""
        host, port, tls = parts.hostname or "", _port(parts), parts.scheme == "https"
        addresses = await self._resolver.resolve(host, port)
        self._check_addresses(parts, addresses)
        problem = "there is no address"
        for address in addresses[:WEBHOOK_ADDRESSES_MAX]:
            try:
                async with asyncio.timeout(WEBHOOK_CONNECT_S):
                    reader, writer = await asyncio.open_connection(
                        str(address),
                        port,
                        ssl=self._tls if tls else None,
                        server_hostname=host if tls else None,
                    )
                return HttpConnection(reader, writer, asyncio.get_running_loop().time())
            except OSError as error:
                problem = f"{type(error).__name__}: {error}"
        raise DeliveryFailed(f"cannot connect: {problem}")

    def _check_addresses(self, parts: SplitResult, addresses: list[Address]) -> None:
        """One that must not be called is enough to call none of them."""
        host, tls = parts.hostname or "", parts.scheme == "https"
        for address in addresses:
            if not self._may_connect(host, address, tls=tls):
                problem = "is not a public address" if tls else "may not be called over http"
                raise DeliveryFailed(f"{host} {problem}; {_HOW_TO_ALLOW}")

    def close(self) -> None:
        """Close the connections that wait for the next call."""
        self._pool.close()

    def _may_connect(self, host: str, address: Address, *, tls: bool) -> bool:
        if self._allowed.has_name(host) or self._allowed.has_address(address):
            return True
        return tls and is_public(address)


def _port(parts: SplitResult) -> int:
    return parts.port or _PORTS[parts.scheme]


def _parse_retry_after(value: str | None, now_s: float) -> int | None:
    """How long a receiver wants to be left alone: seconds, or a date."""
    if value is None:
        return None
    text = value.strip()
    if (seconds := parse_digits(text, WEBHOOK_RETRY_AFTER_MS_MAX // 1000)) is not None:
        return seconds * 1000
    if text.isdigit():
        return WEBHOOK_RETRY_AFTER_MS_MAX
    try:
        wait_ms = int((parsedate_to_datetime(text).timestamp() - now_s) * 1000)
    except (ValueError, OverflowError):
        return None
    return min(max(wait_ms, 0), WEBHOOK_RETRY_AFTER_MS_MAX)


def _rejected(why: str) -> Refused:
    return Refused(Code.URL_REJECTED, f"this webhook URL is not accepted: {why}")
