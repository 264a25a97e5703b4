"""What the head of a request may say. Rules of HTTP that the parser leaves to us.

Whatever could be read in two ways, by us and by a proxy in front of us or by two ways through this
server, is refused: a header that counts once and is there twice, a body of unknown length.
"""

from __future__ import annotations

from headrace.core.limits import CONTENT_LENGTH_DIGITS_MAX, HEADERS_MAX

HOST, LENGTH, CODING, EXPECT = 1, 2, 4, 8
READ = LENGTH | CODING | EXPECT
"""Headers whose value matters before the head is complete."""

ONCE = {
    b"host": HOST,
    b"content-length": LENGTH,
    b"transfer-encoding": CODING,
    b"expect": EXPECT,
    b"authorization": 16,
    b"content-type": 32,
    b"content-encoding": 64,
    b"origin": 128,
    b"sec-fetch-site": 256,
    b"upgrade": 512,
    b"sec-websocket-key": 1024,
    b"sec-websocket-version": 2048,
}
"""Headers that a request has at most once, each with a bit of its own."""

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


def wrong_version() -> Unacceptable:
    text = "this server speaks HTTP/1.1"
    return Unacceptable(text, VERSION, "http_version_not_supported")


def repeated(name: bytes) -> Unacceptable:
    return Unacceptable(f"a request has at most one {name.decode('latin-1')} header")


def too_many() -> Unacceptable:
    text = f"a request has at most {HEADERS_MAX} headers"
    return Unacceptable(text, TOO_LARGE, "head_too_large")


def parse_length(value: bytes) -> int:
    """How long a body is; the parser let digits through, and blanks behind them."""
    digits = value.rstrip(b" \t")
    if len(digits) > CONTENT_LENGTH_DIGITS_MAX or not digits.isdigit():
        raise Unacceptable("Content-Length is not a number that can be")
    return int(digits)


def check_coding(value: bytes) -> None:
    """Refuse a body in any coding but chunks: nobody here would undo it."""
    if value.strip(b" \t").lower() != b"chunked":
        text = "the only Transfer-Encoding taken is chunked"
        raise Unacceptable(text, NOT_IMPLEMENTED, "not_implemented")


def check_version(version: str, seen: int) -> None:
    """Refuse what is neither HTTP/1.1 with a host nor HTTP/1.0."""
    if version == "1.1":
        if not seen & HOST:
            raise Unacceptable("a request needs a Host header")
    elif version == "2.0":
        raise wrong_version()
    elif version != "1.0":
        raise Unacceptable("a request begins with a line that ends in HTTP/1.1")
    elif seen & CODING:
        raise Unacceptable("HTTP/1.0 has no Transfer-Encoding")
