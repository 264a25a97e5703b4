"""A snapshot: the state of every log at a journal position, without payloads.

The file is a head, then one part for each log, then a foot, each with its own checksum. Logs are
captured one after another while writes go on, so each carries the journal position it reflects;
replay skips what it already holds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec
from xxhash import xxh3_64_intdigest

from headrace.core.contents import Contents
from headrace.core.errors import Corrupt
from headrace.core.log import Log
from headrace.core.origin import Lineage, Origins
from headrace.core.queue_state import Places, Queue
from headrace.core.retention import Ledger
from headrace.core.token import Token

FORMAT = 1
_RECORD = struct.Struct("<IQ")


class SnapshotHead(msgspec.Struct, frozen=True, array_like=True):
    """What the snapshot is of."""

    format: int
    position: int
    """Replay goes on here."""
    next_id: int
    manifest: int
    """The manifest version whose segments the logs' extents reflect at least."""
    boot_id: str
    retired: dict[str, int] = {}
    """Name → epoch of the last stream that had it and is gone."""
    epoch_floor: int = 0
    tokens: list[Token] = []


class Captured(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One log and the position its state reflects; no log when it was dropped meanwhile."""

    position: int
    id: int
    log: Log | None


class Foot(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The end: how many logs there must have been."""

    count: int


def _plain(value: Any) -> Any:
    if isinstance(value, Ledger | Queue | Origins | Contents):
        return value.dump()
    raise TypeError(type(value))


def _rich(kind: type, value: Any) -> Any:
    if kind is Ledger:
        return Ledger.load(value)
    if kind is Queue:
        return Queue.load(msgspec.convert(value, Places))
    if kind is Origins:
        columns, ways = value
        return Origins.load(columns, [Lineage(router, tuple(path)) for router, path in ways])
    if kind is Contents:
        return Contents.load(*value)
    raise TypeError(kind)


_encoder = msgspec.msgpack.Encoder(enc_hook=_plain)
_head = msgspec.msgpack.Decoder(SnapshotHead)
_captured = msgspec.msgpack.Decoder(Captured, dec_hook=_rich)
_foot = msgspec.msgpack.Decoder(Foot)


def encode_part(part: SnapshotHead | Captured | Foot) -> bytes:
    body = _encoder.encode(part)
    return _RECORD.pack(len(body), xxh3_64_intdigest(body)) + body


def decode_snapshot(raw: bytes, where: str) -> tuple[SnapshotHead, Iterator[Captured]]:
    """The head and the logs; Corrupt, before any of them, when something is wrong or missing."""
    parts = list(_parts(memoryview(raw), where))
    if len(parts) < 2:
        raise Corrupt(where, len(raw), "the snapshot is cut short")
    try:
        head, foot = _head.decode(parts[0]), _foot.decode(parts[-1])
    except msgspec.MsgspecError as error:
        raise Corrupt(where, 0, f"not a snapshot: {error}") from None
    if head.format != FORMAT:
        raise Corrupt(where, 0, f"format {head.format} is not one this version reads ({FORMAT})")
    if foot.count != len(parts) - 2:
        raise Corrupt(where, len(raw), f"{len(parts) - 2} logs where {foot.count} should be")
    try:
        return head, iter([_captured.decode(part) for part in parts[1:-1]])
    except msgspec.MsgspecError as error:
        raise Corrupt(where, 0, f"not the state of a log: {error}") from None


def _parts(buffer: memoryview, where: str) -> Iterator[memoryview]:
    offset = 0
    while offset < len(buffer):
        if offset + _RECORD.size > len(buffer):
            raise Corrupt(where, offset, "the snapshot is cut short")
        length, checksum = _RECORD.unpack_from(buffer, offset)
        body = buffer[offset + _RECORD.size : offset + _RECORD.size + length]
        if len(body) != length or xxh3_64_intdigest(body) != checksum:
            raise Corrupt(where, offset, "checksum mismatch in the snapshot")
        yield body
        offset += _RECORD.size + length
