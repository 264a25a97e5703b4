"""Ids of records against a dictionary: found while they count, forgotten and freed after that."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.config import Durability, LogConfig
from headrace.core.log import Log
from headrace.core.record import block, draft
from headrace.core.record_ids import RecordIds, place, read_id
from headrace.core.retention import Ledger

WINDOW_MS = 100
CONFIG = LogConfig(
    durability=Durability.FSYNC, ttl_ms=1000, idempotency_window_ms=WINDOW_MS, unique_ids=True
)

numbers = st.integers(0, 60)
appends = st.lists(st.tuples(st.lists(numbers, min_size=1, max_size=12), st.integers(0, 60)))


def id_of(number: int) -> bytes:
    # Rows of a bucket lie one behind the other: these are also found across two of them.
    return bytes([number % 3]) * 15 + bytes([number])


def payload(id: bytes) -> bytes:
    return b'{"id":"%b","n":1}' % str(UUID(bytes=id)).encode()


@given(appends)
@settings(max_examples=200, deadline=None)
def test_each_id_is_new_once_within_the_window(batches: list[tuple[list[int], int]]) -> None:
    log, known = Log(1, "feed:a", "feeds", CONFIG), RecordIds()
    log.ledger = Ledger()
    stored: dict[bytes, tuple[int, int]] = {}  # what a naive memory knows: seq and time
    now_ms = 1_000_000
    for brought, later_ms in batches:
        now_ms += later_ms
        ids = [id_of(number) for number in brought]
        placement = place(log, known, ids, now_ms)
        fresh: list[int] = []
        seqs: list[int] = []
        for at, id in enumerate(ids):
            seq, at_ms = stored.get(id, (0, -WINDOW_MS))
            if not seq or now_ms - at_ms > WINDOW_MS:
                seq = log.head + 1 + len(fresh)
                stored[id] = seq, now_ms
                fresh.append(at)
            seqs.append(seq)
        assert (placement.seqs, placement.fresh) == (seqs, fresh)
        assert [at for at, known in enumerate(placement.is_duplicate()) if not known] == fresh
        if fresh:
            new = block(draft([payload(ids[at]) for at in fresh]), log.head + 1, now_ms)
            known.add(new)
            log.ledger.add(new)
            log.head = new.last


@given(st.lists(st.uuids(), max_size=400, unique=True), st.integers(0, 500))
@settings(max_examples=100, deadline=None)
def test_what_is_forgotten_is_freed(uuids: list[UUID], floor: int) -> None:
    known = RecordIds()
    for seq, uuid in enumerate(uuids, 1):
        known.put(uuid.bytes, seq)
    known.drop_below(floor)
    for seq, uuid in enumerate(uuids, 1):
        assert known.find(uuid.bytes) == (seq if seq >= floor else None)
    known.sweep(len(uuids) + 1)
    assert known.count == max(0, len(uuids) - max(0, floor - 1))
    for seq, uuid in enumerate(uuids, 1):
        assert known.find(uuid.bytes) == (seq if seq >= floor else None)


@given(st.uuids())
def test_an_id_is_read_of_its_record(uuid: UUID) -> None:
    assert read_id(payload(uuid.bytes)) == uuid.bytes


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda rest: b'{"id":"' + rest))
def test_other_records_have_no_id(data: bytes) -> None:
    found = read_id(data)
    assert found is None or data.startswith(b'{"id":"' + str(UUID(bytes=found)).encode()[:1])
