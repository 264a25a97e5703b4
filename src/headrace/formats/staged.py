"""Staged files: a checksum (XXH3-64), then MessagePack.

Chunks wait for a commit; a commit decides.
"""

from __future__ import annotations

import struct
from typing import TypeVar

import msgspec
from xxhash import xxh3_64_intdigest

from headrace.core.errors import Corrupt
from headrace.core.transaction import Chunk, Commit

T = TypeVar("T")

_CHECKSUM = struct.Struct("<Q")
_encoder = msgspec.msgpack.Encoder()
_chunk = msgspec.msgpack.Decoder(Chunk)
_commit = msgspec.msgpack.Decoder(Commit)


def encode_staged(value: Chunk | Commit) -> bytes:
    body = _encoder.encode(value)
    return _CHECKSUM.pack(xxh3_64_intdigest(body)) + body


def checksum_of(raw: bytes) -> int:
    """The checksum that a staged file begins with."""
    return int.from_bytes(raw[: _CHECKSUM.size], "little")


def decode_chunk(raw: bytes, where: str) -> Chunk:
    return _decode(_chunk, raw, where)


def decode_commit(raw: bytes, where: str) -> Commit:
    return _decode(_commit, raw, where)


def _decode(decoder: msgspec.msgpack.Decoder[T], raw: bytes, where: str) -> T:
    body = memoryview(raw)[_CHECKSUM.size :]
    if len(raw) < _CHECKSUM.size or xxh3_64_intdigest(body) != checksum_of(raw):
        raise Corrupt(where, 0, "checksum mismatch in a staged file")
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise Corrupt(where, 0, f"not a staged file: {error}") from None
