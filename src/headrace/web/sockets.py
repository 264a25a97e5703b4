"""Opening a WebSocket: a GET that turns into one, authenticated and refused as any request."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from hashlib import sha1
from time import perf_counter

import falcon.asgi

from headrace.core.errors import Code, Refused
from headrace.delivery.websocket import Socket
from headrace.web.calls import STATUS, Gate, Refusals, refuse
from headrace.web.credentials import Principal
from headrace.web.protocol import CONNECTION, Protocol

BEARER = "bearer"
"""The sub-protocol by which a browser says that the next one offered is its key."""
_PACKED = "base64url."
"""Before a key that holds characters a sub-protocol may not have."""

_VERSION = "13"
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY = re.compile(r"[A-Za-z0-9+/]{22}==\Z")
_UPGRADE_REQUIRED = 426

SocketMaker = Callable[[Principal], Socket]


class SocketEndpoint:
    """A Falcon resource: GET opens a WebSocket."""

    def __init__(self, gate: Gate, refusals: Refusals, make: SocketMaker) -> None:
        self._gate = gate
        self._refusals = refusals
        self._make = make

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        started = perf_counter()
        if not _asks_for_socket(req):
            refused = Refused(Code.INVALID, "this is a WebSocket: ask for an upgrade, version 13")
            refuse(self._refusals, refused, resp, started)
            resp.status = STATUS[_UPGRADE_REQUIRED]
            resp.set_header("upgrade", "websocket")
            resp.set_header("sec-websocket-version", _VERSION)
            return
        try:
            _ = self._gate.engine  # refuses before and after the engine's time
            accept = _accept(req.get_header("SEC-WEBSOCKET-KEY"))
            offered = _offered(req)
            principal = self._authenticate(req, offered)
            self._gate.check_page(req)  # browsers open sockets for every page
            slot = self._gate.streams.take(principal)
        except Refused as refused:
            refuse(self._refusals, refused, resp, started)
            return
        connection: Protocol = req.scope[CONNECTION]
        lines = [
            b"HTTP/1.1 101 Switching Protocols",
            *(b"%b: %b" % header for header in connection.server_state.default_headers),
            b"upgrade: websocket",
            b"connection: Upgrade",
            b"sec-websocket-accept: " + accept,
        ]
        if BEARER in offered:
            lines.append(b"sec-websocket-protocol: " + BEARER.encode())
        connection.hand_over(self._make(principal), b"\r\n".join(lines) + b"\r\n\r\n", slot.free)

    def _authenticate(self, req: falcon.asgi.Request, offered: list[str]) -> Principal:
        """By header, or by the sub-protocol behind `bearer`: a browser can send nothing else."""
        header = req.get_header("AUTHORIZATION")
        if header is None and BEARER in offered[:-1]:
            return self._gate.keyring.identify(_unpack(offered[offered.index(BEARER) + 1]))
        return self._gate.keyring.authenticate(header)


def _asks_for_socket(req: falcon.asgi.Request) -> bool:
    connection = (req.get_header("CONNECTION") or "").lower()
    return (
        "upgrade" in [token.strip() for token in connection.split(",")]
        and (req.get_header("UPGRADE") or "").lower() == "websocket"
        and req.get_header("SEC-WEBSOCKET-VERSION") == _VERSION
    )


def _accept(key: str | None) -> bytes:
    if key is None or _KEY.match(key) is None:
        raise Refused(Code.INVALID, "Sec-WebSocket-Key is not what it should be")
    return base64.b64encode(sha1(key.encode() + _GUID, usedforsecurity=False).digest())


def _offered(req: falcon.asgi.Request) -> list[str]:
    offered = req.get_header("SEC-WEBSOCKET-PROTOCOL") or ""
    return [name.strip() for name in offered.split(",") if name.strip()]


def _unpack(token: str) -> str:
    if not token.startswith(_PACKED):
        return token
    packed = token[len(_PACKED) :].rstrip("=").encode()
    try:
        raw = base64.b64decode(packed + b"=" * (-len(packed) % 4), altchars=b"-_", validate=True)
        return raw.decode()
    except (binascii.Error, ValueError):
        raise Refused(Code.UNAUTHENTICATED, "unknown key") from None
