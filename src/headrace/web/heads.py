"""What the head of a request may say. Rules of HTTP that the parser leaves to us.

Whatever could be read in two ways, by us and by a proxy in front of us or by two ways through this
server, is refused: a header that counts once and is there twice, a body of unknown length.
"""

from __future__ import annotations

import re

import msgspec

from headrace.core.limits import CONTENT_LENGTH_DIGITS_MAX, HEADERS_MAX
from headrace.web.request_ids import new_request_id

ONCE = frozenset(
    (
        b"host", b"content-length", b"transfer-encoding", b"expect", b"authorization",
        b"content-type", b"content-encoding", b"origin", b"sec-fetch-site", b"upgrade",
        b"sec-websocket-key", b"sec-websocket-version",
    )
)  # fmt: skip
"""Headers that a request has at most once."""

_AUTHORITY = re.compile(rb"[^/]*://([^/?#]*)")


BAD_REQUEST = "400 Bad Request"
TIMEOUT = "408 Request Timeout"
TOO_LARGE = "431 Request Header Fields Too Large"
NOT_IMPLEMENTED = "501 Not Implemented"
UNAVAILABLE = "503 Service Unavailable"
VERSION = "505 HTTP Version Not Supported"


class Unacceptable(Exception):
    """What came is no request that we take; the connection ends with this status."""

    def __init__(self, message: str, status: str = BAD_REQUEST, code: str = "bad_request") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message

    @property
    def body(self) -> bytes:
        return msgspec.json.encode({"error": {"code": self.code, "message": self.message}})

    def format(self, date: str) -> bytes:
        """The whole reply, in HTTP/1.1."""
        body = self.body
        head = (
            f"HTTP/1.1 {self.status}\r\n{date}content-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n"
            f"x-request-id: {new_request_id()}\r\n\r\n"
        )
        return head.encode() + body


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


def parse_target(target: bytes, host: bytes | None) -> bytes:
    """The path and query of a first line that names more; its host must be that of the header."""
    authority = _AUTHORITY.match(target)
    if host is not None and (authority is None or authority[1].lower() != host.lower()):
        raise Unacceptable("the request line and the Host header name two hosts")
    rest = target if authority is None else target[authority.end() :]
    return rest if rest[:1] == b"/" else b"/" + rest


def join(headers: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Headers by name; several of one name are one list, as HTTP has it."""
    fields: dict[bytes, bytes] = {}
    for name, value in headers:
        fields[name] = fields[name] + b", " + value if name in fields else value
    return fields


def expects(value: bytes) -> bool:
    """Whether a peer waits to be asked for its body."""
    return value.lower() == b"100-continue"
