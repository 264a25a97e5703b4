"""What the head of a request may say. Rules of HTTP that the parser leaves to us.

Whatever could be read in two ways, by us and by a proxy in front of us or by two ways through this
server, is refused: a header that counts once and is there twice, a body of unknown length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from headrace.core.limits import CONTENT_LENGTH_DIGITS_MAX, HEADERS_MAX

FIELDS = "headrace.fields"
"""Where a request's scope has its headers by name; of several of a name, the last."""

ONCE = frozenset(
    (
        b"host", b"content-length", b"transfer-encoding", b"expect", b"authorization",
        b"content-type", b"content-encoding", b"origin", b"sec-fetch-site", b"upgrade",
        b"sec-websocket-key", b"sec-websocket-version",
    )
)  # fmt: skip
"""Headers that a request has at most once."""

_AUTHORITY = re.compile(rb"[^/]*://([^/?#]*)")


def fields_of(scope: Mapping[str, Any]) -> dict[bytes, bytes]:
    """The headers of a request by name."""
    fields: dict[bytes, bytes] | None = scope.get(FIELDS)
    return dict(scope["headers"]) if fields is None else fields


BAD_REQUEST = b"400 Bad Request"
TIMEOUT = b"408 Request Timeout"
TOO_LARGE = b"431 Request Header Fields Too Large"
NOT_IMPLEMENTED = b"501 Not Implemented"
UNAVAILABLE = b"503 Service Unavailable"
VERSION = b"505 HTTP Version Not Supported"


class Unacceptable(Exception):
    """What came is no request that we take; the connection ends with this status."""

    def __init__(
        self, message: str, status: bytes = BAD_REQUEST, code: str = "bad_request"
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message

    @property
    def body(self) -> bytes:
        return msgspec.json.encode({"error": {"code": self.code, "message": self.message}})

    def format(self, default_headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """The whole reply, in HTTP/1.1."""
        body = self.body
        lines = [b"HTTP/1.1 " + self.status]
        lines += [b"%b: %b" % header for header in default_headers]
        lines += [b"content-type: application/json", b"content-length: %d" % len(body)]
        lines += [b"connection: close", b"", body]
        return b"\r\n".join(lines)


def wrong_version() -> Unacceptable:
    text = "this server speaks HTTP/1.1; for HTTP/2 put a proxy in front"
    return Unacceptable(text, VERSION, "http_version_not_supported")


def check_once(headers: list[tuple[bytes, bytes]]) -> None:
    """Refuse headers of which one is there twice that counts once."""
    seen = set()
    for name, _ in headers:
        if name in ONCE and name in seen:
            raise Unacceptable(f"a request has at most one {name.decode('latin-1')} header")
        seen.add(name)


def too_many() -> Unacceptable:
    text = f"a request has at most {HEADERS_MAX} headers"
    return Unacceptable(text, TOO_LARGE, "head_too_large")


def parse_length(value: bytes) -> int:
    """How long a body is; the parser let digits through, and blanks behind them."""
    digits = value if value.isdigit() else value.rstrip(b" \t")
    if len(digits) > CONTENT_LENGTH_DIGITS_MAX or not digits.isdigit():
        raise Unacceptable("Content-Length is not a number that can be")
    return int(digits)


def check_coding(value: bytes) -> None:
    """Refuse a body in any coding but chunks: nobody here would undo it."""
    if value.strip(b" \t").lower() != b"chunked":
        text = "the only Transfer-Encoding taken is chunked"
        raise Unacceptable(text, NOT_IMPLEMENTED, "not_implemented")


def check_version(version: str, fields: dict[bytes, bytes]) -> None:
    """Refuse what is neither HTTP/1.1 with a host nor HTTP/1.0."""
    if version == "1.1":
        if b"host" not in fields:
            raise Unacceptable("a request needs a Host header")
    elif version == "2.0":
        raise wrong_version()
    elif version != "1.0":
        raise Unacceptable("a request begins with a line that ends in HTTP/1.1")
    elif b"transfer-encoding" in fields:
        raise Unacceptable("HTTP/1.0 has no Transfer-Encoding")


def check_target(target: bytes, host: bytes | None) -> None:
    """Refuse a request whose first line names another host than its header does."""
    authority = _AUTHORITY.match(target)
    if host is not None and (authority is None or authority[1].lower() != host.lower()):
        raise Unacceptable("the request line and the Host header name two hosts")


def expects(value: bytes) -> bool:
    """Whether a peer waits to be asked for its body."""
    return value.lower() == b"100-continue"
