"""Signatures of deliveries as Standard Webhooks has them, so that stock libraries check them."""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode, b64encode
from collections.abc import Iterable

from headrace.core.errors import Code, Refused
from headrace.core.limits import WEBHOOK_SECRET_CHARS_MAX, WEBHOOK_SECRET_CHARS_MIN

PREFIX = "whsec_"
KEY_BYTES = 32


def parse_secret(text: str) -> str:
    """A secret that somebody chose; refuses what is too short to be one."""
    size = len(text)
    if not (WEBHOOK_SECRET_CHARS_MIN <= size <= WEBHOOK_SECRET_CHARS_MAX and text.isprintable()):
        raise Refused(
            Code.INVALID,
            f"a secret has {WEBHOOK_SECRET_CHARS_MIN} to {WEBHOOK_SECRET_CHARS_MAX} characters",
            field="secret",
        )
    return text


def format_secret(key: bytes) -> str:
    """A secret for a key that was drawn."""
    return PREFIX + b64encode(key).decode()


def key_of(secret: str) -> bytes:
    """The key that a secret stands for: what is encoded in it, or else the text itself."""
    if secret.startswith(PREFIX):
        try:
            return b64decode(secret.removeprefix(PREFIX), validate=True)
        except (binascii.Error, ValueError):
            pass
    return secret.encode()


def sign(secrets: Iterable[str], id: str, at_s: int, body: bytes) -> str:
    """The header `webhook-signature`: one signature for each secret that counts."""
    signed = b"%b.%d.%b" % (id.encode(), at_s, body)
    digests = (hmac.digest(key_of(secret), signed, "sha256") for secret in secrets)
    return " ".join(f"v1,{b64encode(digest).decode()}" for digest in digests)
