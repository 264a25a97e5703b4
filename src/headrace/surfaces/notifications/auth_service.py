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

from headrace.core.bounded_cache import BoundedCache
from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    AUTH_AT_ONCE_MAX,
    AUTH_KEPT_S,
    AUTH_KNOWN_MAX,
    AUTH_REPLY_BYTES_MAX,
)
from headrace.delivery.http_exchange import HttpReply, exchange
from headrace.delivery.resolver import LookupFailed, Resolver
from headrace.http_response import MalformedResponse
from headrace.observe import log_line
from headrace.web.credentials import Principal
from headrace.web.json_web_tokens import Verifier

_PORTS = {"http": 80, "https": 443}
_BEARER = "bearer "


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
        self._known: BoundedCache[bytes, tuple[Principal, float]] = BoundedCache(AUTH_KNOWN_MAX)
        """Whom headers stand for, by digest, and until when that is believed."""
        self._asked: dict[bytes, asyncio.Task[Principal]] = {}
        """Questions under way, by digest of the header: who shows the same waits for the same."""
        self._fails = False
        """Whether the last question had no answer: a series of failures is told of once."""

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
        asked = self._asked.get(digest)
        if asked is None:
            if not header.isascii() or not header.isprintable():
                raise _unknown()
            if len(self._asked) >= AUTH_AT_ONCE_MAX:
                raise Refused(Code.THROTTLED, "too many credentials are being looked at")
            asked = asyncio.get_running_loop().create_task(self._ask(header, digest))
            asked.add_done_callback(_note_outcome)
            self._asked[digest] = asked
        await asyncio.wait((asked,))  # who hangs up takes the answer away from nobody
        return asked.result()

    async def _ask(self, header: str, digest: bytes) -> Principal:
        until = self._time() + AUTH_KEPT_S
        try:
            async with asyncio.timeout(self._timeout_s):
                reply = await self._exchange(header)
            principal = self._judge(reply)
        except (OSError, ValueError, LookupFailed, MalformedResponse) as error:  # TimeoutError, too
            raise self._fail(f"{type(error).__name__}: {error}") from None
        finally:
            del self._asked[digest]
        self._known.keep(digest, (principal, until))
        return principal

    def _fail(self, problem: str) -> Refused:
        if not self._fails:
            self._fails = True
            log_line("warning", "the authentication service does not answer", problem=problem)
        message = "the authentication service cannot be reached"
        return Refused(Code.NOT_READY, message, details=UNSET)

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
            self._fails = False
            raise _unknown()
        if not 200 <= reply.status < 300:
            raise self._fail(f"status {reply.status}")
        token = _token_of(reply)
        if not token:
            raise self._fail("an answer without a token")
        self._fails = False
        return self._verifier.verify(token)


def _note_outcome(asked: asyncio.Task[Principal]) -> None:
    """A refusal is no mishap, also when nobody waits for it any more."""
    if not asked.cancelled():
        asked.exception()


def _token_of(reply: HttpReply) -> str:
    """The token, from the header `Authorization` or from the body; empty if there is none."""
    header = reply.headers.get("authorization", "")
    if header[: len(_BEARER)].lower() == _BEARER:
        return header[len(_BEARER) :].strip()
    try:
        found = _reply.decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = _TokenReply()
    return found.token or found.jwt or found.access_token


def _unknown() -> Refused:
    return Refused(Code.UNAUTHENTICATED, "the credential is not known")
