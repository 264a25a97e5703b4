"""Signatures that others can check, and tokens that only their maker accepts."""

from __future__ import annotations

from base64 import urlsafe_b64decode

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from headrace.core.errors import Code, Refused
from headrace.delivery.signing import Claims, Signer

SIGNER = Signer(b"k" * 32)
CLAIMS = Claims(7, 3, "w_1")


def decode(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def test_a_body_is_signed_with_the_time() -> None:
    header = SIGNER.sign(b"{}", 1700000000)
    parts = dict(part.split("=", 1) for part in header.split(","))
    assert (parts["t"], parts["kid"]) == ("1700000000", SIGNER.kid)
    key = Ed25519PublicKey.from_public_bytes(decode(SIGNER.jwk["x"]))
    key.verify(decode(parts["ed25519"]), b"1700000000.{}")


def test_a_key_has_one_name() -> None:
    assert Signer(b"k" * 32).kid == SIGNER.kid
    assert Signer(b"l" * 32).kid != SIGNER.kid


def test_a_token_says_what_it_is_good_for() -> None:
    assert SIGNER.read_token(f"Bearer {SIGNER.make_token(CLAIMS)}") == CLAIMS
    assert SIGNER.read_token(f"bearer  {SIGNER.make_token(CLAIMS)} ") == CLAIMS


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer x",
        "Bearer ..",
        "Bearer é.é",
        "Bearer " + Signer(b"l" * 32).make_token(CLAIMS),
        "Basic " + SIGNER.make_token(CLAIMS),
        "Bearer " + SIGNER.make_token(CLAIMS)[:-2],
    ],
)
def test_other_tokens_are_refused(header: str | None) -> None:
    with pytest.raises(Refused) as refused:
        SIGNER.read_token(header)
    assert refused.value.code is Code.UNAUTHENTICATED
