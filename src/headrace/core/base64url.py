"""Bytes as text for URLs, headers and cursors: base64url without padding (RFC 4648, 5)."""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode


def encode_base64url(raw: bytes | bytearray) -> bytes:
    return urlsafe_b64encode(raw).rstrip(b"=")


def decode_base64url(text: str) -> bytes:
    """The bytes; padding may be there. ValueError for what is none."""
    packed = text.rstrip("=").encode("ascii")
    return b64decode(packed + b"=" * (-len(packed) % 4), altchars=b"-_", validate=True)
