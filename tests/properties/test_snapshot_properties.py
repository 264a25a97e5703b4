"""Snapshots: any log comes back as it was; anything less than all of it is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.config import Discard, Durability, LogConfig
from headrace.core.errors import Corrupt
from headrace.core.log import Log
from headrace.core.ranges import from_seqs
from headrace.core.retention import Ledger
from headrace.formats.snapshot import (
    FORMAT,
    Captured,
    Foot,
    SnapshotHead,
    decode_snapshot,
    encode_part,
)

from .log_harness import LogHarness, drafts_of, plain
from .naive import Record

numbers = st.integers(0, 2**63 - 1)
texts = st.text(max_size=8)
sets = st.frozensets(st.integers(1, 60), max_size=12).map(sorted).map(from_seqs)
int64s = st.integers(-(2**63), 2**63 - 1)


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    rows = draw(st.lists(st.tuples(int64s, int64s, int64s, int64s), max_size=5))
    columns = [
        b"".join(row[at].to_bytes(8, "little", signed=True) for row in rows) for at in range(4)
    ]
    return Ledger.load(columns)


logs = st.builds(
    Log,
    id=numbers,
    name=texts,
    owner=texts,
    config=st.builds(
        LogConfig,
        ttl_ms=numbers,
        cap_bytes=numbers,
        discard=st.sampled_from(Discard),
        durability=st.sampled_from(Durability),
    ),
    head=numbers,
    last_ts_ms=numbers,
    reserved=numbers,
    floor_cap=numbers,
    floor_ttl=numbers,
    floor_lost=numbers,
    count=numbers,
    size_bytes=numbers,
    deleted=sets,
    gaps=sets,
    volatile=sets,
    keys=st.none() | st.dictionaries(texts, st.tuples(numbers, numbers, numbers), max_size=4),
    ledger=st.none() | ledgers(),
    extents=st.lists(st.tuples(numbers, numbers, numbers), max_size=3),
)
captured = st.builds(Captured, numbers, numbers, st.none() | logs)


def values(part: Captured) -> tuple[object, ...]:
    """What a captured log says, in values that compare; an invented ledger by its bytes."""
    log = part.log
    if log is None:
        return part.position, part.id
    held = {name: getattr(log, name) for name in log.__struct_fields__}
    sets_of = {name: list(held[name]) for name in ("deleted", "gaps", "volatile", "extents")}
    ledger = log.ledger.dump() if log.ledger is not None else None
    keys = list(log.keys.items()) if log.keys is not None else None
    return part.position, part.id, {**held, **sets_of, "ledger": ledger, "keys": keys}


def encode(head: SnapshotHead, parts: list[Captured]) -> bytes:
    return b"".join(map(encode_part, (head, *parts, Foot(len(parts)))))


heads = st.builds(SnapshotHead, st.just(FORMAT), numbers, numbers, numbers, texts)


@given(heads, st.lists(captured, max_size=3))
def test_any_log_comes_back(head: SnapshotHead, parts: list[Captured]) -> None:
    found_head, found = decode_snapshot(encode(head, parts), "s")
    assert found_head == head
    assert [values(part) for part in found] == [values(part) for part in parts]


@settings(max_examples=30)
@given(heads, st.lists(captured, max_size=2), st.integers(1, 255))
def test_a_part_of_a_snapshot_is_none(
    head: SnapshotHead, parts: list[Captured], change: int
) -> None:
    raw = bytearray(encode(head, parts))
    for stop in range(len(raw)):
        with pytest.raises(Corrupt):
            decode_snapshot(bytes(raw[:stop]), "s")
    for at in range(0, len(raw), 3):
        raw[at] ^= change
        with pytest.raises(Corrupt):
            decode_snapshot(bytes(raw), "s")
        raw[at] ^= change


@settings(max_examples=50)
@given(st.lists(drafts_of, min_size=1, max_size=8), st.integers(0, 12), st.sampled_from([0, 3]))
def test_a_loaded_log_goes_on_as_the_saved_one(
    batches: list[list[Record]], before: int, cap: int
) -> None:
    """Saved half-way, loaded, and given the rest of the entries."""
    rig = LogHarness(LogConfig(cap_records=cap, ttl_ms=50))
    for at, batch in enumerate(batches):
        rig.now_ms += 7
        rig.append(batch, key=f"key {at % 3}")
        rig.visible = rig.log.head
        if at == len(batches) // 2:
            rig.delete_below(before)
            rig.save()
    assert plain(rig.replayed().logs[1]) == plain(rig.log)
