"""Asking the authentication service of mode `direct` whose credential was shown.

It is told the `Authorization` header and answers with a JSON Web Token, which is verified here.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import cached_property
from hashlib import sha256
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET

from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    AUTH_AT_ONCE_MAX,
    AUTH_KEPT_S,
    AUTH_KNOWN_MAX,
    AUTH_REPLY_BYTES_MAX,
)
from headrace.delivery.http_exchange import MALFORMED, HttpReply, exchange
from headrace.delivery.resolver import LookupFailed, Resolver
from headrace.observe import log_line
from headrace.web.credentials import Principal
from headrace.web.json_web_tokens import Verifier

_PORTS = {"http": 80, "https": 443}
_BEARER = b"bearer "


class _TokenReply(msgspec.Struct):
    token: str = ""
    jwt: str = ""
    access_token: str = ""


_reply = msgspec.json.Decoder(_TokenReply)


class AuthService:
    """A server elsewhere that knows users.

    What it said is believed for a few seconds, so that a burst of requests is one question.
    """

    def __init__(
        self, url: str, timeout_ms: int, verifier: Verifier, time: Callable[[], float]
    ) -> None:
        self._parts = urlsplit(f"{url}/authenticate")
        self._timeout_s = timeout_ms / 1000
        self._verifier = verifier
        self._time = time
        self._resolver = Resolver()
        self._known: dict[bytes, tuple[Principal, float]] = {}
        """Whom headers stand for, by digest, and until when that is believed."""
        self._under_way = 0

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()

    async def identify(self, header: str) -> Principal:
        """Say whose header this is, or refuse; 503 when the service does not answer."""
        digest = sha256(header.encode("utf-8", "surrogatepass")).digest()
        known = self._known.get(digest)
        now = self._time()
        if known is not None and known[1] > now:
            return known[0]
        principal = await self._ask(header)
        if len(self._known) >= AUTH_KNOWN_MAX:
            self._known.clear()
        self._known[digest] = (principal, now + AUTH_KEPT_S)
        return principal

    async def _ask(self, header: str) -> Principal:
        if not header.isascii() or not header.isprintable():
            raise _unknown()
        if self._under_way >= AUTH_AT_ONCE_MAX:
            raise Refused(Code.THROTTLED, "too many credentials are being looked at")
        self._under_way += 1
        try:
            async with asyncio.timeout(self._timeout_s):
                reply = await self._exchange(header)
        except (OSError, ValueError, LookupFailed, *MALFORMED) as error:  # TimeoutError, too
            problem = f"{type(error).__name__}: {error}"
            log_line("warning", "the authentication service does not answer", problem=problem)
            raise _unreachable() from None
        finally:
            self._under_way -= 1
        return self._judge(reply)

    async def _exchange(self, header: str) -> HttpReply:
        parts = self._parts
        host, tls = parts.hostname or "", parts.scheme == "https"
        port = parts.port or _PORTS[parts.scheme]
        addresses = await self._resolver.resolve(host, port)
        reader, writer = await asyncio.open_connection(
            str(addresses[0]),
            port,
            ssl=self._tls if tls else None,
            server_hostname=host if tls else None,
        )
        return await exchange(
            reader, writer, "GET", parts, {"authorization": header, "accept": "application/json"},
            reply_bytes_max=AUTH_REPLY_BYTES_MAX,
        )  # fmt: skip

    def _judge(self, reply: HttpReply) -> Principal:
        if reply.status in (401, 403):
            raise _unknown()
        if not 200 <= reply.status < 300:
            log_line("warning", "the authentication service failed", status=reply.status)
            raise _unreachable()
        return self._verifier.verify(_token_of(reply))


def _token_of(reply: HttpReply) -> str:
    """The token, from the header `Authorization` or from the body."""
    header = reply.headers.get(b"authorization", b"")
    if header[: len(_BEARER)].lower() == _BEARER:
        return header[len(_BEARER) :].decode("latin-1").strip()
    try:
        found = _reply.decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = _TokenReply()
    token = found.token or found.jwt or found.access_token
    if not token:
        log_line("warning", "the authentication service answered without a token")
        raise _unreachable()
    return token


def _unknown() -> Refused:
    return Refused(Code.UNAUTHENTICATED, "the credential is not known")


def _unreachable() -> Refused:
    return Refused(Code.NOT_READY, "the authentication service cannot be reached", details=UNSET)
