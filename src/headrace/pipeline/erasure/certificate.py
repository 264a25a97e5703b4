"""The certificate of an erasure: what was found, removed and read again, signed with Ed25519.

It does not name its subject, which would be one more copy, but holds a salted digest of it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.pipeline.errors import CannotRun

FORMAT = 1
BYTES_MAX = 64 << 20
_PURPOSE = b"headrace erasure certificate\n"


class FoundRecords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Records of the subject in one log."""

    log: str
    epoch: int
    records: int
    first_seq: int
    last_seq: int


class ReadBack(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was read again afterwards, and what of the subject was in it."""

    manifest: int
    segments: int
    records: int
    found: int


class CopyElsewhere(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A copy that this erasure does not reach, and until when it may be there."""

    where: str
    until: str


class Certificate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What became of a request for erasure."""

    format: int = FORMAT
    id: str
    store: str
    """The id of the data directory whose journal is sealed into the store."""
    subject_kind: str
    subject_salt: str
    subject_sha256: str
    requested_at: str
    completed_at: str
    found: tuple[FoundRecords, ...]
    deleted: int
    """Records that were live, and are deleted by this request."""
    segments_rewritten: int
    objects_removed: int
    read_back: ReadBack
    complete: bool
    """Nothing of the subject is left where this server and this store could be looked at."""
    remains: tuple[str, ...]
    """What may still hold something, in words, and until when."""
    elsewhere: tuple[CopyElsewhere, ...]


class SignedCertificate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A certificate with its signature."""

    certificate: msgspec.Raw
    """The bytes that are signed."""
    public_key: str
    """Ed25519, in hex."""
    signature: str


def signing_key_of(data_dir: Path) -> Ed25519PrivateKey:
    """The key that certificates of a data directory are signed with, made from its secret."""
    path = data_dir / layout.SIGNING_KEY
    try:
        secret = bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError) as error:
        raise CannotRun(
            f"{path} cannot be read ({error}): a certificate is signed with the key of the data "
            "directory, or with --signing-key"
        ) from None
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(_PURPOSE + secret).digest())


def load_key(path: Path) -> Ed25519PrivateKey:
    """A private key of the user's: Ed25519 in PEM."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise CannotRun(f"--signing-key {path}: {error}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise CannotRun(f"--signing-key {path}: is no Ed25519 key")
    return key


def public_key_of(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes_raw().hex()


def sign(certificate: Certificate, key: Ed25519PrivateKey) -> bytes:
    """The certificate as a file."""
    raw = msgspec.json.encode(certificate)
    signed = SignedCertificate(
        certificate=msgspec.Raw(raw), public_key=public_key_of(key), signature=key.sign(raw).hex()
    )
    return msgspec.json.encode(signed) + b"\n"


def verify(raw: bytes, where: str, public_key: str | None = None) -> Certificate:
    """The certificate in a file; `Corrupt` unless its signature is that of its key, and of this
    one, if one is given.
    """
    try:
        signed = msgspec.json.decode(raw, type=SignedCertificate)
        certificate = msgspec.json.decode(signed.certificate, type=Certificate)
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signed.public_key))
        signature = bytes.fromhex(signed.signature)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Corrupt(where, 0, f"not a certificate: {error}") from None
    if public_key is not None and signed.public_key != public_key.lower():
        raise Corrupt(where, 0, f"it is signed by {signed.public_key}, which is another key")
    try:
        key.verify(signature, bytes(signed.certificate))
    except InvalidSignature:
        raise Corrupt(where, 0, "its signature is not that of its content") from None
    return certificate
