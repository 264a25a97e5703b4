"""What the server signs: webhooks, for anybody to check, and tokens that only it checks itself."""

from __future__ import annotations

import hmac
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.core.base64url import decode_base64url, encode_base64url
from headrace.core.errors import Code, Refused

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_PURPOSE = b"headrace tokens"
_KID_DIGITS = 16


class Claims(msgspec.Struct, frozen=True, array_like=True):
    """What a token is good for: one wake of one subscription."""

    log: int
    generation: int
    wake: str


class Signer:
    """One key pair."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._secret = hmac.digest(key, _PURPOSE, "sha256")

    @cached_property
    def _private(self) -> Ed25519PrivateKey:
        # Only servers with subscriptions pay for the library.
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self._key)

    @cached_property
    def _public(self) -> bytes:
        return self._private.public_key().public_bytes_raw()

    @cached_property
    def kid(self) -> str:
        """The id of the key pair."""
        return f"ds_{sha256(self._public).hexdigest()[:_KID_DIGITS]}"

    @property
    def jwk(self) -> dict[str, Any]:
        """The public key, as JSON Web Keys are written."""
        return {
            "kty": "OKP",
            "crv": "Ed25519",
            "kid": self.kid,
            "use": "sig",
            "alg": "EdDSA",
            "x": _encode(self._public),
        }

    def sign(self, body: bytes, now_s: int) -> str:
        """The signature header of a body sent now."""
        signature = self._private.sign(b"%d.%b" % (now_s, body))
        return f"t={now_s},kid={self.kid},ed25519={_encode(signature)}"

    def make_token(self, claims: Claims) -> str:
        said = msgspec.json.encode(claims)
        return f"{_encode(said)}.{_encode(self._mac(said))}"

    def read_token(self, authorization: str | None) -> Claims:
        """What the bearer may do; refuses tokens we did not make."""
        scheme, _, token = (authorization or "").partition(" ")
        said, _, mac = token.strip().partition(".")
        try:
            raw = decode_base64url(said)
            if scheme.lower() == "bearer" and hmac.compare_digest(
                self._mac(raw), decode_base64url(mac)
            ):
                return msgspec.json.decode(raw, type=Claims)
        except (ValueError, msgspec.MsgspecError):
            pass
        raise Refused(Code.UNAUTHENTICATED, "send the token of the wake: Authorization: Bearer …")

    def _mac(self, said: bytes) -> bytes:
        return hmac.digest(self._secret, said, "sha256")


def _encode(raw: bytes) -> str:
    return encode_base64url(raw).decode()
