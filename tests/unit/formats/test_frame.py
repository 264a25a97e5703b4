"""Frames: an entry on disk, and the difference between a torn tail and damage."""

from __future__ import annotations

from typing import get_args
from unittest import mock

import msgspec
import pytest

from headrace.core.config import LogConfig
from headrace.core.entry import KINDS, Append, Create, Delete, Drop, Entry, Reserve, Stop
from headrace.core.errors import Code, Corrupt, Refused
from headrace.core.record import block, draft
from headrace.formats import frame as module
from headrace.formats.frame import (
    GROUP,
    HEADER_BYTES,
    _candidates,
    blank_from,
    check_append,
    decode_frame,
    encode_frame,
    encode_group,
    read_frames,
)

CREATE = Create(1, "a", "topics", LogConfig(), 0, 1024)
APPEND = Append(1, block(draft([b'{"n":1}', b"null"]), 1, 5), "key")


def journal(*entries: tuple[Entry, int]) -> bytes:
    """Frames of these entries, each with the position the writer knew to be synced."""
    raw = b""
    for entry, synced in entries:
        raw += encode_frame(entry, len(raw), synced)
    return raw


def entries_of(raw: bytes, *, final: bool = True) -> list[Entry]:
    return [
        entry
        for frame in read_frames(memoryview(raw), 0, "journal", final=final)
        for entry in frame.entries
    ]


def test_a_frame_gives_its_entry_back() -> None:
    raw = encode_frame(APPEND, 100, 40)
    frame = decode_frame(memoryview(raw), 0, 100)
    assert frame is not None
    assert (frame.entries[0], frame.log, frame.synced, frame.size) == (APPEND, 1, 40, len(raw))


def test_a_frame_is_valid_only_where_it_was_written() -> None:
    assert decode_frame(memoryview(encode_frame(APPEND, 100, 40)), 0, 101) is None


def test_a_torn_tail_ends_the_log() -> None:
    whole = journal((CREATE, 0), (APPEND, 0))
    first = len(journal((CREATE, 0)))
    for stop in range(first, len(whole)):
        assert entries_of(whole[:stop]) == [CREATE]
    assert entries_of(whole) == [CREATE, APPEND]


def test_a_torn_tail_may_have_holes_where_nothing_was_promised() -> None:
    """One write of two frames, of which only the second reached the disk."""
    first = len(journal((CREATE, 0)))
    torn = bytearray(journal((CREATE, 0), (APPEND, first), (Drop(1), first)))
    torn[first + HEADER_BYTES] ^= 1
    assert entries_of(bytes(torn)) == [CREATE]


def test_damage_that_a_later_frame_vouches_for_is_reported() -> None:
    first = len(journal((CREATE, 0)))
    second = len(journal((CREATE, 0), (APPEND, 0)))
    raw = bytearray(journal((CREATE, 0), (APPEND, 0), (Drop(1), second)))
    raw[first + HEADER_BYTES] ^= 1
    with pytest.raises(Corrupt) as damage:
        entries_of(bytes(raw))
    assert damage.value.offset == first


def test_a_file_that_has_a_successor_has_no_torn_tail() -> None:
    with pytest.raises(Corrupt):
        entries_of(journal((CREATE, 0))[:-1], final=False)


def test_a_frame_of_another_kind_is_not_an_entry() -> None:
    raw = bytearray(encode_frame(Stop(), 0, 0))
    frame = decode_frame(memoryview(raw), 0, 0)
    assert frame is not None
    frame.kind = 99
    with pytest.raises(Corrupt):
        _ = frame.entries[0]


@pytest.mark.parametrize("tail", [b"\0", b'{"text":"of a payload"}', b"\x07\0\0\0"])
def test_a_long_torn_tail_is_not_looked_at_byte_by_byte(tail: bytes) -> None:
    raw = encode_frame(Reserve(1, 5), 0, 0)
    torn = raw + tail * ((1 << 20) // len(tail))
    assert entries_of(torn) == [Reserve(1, 5)]
    assert len(list(_candidates(memoryview(torn), len(raw), 0))) < 10


def test_a_blank_end_is_not_looked_at_at_all() -> None:
    whole = encode_frame(Reserve(1, 5), 0, 0)
    for torn in (b"", b"\1" * 50, whole[:11]):
        raw = memoryview(bytes(whole + torn + bytes(200_000)))
        assert entries_of(bytes(raw)) == [Reserve(1, 5)]
        assert blank_from(raw, len(whole)) == len((whole + torn).rstrip(b"\0"))
        assert list(_candidates(raw, len(whole), 0)) == []


def test_a_frame_that_vouches_may_end_in_zeroes() -> None:
    first = encode_frame(Reserve(1, 5), 0, 0)
    damaged = encode_frame(Reserve(1, 6), len(first), 0)
    behind = len(first) + len(damaged)
    last = encode_frame(Delete(1, [], 0, 0), behind, behind)
    assert last.endswith(b"\0\0")
    damaged[-1] ^= 1
    with pytest.raises(Corrupt) as damage:
        entries_of(bytes(first + damaged + last + bytes(100)))
    assert damage.value.offset == len(first)


def test_a_group_is_one_frame_with_all_its_entries() -> None:
    raw = encode_group([CREATE, APPEND, Drop(1)], 100, 40)
    frame = decode_frame(memoryview(raw), 0, 100)
    assert frame is not None
    assert (frame.entries, frame.kind, frame.log) == ([CREATE, APPEND, Drop(1)], GROUP, 0)
    assert decode_frame(memoryview(raw)[:-1], 0, 100) is None


@pytest.mark.parametrize("count", [2, 15, 16, 70_000])
def test_a_group_is_a_list_of_kinds_and_entries(count: int) -> None:
    entries: list[Entry] = [APPEND, *[Drop(1)] * (count - 1)]
    raw = encode_group(entries, 100, 40)
    assert msgspec.msgpack.decode(raw[HEADER_BYTES:]) == [
        [entry.KIND, msgspec.msgpack.decode(msgspec.msgpack.encode(entry))] for entry in entries
    ]


def test_an_entry_of_a_group_is_copied_once() -> None:
    """It may hold all files of a manifest."""
    made = 0
    encode = module._encode

    def noted(value: object) -> bytes:
        nonlocal made
        made += len(raw := encode(value))
        return raw

    with mock.patch.object(module, "_encode", noted):
        encode_group([Append(1, block(draft([bytes(100_000)]), 1, 5)), Drop(1)], 0, 0)
    assert made < 100


def test_what_has_nothing_to_do_with_records_can_be_left_out_of_a_group() -> None:
    group = decode_frame(memoryview(encode_group([CREATE, APPEND, Drop(1)], 0, 0)), 0, 0)
    alone = decode_frame(memoryview(encode_frame(CREATE, 0, 0)), 0, 0)
    assert group is not None
    assert alone is not None
    assert group.record_entries == [APPEND, Drop(1)]
    assert alone.record_entries == [CREATE]


def test_the_encoder_refuses_what_no_frame_may_hold() -> None:
    size = len(encode_frame(APPEND, 0, 0)) - HEADER_BYTES
    with mock.patch("headrace.formats.frame.FRAME_BYTES_MAX", size):
        encode_frame(APPEND, 0, 0)
        check_append(APPEND)
    with mock.patch("headrace.formats.frame.FRAME_BYTES_MAX", size - 1):
        for encode in (
            lambda: encode_frame(APPEND, 0, 0),
            lambda: encode_group([APPEND, Drop(1)], 0, 0),
            lambda: check_append(APPEND),
        ):
            with pytest.raises(Refused) as refused:
                encode()
            assert refused.value.code is Code.BODY_TOO_LARGE


def test_a_frame_that_was_written_is_read_however_large() -> None:
    """Older versions wrote larger ones than this; their checksums say that they are whole."""
    raw = journal((CREATE, 0), (APPEND, 0), (Drop(1), 0))
    with mock.patch("headrace.formats.frame.FRAME_BYTES_MAX", 1):
        assert entries_of(raw) == [CREATE, APPEND, Drop(1)]


def test_kinds_keep_their_numbers_for_ever() -> None:
    names = [kind.__name__ for _, kind in sorted(KINDS.items())]
    assert " ".join(names) == (
        "Create Configure Drop Append Delete Trim Reserve LoseAtRestart Start Stop Claim Release "
        "Extend Delay Route Unroute Forward Open NoteWrite ExtendTtl CountForks SoftDelete Retire "
        "Follow Dispatch Plan Arrive Register SetProfile Issue Revoke Refer "
        "SetTracker NotePoll SetWebhook NoteDelivery"
    )
    assert sorted([*KINDS, GROUP]) == [*range(1, 38)]
    assert {*KINDS.values()} == {*get_args(Entry)}
