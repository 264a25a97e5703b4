"""What new records supersede, and what a log knows of its records by key."""

from __future__ import annotations

from random import Random

import pytest

from headrace.core import ranges, supersession
from headrace.core.apply import apply
from headrace.core.config import Discard, Kind, LogConfig
from headrace.core.entry import Create, Open
from headrace.core.errors import Code, Refused
from headrace.core.keyed_records import KeyedRecords, SeqTable
from headrace.core.log import Log, live_ranges
from headrace.core.record import RECORD_OVERHEAD_BYTES, draft
from headrace.core.state import new_log
from headrace.core.supersession import Admitted


class Keyed:
    """A log with a rule, and what it knows by key."""

    def __init__(self, **config: object) -> None:
        rule = LogConfig(**config)  # type: ignore[arg-type]
        self.log = new_log(Create(1, "a", "topics", rule, 0, 0))
        self.keyed = KeyedRecords()

    def append(self, *keys: str | None, key: str | None = None) -> Admitted:
        drafts = draft([b"1"] * len(keys), keys=list(keys))
        admitted = supersession.append(self.log, self.keyed, drafts, key, 0)
        apply(self.log, admitted.append)
        self.keyed.add(admitted.append.block)
        self.keyed.drop_below(self.log.floor)
        if admitted.superseded is not None:
            apply(self.log, admitted.superseded)
            self.keyed.remove(admitted.superseded.ranges)
        return admitted

    @property
    def live(self) -> list[int]:
        parts = live_ranges(self.log, self.log.head)
        return [seq for low, high in parts for seq in range(low, high + 1)]


def gone(admitted: Admitted) -> list[int]:
    return list(admitted.superseded.ranges) if admitted.superseded is not None else []


def test_the_newest_of_each_key_stay() -> None:
    log = Keyed(keep_per_key=2)
    for keys, superseded in (
        (("a", "b"), []),
        (("a",), []),
        (("a",), [1, 1]),
        (("b",), []),
        (("b", "a"), [2, 3]),
    ):
        assert gone(log.append(*keys)) == superseded
    assert log.live == [4, 5, 6, 7]
    assert (log.log.count, log.log.size_bytes) == (4, 4 * (1 + RECORD_OVERHEAD_BYTES))


def test_a_batch_supersedes_its_own_records() -> None:
    log = Keyed(keep_per_key=1)
    assert gone(log.append("a", "b", "a", "a")) == [1, 1, 3, 3]
    assert log.live == [2, 4]


def test_records_without_a_key_are_not_concerned() -> None:
    log = Keyed(keep_per_key=1, keys_max=1)
    for _ in range(3):
        log.append(None, "a", None)
    assert log.live == [1, 3, 4, 6, 7, 8, 9]


def test_the_key_with_the_oldest_newest_record_goes_first() -> None:
    log = Keyed(keep_per_key=2, keys_max=2)
    log.append("a", "b", "a")  # a is the younger one
    assert gone(log.append("c")) == [2, 2]
    assert gone(log.append("b", "c")) == [1, 1, 3, 3]
    assert sorted(log.keyed.keys()) == ["b", "c"]


def test_a_batch_of_more_keys_than_may_be_leaves_its_newest() -> None:
    log = Keyed(keep_per_key=3, keys_max=2)
    log.append("z")
    assert gone(log.append("a", "b", "c", "a")) == [1, 1, 3, 3]
    assert log.live == [2, 4, 5]


def test_what_a_user_deleted_is_no_record_of_its_key() -> None:
    log = Keyed(keep_per_key=2, keys_max=2)
    log.append("a", "a", "b")
    delete = supersession.deletion(log.log, {2: 1 + RECORD_OVERHEAD_BYTES})
    assert delete is not None
    apply(log.log, delete)
    log.keyed.remove(delete.ranges)
    assert gone(log.append("a")) == []
    assert list(log.keyed.oldest()) == ["b", "a"]


def test_what_is_superseded_leaves_room_under_the_caps() -> None:
    log = Keyed(keep_per_key=1, cap_records=2)
    log.append("a", "b")
    admitted = log.append("b")
    assert admitted.append.trim is None
    assert log.live == [1, 3]
    assert log.log.floor == 1


def test_what_is_superseded_below_a_new_floor_goes_with_it() -> None:
    log = Keyed(keep_per_key=1, cap_records=2)
    log.append("a", "b")
    admitted = log.append("b", "c", "d", "c")
    # Of a, b, c and d the caps leave two: the floor passes the b that is superseded, too.
    trim = admitted.append.trim
    assert trim is not None
    assert (trim.floor_cap, trim.count) == (4, 3)
    assert gone(admitted) == [4, 4]
    assert log.live == [5, 6]
    assert (log.log.count, log.log.size_bytes) == (2, 2 * (1 + RECORD_OVERHEAD_BYTES))
    assert admitted.growth_bytes == 0


def test_a_full_log_takes_what_replaces_something() -> None:
    log = Keyed(keep_per_key=1, cap_records=2, discard=Discard.REJECT)
    log.append("a", "b")
    log.append("b")
    with pytest.raises(Refused) as refused:
        log.append("c")
    assert refused.value.code is Code.LOG_FULL
    assert log.live == [1, 3]


def test_one_append_does_not_end_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supersession, "SUPERSEDED_MAX", 3)
    log = Keyed(keep_per_key=3, keys_max=3)
    log.append(*["a", "b", "c"] * 3)
    assert ranges.count(gone(log.append("x", "y", "z"))) == 3
    log.append("z")
    log.append("z")
    assert sorted(log.keyed.keys()) == ["x", "y", "z"]


def test_one_append_of_many_keys_does_not_end_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a rule is newer than the records, each key may have too many."""
    monkeypatch.setattr(supersession, "SUPERSEDED_MAX", 3)
    log = Keyed()
    log.append(*["a", "b"] * 3)
    log.log.config = LogConfig(keep_per_key=1)
    for _ in range(4):
        assert ranges.count(gone(log.append("a", "b"))) == 3
    assert log.live == [13, 14]


def test_a_new_rule_finds_what_is_too_much() -> None:
    log = Keyed()
    log.append("a", "b", "a", "c", "b", "a")
    log.log.config = LogConfig(keep_per_key=1, keys_max=2)
    assert supersession.surplus(log.log, log.keyed, ["c"], 0, 9) == (None, 1)
    keys = ["a", "b", "c"]
    delete, at = supersession.surplus(log.log, log.keyed, keys, 0, 9)
    assert delete is not None
    assert (delete.ranges, at) == ([1, 3], 3)
    # In small steps: some of a key, and then the rest of it.
    delete, at = supersession.surplus(log.log, log.keyed, keys, 0, 1)
    assert delete is not None
    assert (delete.ranges, at) == ([1, 1], 0)
    delete = supersession.surplus_keys(log.log, log.keyed, 10)
    assert delete is not None
    assert delete.ranges == [4, 4]


@pytest.mark.parametrize(
    "config",
    [
        LogConfig(keep_per_key=-1),
        LogConfig(keep_per_key=100_001),
        LogConfig(keep_per_key=1, keys_max=10_000_001),
        LogConfig(keys_max=5),
        LogConfig(keep_per_key=1, kind=Kind.QUEUE),
    ],
)
def test_a_rule_that_cannot_be_is_refused(config: LogConfig) -> None:
    with pytest.raises(Refused):
        supersession.check_config(None, config)


def test_a_stream_has_every_record() -> None:
    log = Log(1, "s", "streams", LogConfig())
    apply(log, Open(1, "application/json", 0, 0, None, None))
    supersession.check_config(log, LogConfig())
    with pytest.raises(Refused):
        supersession.check_config(log, LogConfig(keep_per_key=1))


def test_a_log_without_a_rule_says_nothing_of_it_on_disk() -> None:
    log = Keyed()
    admitted = log.append("a", "a")
    assert admitted.superseded is None
    assert log.live == [1, 2]


def test_a_table_of_seqs_is_a_sorted_list() -> None:
    random, table, rows = Random(1), SeqTable(), dict[int, str]()
    for turn in range(20_000):
        if rows and random.random() < 0.45 + 0.1 * (turn > 10_000):
            seq = random.choice(sorted(rows)[-40:]) if turn % 3 else min(rows)
            assert table.pop(seq) == rows.pop(seq)
        else:
            seq = turn + 1 if turn % 5 else random.randrange(1, 30_000)
            if seq not in rows:
                table.add(seq, rows.setdefault(seq, f"k{seq}"), seq * 2)
                assert table.get(seq) == (f"k{seq}", seq * 2)
        if turn % 500 == 0:
            assert dict(table) == rows
            assert list(table) == sorted(rows.items())
            low, high = sorted((random.randrange(30_000), random.randrange(30_000)))
            assert table.overlap(low, high) == [seq for seq in sorted(rows) if low <= seq <= high]
    assert len(table) == len(rows)


def test_few_rows_lie_in_few_chunks() -> None:
    table = SeqTable()
    for seq in range(10_000):
        table.add(seq, "k")
    for seq in range(9_999, -1, -1):
        if seq % 100:
            table.pop(seq)
    assert list(table) == [(seq, "k") for seq in range(0, 10_000, 100)]
    assert len(table._chunks) <= 2
