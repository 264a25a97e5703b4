"""Pages of other origins: which may call, and what a browser is told before it does.

Around the whole application, so that every reply has the headers, whichever way it took.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import Any

METHODS = "GET, HEAD, POST, PUT, DELETE, OPTIONS"
_PREFLIGHT_S = "600"


def allowed_origin(origin: str | None, origins: tuple[str, ...]) -> str | None:
    """What a browser is told about this origin, if anything."""
    if origin is None:
        return None
    if origins == ("*",):
        return "*"
    return origin if origin in origins else None


def preflight(asked_headers: str) -> list[tuple[str, str]]:
    """What may be sent, for whoever may send at all."""
    return [
        ("allow", METHODS),
        ("access-control-allow-methods", METHODS),
        ("access-control-allow-headers", asked_headers),
        ("access-control-max-age", _PREFLIGHT_S),
    ]


class Cors:
    """An application that also answers pages of the listed origins."""

    def __init__(self, app: Any, origins: tuple[str, ...]) -> None:
        self._app = app
        self._origins = origins

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked = {name: value.decode("latin-1") for name, value in scope["headers"]}
        shared = shared_headers(asked.get(b"origin"), self._origins)
        if scope["method"] == "OPTIONS" and b"access-control-request-method" in asked:
            headers = preflight(asked.get(b"access-control-request-headers", "*"))
            await send(
                {
                    "type": "http.response.start",
                    "status": 204,
                    "headers": [*encode_headers(headers), *shared],
                }
            )
            await send({"type": "http.response.body", "body": b""})
            return

        async def reply(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *shared]
            await send(message)

        await self._app(scope, receive, reply)


def shared_headers(origin: str | None, origins: tuple[str, ...]) -> list[tuple[bytes, bytes]]:
    """What every reply says to a browser; a cache must keep replies to others apart."""
    headers = [] if origins == ("*",) else [("vary", "origin")]
    allowed = allowed_origin(origin, origins)
    if allowed is not None:
        headers.append(("access-control-allow-origin", allowed))
        headers.append(("access-control-expose-headers", "*"))
    return encode_headers(headers)


def encode_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Headers as ASGI has them."""
    return [(name.encode(), value.encode("latin-1")) for name, value in headers]
