"""Request bodies: the right type, within the limit before and after decompression, valid UTF-8."""

from __future__ import annotations

import re
import zlib

import falcon.asgi

from headrace.core.errors import Code, Refused
from headrace.core.limits import NESTING_MAX

_JSON = "application/json"
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


async def read_bytes(req: falcon.asgi.Request, bytes_max: int) -> bytes:
    """The body, whatever it is; empty when there is none."""
    return _unpack(req, await _receive(req, bytes_max), bytes_max)


async def read_body(req: falcon.asgi.Request, bytes_max: int) -> bytes:
    """The body as UTF-8 JSON text; empty when there is none."""
    raw = await _receive(req, bytes_max)
    if raw and req.content_type != _JSON:
        check_json_type(req.content_type)
    raw = _unpack(req, raw, bytes_max)
    check_utf8(raw)
    return raw


async def _receive(req: falcon.asgi.Request, bytes_max: int) -> bytes:
    length = req.content_length
    if length is not None and length > bytes_max:
        raise _too_large(bytes_max)
    raw = await req.stream.read(bytes_max + 1)
    if len(raw) > bytes_max:
        raise _too_large(bytes_max)
    if length is not None and len(raw) < length:
        raise cut_short()
    return raw


def _unpack(req: falcon.asgi.Request, raw: bytes, bytes_max: int) -> bytes:
    encoding = req.get_header("CONTENT-ENCODING") if raw else None
    return _decompress(raw, encoding, bytes_max) if encoding else raw


def check_utf8(raw: bytes) -> None:
    """Refuse text that is not UTF-8."""
    if not raw.isascii():
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            raise Refused(
                Code.INVALID, f"the body is not UTF-8 (byte {error.start})", field="body"
            ) from None


def check_json_type(content_type: str | None) -> None:
    """Refuse anything but JSON in UTF-8."""
    media, *params = [part.strip().lower() for part in (content_type or "").split(";")]
    charsets = [p.partition("=")[2].strip('" ') for p in params if p.startswith("charset")]
    if media != _JSON or any(charset != "utf-8" for charset in charsets):
        raise Refused(
            Code.MEDIA_TYPE,
            "a request with a body needs Content-Type: application/json; charset=utf-8",
            content_type=content_type,
        )


def _decompress(raw: bytes, encoding: str, bytes_max: int) -> bytes:
    if encoding.strip().lower() == "identity":
        return raw
    if encoding.strip().lower() not in ("gzip", "x-gzip"):
        raise Refused(
            Code.MEDIA_TYPE, "Content-Encoding is gzip or nothing", content_encoding=encoding
        )
    inflate = zlib.decompressobj(wbits=31)
    try:
        plain = inflate.decompress(raw, bytes_max + 1)
    except zlib.error as error:
        raise Refused(Code.INVALID, f"the body is not gzip: {error}", field="body") from None
    if len(plain) > bytes_max:
        raise _too_large(bytes_max)
    if not inflate.eof or inflate.unused_data:
        raise Refused(Code.INVALID, "the gzip body is cut short or has bytes behind it")
    return plain


def cut_short() -> Refused:
    """The client hung up before all of the body was there."""
    return Refused(Code.INVALID, "the body is cut short", field="body")


def _too_large(bytes_max: int) -> Refused:
    return Refused(
        Code.BODY_TOO_LARGE, f"a body has at most {bytes_max} bytes", max_body_bytes=bytes_max
    )


def is_too_deep(json: bytes) -> bool:
    """Whether valid JSON nests deeper than we take. Cheap for anything small or flat."""
    if len(json) <= 2 * NESTING_MAX:
        return False
    if json.count(b"[") + json.count(b"{") <= NESTING_MAX:
        return False
    depth = deepest = 0
    for byte in _STRINGS.sub(b"", json):
        if byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest > NESTING_MAX


def accepts_gzip(accept_encoding: str | None) -> bool:
    """Whether the client asked for gzip (and did not rule it out with q=0)."""
    if not accept_encoding or "gzip" not in accept_encoding.lower():
        return False
    for part in accept_encoding.split(","):
        name, _, params = part.strip().partition(";")
        if name.strip().lower() == "gzip":
            quality = params.replace(" ", "").lower()
            return not re.fullmatch(r"q=0(\.0{0,3})?", quality)
    return False


def compress(body: bytes) -> bytes:
    packer = zlib.compressobj(level=1, wbits=31)
    return packer.compress(body) + packer.flush()
