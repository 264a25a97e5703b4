"""Opening a WebSocket: a GET that turns into one, authenticated and refused as any request."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from hashlib import sha1

from headrace.core.base64url import decode_base64url
from headrace.core.errors import Code, Refused
from headrace.delivery.websocket import Socket
from headrace.web.answers import Answer, Handover
from headrace.web.calls import Call, Gate
from headrace.web.credentials import NOBODY, Principal
from headrace.web.request import Request

BEARER = "bearer"
"""The sub-protocol by which a browser says that the next one offered is its key."""
_PACKED = "base64url."
"""Before a key that holds characters a sub-protocol may not have."""

_VERSION = "13"
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY = re.compile(r"[A-Za-z0-9+/]{22}==\Z")
_SWITCHING, _UPGRADE_REQUIRED = 101, 426


def open_socket(call: Call, make: Callable[[], Socket]) -> Answer | Handover:
    """Hand the connection of a request over to a socket, if it asks for one as it must."""
    req = call.req
    if not _asks_for_socket(req):
        refused = Refused(Code.INVALID, "this is a WebSocket: ask for an upgrade, version 13")
        answer = call.refuse(refused)
        answer.status = _UPGRADE_REQUIRED
        answer.headers += [("upgrade", "websocket"), ("sec-websocket-version", _VERSION)]
        return answer
    _ = call.engine  # refuses before and after the engine's time
    headers = [
        ("upgrade", "websocket"),
        ("connection", "Upgrade"),
        ("sec-websocket-accept", _accept(req.get_header("sec-websocket-key"))),
    ]
    if BEARER in _offered(req):
        headers.append(("sec-websocket-protocol", BEARER))
    call.gate.check_page(req)  # browsers open sockets for every page
    return Handover(make(), headers, status=_SWITCHING)


def by_key_or_subprotocol(gate: Gate, req: Request) -> Principal:
    """Who asks: by header, or by the sub-protocol behind `bearer`: a browser sends nothing else."""
    header, offered = req.get_header("authorization"), _offered(req)
    if not _asks_for_socket(req):
        return NOBODY  # it is told what this is, whoever it is
    if header is None and BEARER in offered[:-1]:
        return gate.credentials.identify(_unpack(offered[offered.index(BEARER) + 1]))
    return gate.credentials.authenticate(header)


def _asks_for_socket(req: Request) -> bool:
    connection = (req.get_header("CONNECTION") or "").lower()
    return (
        "upgrade" in [token.strip() for token in connection.split(",")]
        and (req.get_header("UPGRADE") or "").lower() == "websocket"
        and req.get_header("SEC-WEBSOCKET-VERSION") == _VERSION
    )


def _accept(key: str | None) -> str:
    if key is None or _KEY.match(key) is None:
        raise Refused(Code.INVALID, "Sec-WebSocket-Key is not what it should be")
    digest = sha1(key.encode() + _GUID, usedforsecurity=False).digest()
    return base64.b64encode(digest).decode()


def _offered(req: Request) -> list[str]:
    offered = req.get_header("SEC-WEBSOCKET-PROTOCOL") or ""
    return [name.strip() for name in offered.split(",") if name.strip()]


def _unpack(token: str) -> str:
    if not token.startswith(_PACKED):
        return token
    try:
        return decode_base64url(token[len(_PACKED) :]).decode()
    except ValueError:
        raise Refused(Code.UNAUTHENTICATED, "unknown key") from None
