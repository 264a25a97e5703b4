"""Request bodies: the right type, within the limit before and after decompression, valid UTF-8."""

from __future__ import annotations

import asyncio
import codecs
import re
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from headrace.core.errors import Code, Refused
from headrace.core.limits import INLINE_BYTES_MAX

if TYPE_CHECKING:
    from headrace.web.request import Request

T = TypeVar("T")

_JSON = "application/json"
_PLAIN_JSON = _JSON.encode()


async def read_bytes(req: Request, bytes_max: int) -> bytes:
    """The body, whatever it is; empty when there is none."""
    if req.complete and b"content-encoding" not in req.headers:
        body = req.body
        if len(body) <= bytes_max and isinstance(body, bytes):
            return body
    return await _unpack(req, await _receive(req, bytes_max), bytes_max)


def plain_body(req: Request, bytes_max: int) -> bytes:
    """The body, if it is all there, JSON in ASCII as it is nearly always, and not larger."""
    if not req.complete:
        return b""
    body, headers = req.body, req.headers
    if (
        headers.get(b"content-type") == _PLAIN_JSON
        and len(body) <= bytes_max
        and isinstance(body, bytes)
        and b"content-encoding" not in headers
        and body.isascii()
    ):
        return body
    return b""


async def read_body(req: Request, bytes_max: int, *also: str) -> bytes:
    """The body as UTF-8 JSON text, under this media type or `also` under others; empty when there
    is none.
    """
    if body := plain_body(req, bytes_max):
        return body
    raw = await _receive(req, bytes_max)
    if raw and req.content_type != _JSON:
        check_json_type(req.content_type, *also)
    raw = await _unpack(req, raw, bytes_max)
    if len(raw) <= INLINE_BYTES_MAX or raw.isascii():
        check_utf8(raw)
    else:
        await _beside(check_utf8, raw)
    return raw


async def _receive(req: Request, bytes_max: int) -> bytes:
    length = req.content_length
    if length is not None and length > bytes_max:
        raise _too_large(bytes_max)
    raw = await req.read(bytes_max)
    if len(raw) > bytes_max:
        raise _too_large(bytes_max)
    if length is not None and len(raw) < length:
        raise cut_short()
    return raw


async def _unpack(req: Request, raw: bytes, bytes_max: int) -> bytes:
    encoding = req.get_header("CONTENT-ENCODING") if raw else None
    if not encoding or encoding.strip().lower() == "identity":
        return raw
    if encoding.strip().lower() not in ("gzip", "x-gzip"):
        raise Refused(
            Code.MEDIA_TYPE, "Content-Encoding is gzip or nothing", content_encoding=encoding
        )
    inflation = Inflation(raw, bytes_max)
    if not inflation.go_on(INLINE_BYTES_MAX):
        await _beside(inflation.go_on, bytes_max + 1)
    return inflation.plain


async def _beside(work: Callable[[T], object], given: T) -> None:
    """Do what would hold up the loop in a thread: none of it holds the interpreter for long."""
    await asyncio.get_running_loop().run_in_executor(None, work, given)


def check_utf8(raw: bytes) -> None:
    """Refuse text that is not UTF-8."""
    if raw.isascii():
        return
    decoder = codecs.getincrementaldecoder("utf-8")()
    start = kept = 0
    try:
        for start in range(0, len(raw), INLINE_BYTES_MAX):
            kept = len(decoder.getstate()[0])
            stop = start + INLINE_BYTES_MAX
            decoder.decode(raw[start:stop], final=stop >= len(raw))
    except UnicodeDecodeError as error:
        at = start - kept + error.start
        raise Refused(Code.INVALID, f"the body is not UTF-8 (byte {at})", field="body") from None


def check_json_type(content_type: str | None, *also: str) -> None:
    """Refuse anything but JSON in UTF-8, under its own media type or under others."""
    media, *params = [part.strip().lower() for part in (content_type or "").split(";")]
    charsets = [p.partition("=")[2].strip('" ') for p in params if p.startswith("charset")]
    if media not in (_JSON, *also) or any(charset != "utf-8" for charset in charsets):
        known = " or ".join((*also, f"{_JSON}; charset=utf-8"))
        raise Refused(
            Code.MEDIA_TYPE,
            f"a request with a body needs Content-Type: {known}",
            content_type=content_type,
        )


class Inflation:
    """A gzip body on its way to what it was, which is never more than its limit and a byte."""

    def __init__(self, raw: bytes, bytes_max: int) -> None:
        self._inflate = zlib.decompressobj(wbits=31)
        self._rest = raw
        self._parts: list[bytes] = []
        self._room = bytes_max + 1
        self._bytes_max = bytes_max

    @property
    def plain(self) -> bytes:
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    def go_on(self, bytes_max: int) -> bool:
        """Inflate so many bytes more; says whether that was all. Refuses what is no gzip body."""
        try:
            part = self._inflate.decompress(self._rest, min(bytes_max, self._room))
        except zlib.error as error:
            raise Refused(Code.INVALID, f"the body is not gzip: {error}", field="body") from None
        self._parts.append(part)
        self._room -= len(part)
        if not self._room:
            raise _too_large(self._bytes_max)
        self._rest = self._inflate.unconsumed_tail
        if self._inflate.eof:
            if self._inflate.unused_data:
                raise _not_whole()
            return True
        if not self._rest and len(part) < bytes_max:
            raise _not_whole()
        return False


def _not_whole() -> Refused:
    return Refused(Code.INVALID, "the gzip body is cut short or has bytes behind it")


def cut_short() -> Refused:
    """The client hung up before all of the body was there."""
    return Refused(Code.INVALID, "the body is cut short", field="body")


def _too_large(bytes_max: int) -> Refused:
    return Refused(
        Code.BODY_TOO_LARGE, f"a body has at most {bytes_max} bytes", max_body_bytes=bytes_max
    )


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
