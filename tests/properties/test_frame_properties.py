"""Frames: what was written is what is read, and whatever else happened to it is found out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.config import Discard, Durability, Kind, LogConfig
from headrace.core.entry import (
    Append,
    Claim,
    Configure,
    CountForks,
    Create,
    Delay,
    Delete,
    DeliveryBatch,
    Destination,
    Drop,
    Entry,
    Extend,
    ExtendTtl,
    Fork,
    Issue,
    LoseAtRestart,
    NoteDelivery,
    NotePoll,
    NoteWrite,
    Open,
    Plan,
    Refer,
    Register,
    Release,
    Reserve,
    Retire,
    Revoke,
    SetProfile,
    SetTracker,
    SetWebhook,
    SoftDelete,
    Start,
    Stop,
    Trim,
    WebhookSecrets,
    WebhookStatus,
)
from headrace.core.errors import Corrupt
from headrace.core.record import Block, draft
from headrace.core.token import Grants, Token
from headrace.formats.frame import decode_frame, encode_frame, read_frames

numbers = st.integers(0, 2**63 - 1)
texts = st.text(max_size=8)
pairs = st.lists(numbers, max_size=3, unique=True).map(
    lambda ends: [end for end in sorted(ends) for _ in (0, 1)]
)
seqs = st.lists(numbers, max_size=3)
blobs = st.binary(max_size=12)
configs = st.builds(
    LogConfig,
    kind=st.sampled_from(Kind),
    ttl_ms=numbers,
    cap_records=numbers,
    cap_bytes=numbers,
    discard=st.sampled_from(Discard),
    durability=st.sampled_from(Durability),
    priority=st.none() | st.integers(-1000, 1000),
    dead_letter=st.none() | texts,
    dedupe_node=st.booleans(),
)


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    datas = draw(st.lists(st.binary(max_size=12), min_size=1, max_size=5))
    count = len(datas)

    def column(items: st.SearchStrategy[object]) -> st.SearchStrategy[list[object] | None]:
        return st.none() | st.lists(st.none() | items, min_size=count, max_size=count)

    first = draw(st.integers(1, 2**62))
    drafts = draft(datas, draw(column(st.binary(max_size=5))), draw(column(texts)))  # type: ignore[arg-type]
    nodes = draw(column(texts))
    return Block(
        first, first + count - 1, draw(numbers), drafts.data, drafts.ends,
        drafts.metas, drafts.tags, nodes,  # type: ignore[arg-type]
        ns=draw(st.integers(0, 999_999)), media=draw(st.none() | texts),
    )  # fmt: skip


triples = st.tuples(texts, numbers, numbers)
forks = st.builds(Fork, numbers, numbers, st.none() | numbers, numbers)
trims = st.builds(Trim, numbers, numbers, numbers, numbers, numbers)
entries = st.one_of(
    st.builds(Create, numbers, texts, texts, configs, numbers, numbers),
    st.builds(Configure, numbers, configs, numbers),
    st.builds(Drop, numbers),
    st.builds(Append, numbers, blocks(), st.none() | texts, st.none() | trims),
    st.builds(Delete, numbers, pairs, numbers, numbers, numbers),
    trims,
    st.builds(Reserve, numbers, numbers),
    st.builds(LoseAtRestart, numbers, pairs, numbers, numbers),
    st.builds(Start, st.just(0), texts),
    st.just(Stop()),
    st.builds(
        Open,
        numbers,
        texts,
        numbers,
        numbers,
        st.none() | numbers,
        st.none() | numbers,
        st.none() | forks,
        numbers,
        numbers,
    ),
    st.builds(NoteWrite, numbers, st.none() | triples, st.none() | texts, st.booleans()),
    st.builds(ExtendTtl, numbers, numbers),
    st.builds(CountForks, numbers, st.sampled_from([-1, 1])),
    st.builds(SoftDelete, numbers),
    st.builds(Retire, texts, numbers),
    st.builds(Claim, numbers, texts, numbers, numbers, numbers, seqs),
    st.builds(Release, numbers, seqs, numbers),
    st.builds(Extend, numbers, seqs, numbers),
    st.builds(Delay, numbers, pairs, numbers),
    st.builds(Plan, numbers, st.none() | st.binary(max_size=12)),
    st.builds(Register, numbers, st.none() | st.binary(max_size=12)),
    st.builds(SetProfile, numbers, st.none() | st.binary(max_size=12)),
    st.builds(Issue, st.builds(Token, texts, st.binary(max_size=12), st.builds(Grants))),
    st.builds(Revoke, texts),
    st.builds(Refer, numbers, numbers, numbers, numbers, blobs, seqs, blobs, blobs),
    st.builds(SetTracker, numbers, numbers, texts, numbers),
    st.builds(NotePoll, numbers, texts, numbers, numbers, numbers, numbers),
    st.builds(
        SetWebhook,
        *(numbers, numbers, texts, numbers),
        st.builds(Destination, texts, blobs, numbers, numbers),
        st.builds(WebhookSecrets, texts, texts, numbers),
        st.sampled_from(WebhookStatus),
    ),
    st.builds(
        NoteDelivery,
        *(numbers, numbers, st.none() | st.builds(DeliveryBatch, texts, numbers, numbers)),
        *(st.sampled_from(WebhookStatus), numbers, numbers, numbers, numbers, texts),
    ),
)


def journal(found: list[Entry], start: int, synced: list[int]) -> tuple[bytes, list[int]]:
    """The frames one after another, and where each one starts."""
    raw, starts = b"", []
    for entry, known in zip(found, synced, strict=True):
        starts.append(len(raw))
        raw += encode_frame(entry, start + len(raw), known)
    return raw, starts


def read(raw: bytes, start: int, *, final: bool = True) -> list[Entry]:
    return [
        entry
        for frame in read_frames(memoryview(raw), start, "j", final=final)
        for entry in frame.entries
    ]


@given(entries, numbers, numbers)
def test_a_frame_gives_its_entry_back(entry: Entry, position: int, synced: int) -> None:
    raw = encode_frame(entry, position, synced)
    frame = decode_frame(memoryview(raw), 0, position)
    assert frame is not None
    assert (frame.entries[0], frame.log, frame.synced) == (entry, entry.log, synced)
    assert (frame.position, frame.size) == (position, len(raw))


@settings(max_examples=50)
@given(entries, numbers, st.integers(1, 255))
def test_any_changed_byte_is_found(entry: Entry, position: int, change: int) -> None:
    raw = bytearray(encode_frame(entry, position, 0))
    for at in range(len(raw)):
        raw[at] ^= change
        assert decode_frame(memoryview(raw), 0, position) is None
        raw[at] ^= change


@settings(max_examples=40)
@given(st.lists(entries, min_size=1, max_size=4), st.integers(0, 2**40), st.binary(max_size=40))
def test_a_torn_tail_ends_the_log_quietly(found: list[Entry], start: int, junk: bytes) -> None:
    raw, starts = journal(found, start, [start] * len(found))
    ends = [*starts[1:], len(raw)]
    for stop in range(len(raw) + 1):
        whole = sum(end <= stop for end in ends)
        assert read(raw[:stop], start) == found[:whole]
        if stop not in ends and stop:
            with pytest.raises(Corrupt):
                read(raw[:stop], start, final=False)
    assert read(raw + b"\xff" + junk, start) == found


@settings(max_examples=60)
@given(
    st.lists(entries, min_size=2, max_size=5),
    st.integers(0, 2**40),
    st.integers(1, 255),
    st.data(),
)
def test_damage_is_told_from_a_torn_write(
    found: list[Entry], start: int, change: int, data: st.DataObject
) -> None:
    """Damage below what a later frame knew to be synced is damage; elsewhere the log ends there."""
    bad = data.draw(st.integers(0, len(found) - 1), label="damaged frame")
    known = data.draw(st.integers(0, len(found) - 1), label="frames synced when the last was made")
    starts = journal(found, start, [start] * len(found))[1]
    synced = [start] * (len(found) - 1) + [start + starts[known]]
    raw, starts = journal(found, start, synced)
    ends = [*starts[1:], len(raw)]
    at = data.draw(st.integers(starts[bad], ends[bad] - 1), label="damaged byte")
    damaged = bytearray(raw)
    damaged[at] ^= change
    if bad < known and bad < len(found) - 1:
        with pytest.raises(Corrupt) as damage:
            read(bytes(damaged), start)
        assert damage.value.offset == starts[bad]
    else:
        assert read(bytes(damaged), start) == found[:bad]
