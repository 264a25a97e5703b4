"""Tokens in the URLs of closures: who may fetch which closure, until when, as the server signed it.

A token is `<principal, base64url>.<expiry, Unix seconds>.<HMAC-SHA256, hex>`. What was signed are
fields with their lengths before them, so that no two sets of claims share a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from hmac import compare_digest
from hmac import new as new_hmac
from struct import Struct

import msgspec

from headrace.core.base64url import decode_base64url, encode_base64url
from headrace.core.digits import parse_digits
from headrace.core.limits import CLOSURE_TOKEN_LENGTH_MAX, I64_MAX
from headrace.flags.subscription import FlagSet, encode_subscription

_LABEL = "exd-closure-token/v1"
_LENGTH = Struct(">I")


class RequestedClosure(msgspec.Struct, frozen=True):
    """The closure that a token is for."""

    tenant: str
    namespace: str
    version: int
    flags: FlagSet


class ClosureTokenInvalid(Exception):
    """A token that is none, is over, or is for something else: which of these is not told."""


def sign_closure_token(
    key: bytes, principal: str, closure: RequestedClosure, expires_at_s: int
) -> str:
    """A token with which `principal` may fetch this closure until then."""
    mac = _mac(key, principal, closure, str(expires_at_s))
    return f"{encode_base64url(principal.encode()).decode()}.{expires_at_s}.{mac}"


def verify_closure_token(
    keys: Sequence[bytes], token: str, closure: RequestedClosure, now_s: float
) -> str:
    """The principal of a token for this closure that one of the keys signed and that is not over.

    How long it takes does not depend on how near a forged one comes, nor on which key fits.
    """
    if len(token) > CLOSURE_TOKEN_LENGTH_MAX or token.count(".") != 2:
        raise ClosureTokenInvalid
    encoded, expires, given = token.split(".")
    expires_at_s = parse_digits(expires, I64_MAX)
    principal = _decode_principal(encoded)
    if expires_at_s is None or not given.isascii():
        raise ClosureTokenInvalid
    fits = False
    for key in keys:
        fits |= compare_digest(_mac(key, principal, closure, expires), given)
    if not fits or now_s >= expires_at_s:
        raise ClosureTokenInvalid
    return principal


def _decode_principal(encoded: str) -> str:
    try:
        raw = decode_base64url(encoded)
        principal = raw.decode()
    except ValueError:
        raise ClosureTokenInvalid from None
    if encode_base64url(raw).decode() != encoded:
        raise ClosureTokenInvalid
    return principal


def _mac(key: bytes, principal: str, closure: RequestedClosure, expires: str) -> str:
    fields = (
        _LABEL,
        principal,
        closure.tenant,
        closure.namespace,
        str(closure.version),
        encode_subscription(closure.flags),
        expires,
    )
    signed = b"".join(_LENGTH.pack(len(raw)) + raw for raw in map(str.encode, fields))
    return new_hmac(key, signed, sha256).hexdigest()
