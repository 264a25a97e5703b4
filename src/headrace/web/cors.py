"""Pages of other origins: which may call, and what a browser is told before it does."""

from __future__ import annotations

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


def shared_headers(origin: str | None, origins: tuple[str, ...]) -> list[tuple[str, str]]:
    """What every reply says to a browser; a cache must keep replies to others apart."""
    headers = [] if origins == ("*",) else [("vary", "origin")]
    allowed = allowed_origin(origin, origins)
    if allowed is not None:
        headers.append(("access-control-allow-origin", allowed))
        headers.append(("access-control-expose-headers", "*"))
    return headers
