"""Snapshots: every log with the position it reflects, whole or not at all."""

from __future__ import annotations

import struct
from hashlib import sha256

import msgspec
import pytest
import xxhash

from headrace.core import supersession
from headrace.core.apply import apply
from headrace.core.config import LogConfig
from headrace.core.entry import Create, Refer
from headrace.core.errors import Corrupt
from headrace.core.log import Log
from headrace.core.ranges import EMPTY
from headrace.core.record import draft
from headrace.core.state import new_log
from headrace.formats.snapshot import (
    FORMAT,
    Captured,
    Foot,
    SnapshotHead,
    decode_snapshot,
    encode_part,
)

HEAD = SnapshotHead(FORMAT, 500, 3, 7, "boot")


def snapshot(*parts: Captured) -> bytes:
    return b"".join(map(encode_part, (HEAD, *parts, Foot(len(parts)))))


def test_a_log_comes_back_as_it_was() -> None:
    log = new_log(Create(1, "a", "topics", LogConfig(ttl_ms=1000), 0, 1024))
    apply(log, supersession.append(log, None, draft([b"1", b"22"]), "key", 5).append)
    head, logs = decode_snapshot(snapshot(Captured(480, 1, log), Captured(490, 2, None)), "s")
    assert head == HEAD
    first, second = logs
    assert (first.position, second) == (480, Captured(490, 2, None))
    assert first.log is not None
    assert first.log.ledger is not None
    assert log.ledger is not None
    assert first.log.ledger.dump() == log.ledger.dump()
    assert (first.log.keys, first.log.head, first.log.size_bytes) == ({"key": (1, 2, 5)}, 2, 35)


def test_an_empty_set_is_shared_again_after_loading() -> None:
    log = new_log(Create(1, "a", "topics", LogConfig(), 0, 1024))
    (captured,) = decode_snapshot(snapshot(Captured(480, 1, log)), "s")[1]
    assert captured.log == log
    assert captured.log is not None
    assert captured.log.deleted is EMPTY


def test_contents_come_back_as_they_were() -> None:
    log = new_log(Create(1, "__flags/contents", "system", LogConfig(), 0, 0))
    one, two = sha256(b"1").digest(), sha256(b"2").digest()
    apply(log, Refer(1, 8, 3, 1, one + two, [17, 18], one + two + two))
    (captured,) = decode_snapshot(snapshot(Captured(480, 1, log)), "s")[1]
    assert captured.log is not None
    held = captured.log.contents
    assert held is not None
    assert log.contents is not None
    assert held.dump() == log.contents.dump()
    assert (held.references(two), held.seq_of(two), held.held_from) == (2, 2, {8: 3})


def test_columns_of_contents_that_do_not_fit_are_refused() -> None:
    log = new_log(Create(1, "__flags/contents", "system", LogConfig(), 0, 0))
    apply(log, Refer(1, 8, 3, 1, sha256(b"1").digest(), [17], sha256(b"1").digest()))
    assert log.contents is not None
    log.contents._seqs.append(2)
    with pytest.raises(Corrupt, match="differ in length"):
        decode_snapshot(snapshot(Captured(480, 1, log)), "s")


def test_a_snapshot_of_before_there_were_contents_is_read() -> None:
    """Fields were added at the end of states: older snapshots lack them."""
    log = new_log(Create(1, "a", "topics", LogConfig(), 0, 1024))
    body = msgspec.msgpack.decode(encode_part(Captured(480, 1, log))[12:])
    position = list(Log.__struct_fields__).index("contents")
    body[2] = body[2][:position]
    older = msgspec.msgpack.encode(body)
    part = struct.pack("<IQ", len(older), xxhash.xxh3_64_intdigest(older)) + older
    (captured,) = decode_snapshot(encode_part(HEAD) + part + encode_part(Foot(1)), "s")[1]
    assert captured.log == log


def test_a_snapshot_cut_short_anywhere_is_refused() -> None:
    log = new_log(Create(1, "a", "topics", LogConfig(), 0, 1024))
    raw = snapshot(*(Captured(position, position, log) for position in range(4)))
    for stop in range(len(raw)):
        with pytest.raises(Corrupt):
            list(decode_snapshot(raw[:stop], "s")[1])


def test_a_flipped_bit_is_found() -> None:
    raw = bytearray(snapshot(Captured(480, 1, None)))
    raw[len(raw) // 2] ^= 1
    with pytest.raises(Corrupt):
        decode_snapshot(bytes(raw), "s")


def test_another_format_is_refused() -> None:
    parts = (SnapshotHead(FORMAT + 1, 0, 1, 0, "boot"), Foot(0))
    with pytest.raises(Corrupt, match="format"):
        decode_snapshot(b"".join(map(encode_part, parts)), "s")


def test_a_log_nobody_can_read_is_damage() -> None:
    body = b"\x93\x01\x02\xa3log"  # [1, 2, "log"]
    part = len(body).to_bytes(4, "little") + xxhash.xxh3_64_intdigest(body).to_bytes(8, "little")
    raw = encode_part(HEAD) + part + body + encode_part(Foot(1))
    with pytest.raises(Corrupt):
        list(decode_snapshot(raw, "s")[1])
