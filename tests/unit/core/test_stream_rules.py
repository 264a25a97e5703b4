"""Streams: who may write what next, how long they live, what forks and deletions leave."""

from __future__ import annotations

import pytest

from headrace.core import state as core_state
from headrace.core import stream_rules
from headrace.core.cap import Cap
from headrace.core.entry import CountForks, Drop, Entry, ExtendTtl, NoteWrite, Retire, SoftDelete
from headrace.core.errors import Code, Refused
from headrace.core.log import Log
from headrace.core.record import draft
from headrace.core.state import State
from headrace.core.stream_rules import CONFIG, Spec
from headrace.core.stream_state import Producer, Stream, Write, commit_time_ns, is_expired, touch

NOW_NS = 1_700_000_000_123_456_789
TEXT = "text/plain"


class Bench:
    """Decides and applies, as the engine does."""

    def __init__(self) -> None:
        self.state = State()

    def commit(self, entries: list[Entry]) -> list[Entry]:
        for entry in entries:
            core_state.apply(self.state, entry)
        return entries

    def create(self, name: str, *, upto: int | None = None, **spec: object) -> Log:
        wanted = Spec(**{"content_type": TEXT, **spec})  # type: ignore[arg-type]
        forked = None
        if wanted.source is not None:
            source = self.state.by_name[wanted.source]
            forked = stream_rules.fork(source, wanted, source.head if upto is None else upto)
        self.commit(stream_rules.create(self.state, name, wanted, forked, None, NOW_NS))
        return self.state.by_name[name]

    def write(self, name: str, data: bytes | None = b"x", **asked: object) -> list[Entry] | None:
        log = self.state.by_name[name]
        drafts = draft([data]) if data is not None else None
        wanted = Write(**{"content_type": TEXT if data else None, **asked})  # type: ignore[arg-type]
        entries = stream_rules.write(log, drafts, wanted, NOW_NS)
        return None if entries is None else self.commit(entries)

    def remove(self, name: str) -> list[Entry]:
        return self.commit(stream_rules.remove(self.state, self.state.by_name[name]))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def stream(log: Log) -> Stream:
    assert log.stream is not None
    return log.stream


def refusal(bench: Bench, **asked: object) -> Refused:
    with pytest.raises(Refused) as refused:
        bench.write("s", **asked)  # type: ignore[arg-type]
    return refused.value


# --- producers ---


def test_a_producer_counts_from_zero_in_each_epoch(bench: Bench) -> None:
    bench.create("s")
    assert refusal(bench, producer=Producer("p", 0, 1)).code is Code.INVALID
    assert bench.write("s", producer=Producer("p", 0, 0))
    assert bench.write("s", producer=Producer("p", 0, 1))
    assert refusal(bench, producer=Producer("p", 1, 1)).code is Code.INVALID
    assert bench.write("s", producer=Producer("p", 1, 0))
    assert bench.state.by_name["s"].head == 3


def test_what_was_accepted_is_not_accepted_again(bench: Bench) -> None:
    bench.create("s")
    for seq in range(3):
        assert bench.write("s", producer=Producer("p", 0, seq))
    assert bench.write("s", producer=Producer("p", 0, 1)) is None
    assert bench.write("s", producer=Producer("p", 0, 2)) is None
    assert stream(bench.state.by_name["s"]).producers == {"p": (0, 2)}


def test_a_gap_says_what_was_due(bench: Bench) -> None:
    bench.create("s")
    bench.write("s", producer=Producer("p", 0, 0))
    refused = refusal(bench, producer=Producer("p", 0, 5))
    assert refused.code is Code.PRODUCER_GAP
    assert refused.detail == {"expected": 1, "received": 5}


def test_an_older_epoch_is_fenced_off_even_on_a_closed_stream(bench: Bench) -> None:
    bench.create("s")
    bench.write("s", producer=Producer("p", 3, 0), close=True)
    refused = refusal(bench, producer=Producer("p", 2, 0))
    assert refused.code is Code.PRODUCER_FENCED
    assert refused.detail == {"epoch": 3}


def test_a_stream_remembers_so_many_producers(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.core.stream_state._PRODUCERS", Cap("producers", 2))
    bench.create("s")
    for name in "ab":
        bench.write("s", producer=Producer(name, 0, 0))
    assert refusal(bench, producer=Producer("c", 0, 0)).code is Code.THROTTLED
    assert bench.write("s", producer=Producer("a", 1, 0))


# --- Stream-Seq and closing ---


def test_stream_seq_rises_byte_by_byte(bench: Bench) -> None:
    bench.create("s")
    assert bench.write("s", seq="09")
    assert bench.write("s", seq="10")
    assert refusal(bench, seq="10").code is Code.CONFLICT
    assert refusal(bench, seq="0").code is Code.CONFLICT
    assert bench.write("s", seq="2")
    assert refusal(bench, seq="10").code is Code.CONFLICT
    assert bench.write("s", seq="a")
    assert refusal(bench, seq="B").code is Code.CONFLICT


def test_a_repeated_write_is_harmless_whatever_its_stream_seq(bench: Bench) -> None:
    bench.create("s")
    bench.write("s", producer=Producer("p", 0, 0), seq="1")
    assert bench.write("s", producer=Producer("p", 0, 0), seq="1") is None


def test_a_closed_stream_takes_only_what_closed_it(bench: Bench) -> None:
    bench.create("s")
    triple = Producer("p", 0, 0)
    bench.write("s", producer=triple, close=True)
    assert refusal(bench).code is Code.CLOSED
    assert refusal(bench, close=True).code is Code.CLOSED
    assert refusal(bench, producer=Producer("p", 0, 1)).code is Code.CLOSED
    assert bench.write("s", producer=triple, close=True) is None
    assert bench.write("s", None, close=True) is None


def test_closed_comes_before_type_and_type_before_sequence(bench: Bench) -> None:
    bench.create("s")
    bench.write("s", seq="5")
    wrong = refusal(bench, content_type="image/png", seq="1")
    assert "holds text/plain" in wrong.message
    bench.write("s", None, close=True)
    assert refusal(bench, content_type="image/png", seq="1").code is Code.CLOSED


def test_types_are_the_same_without_case_and_parameters(bench: Bench) -> None:
    bench.create("s")
    assert bench.write("s", content_type="TEXT/plain; charset=utf-8")


def test_a_plain_write_journals_nothing_but_its_records(bench: Bench) -> None:
    bench.create("s")
    entries = bench.write("s")
    assert entries is not None
    assert len(entries) == 1
    assert bench.write("s", None, close=True) == [NoteWrite(1, None, None, True)]


# --- time ---


@pytest.mark.parametrize(
    ("last", "asked", "now", "taken"),
    [
        (0, None, 100, 100),
        (0, 50, 100, 50),
        (60, 50, 100, 60),
        (60, 150, 100, 100),
        (120, None, 100, 120),
    ],
    ids=["the clock", "as asked", "not before the last", "not ahead", "the clock went back"],
)
def test_commit_times(last: int, asked: int | None, now: int, taken: int) -> None:
    assert commit_time_ns(last, asked, now) == taken


def test_times_are_kept_to_the_nanosecond(bench: Bench) -> None:
    log = bench.create("s")
    bench.write("s", at_ns=NOW_NS - 1)
    assert log.last_ts_ms * 1_000_000 + stream(log).last_ns == NOW_NS - 1
    bench.write("s", at_ns=5)
    assert log.last_ts_ms * 1_000_000 + stream(log).last_ns == NOW_NS - 1


# --- living ---


def test_a_use_is_written_down_only_when_it_must_be(bench: Bench) -> None:
    log = bench.create("s", ttl_ms=10_000)
    now_ms = NOW_NS // 1_000_000
    assert stream(log).expires_at_ms == now_ms + 10_000
    assert touch(log.id, stream(log), now_ms) is None
    noted = touch(log.id, stream(log), now_ms + 1)
    assert noted == ExtendTtl(log.id, now_ms + 1 + 10_000 + 1000)
    bench.commit([noted])
    assert touch(log.id, stream(log), now_ms + 1001) is None
    assert touch(log.id, stream(log), now_ms + 1002) is not None


def test_a_fixed_end_does_not_move(bench: Bench) -> None:
    log = bench.create("s", expires_at_ms=5)
    assert touch(log.id, stream(log), 4) is None
    assert not is_expired(stream(log).expires_at_ms, 4)
    assert is_expired(stream(log).expires_at_ms, 5)


# --- creating again ---


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"content_type": "image/png"}, "content type"),
        ({"ttl_ms": 5}, "TTL"),
        ({"expires_at_ms": 5}, "expiry"),
        ({"closed": True}, "closed state"),
        ({"source": "s"}, "source"),
    ],
)
def test_another_spec_is_a_conflict(bench: Bench, other: dict[str, object], what: str) -> None:
    log = bench.create("s")
    stream_rules.check_same(bench.state, log, Spec(content_type=TEXT))
    stream_rules.check_same(bench.state, log, Spec())
    with pytest.raises(Refused, match=what) as refused:
        stream_rules.check_same(bench.state, log, Spec(**{"content_type": TEXT, **other}))  # type: ignore[arg-type]
    assert refused.value.code is Code.CONFLICT


def test_a_name_gets_a_higher_epoch_each_time(bench: Bench) -> None:
    for epoch in range(3):
        assert stream(bench.create("s")).epoch == epoch
        bench.remove("s")
    assert stream(bench.create("other")).epoch == 0


def test_forgotten_names_leave_a_floor(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.core.state.RETIRED_MAX", 1)
    for _ in range(2):
        bench.create("a")
        bench.remove("a")
    bench.create("b")
    bench.remove("b")
    assert bench.state.retired == {"b": 0}
    assert stream(bench.create("a")).epoch == 2
    assert stream(bench.create("new")).epoch == 2


# --- forks ---


def test_a_fork_goes_on_behind_its_source(bench: Bench) -> None:
    source = bench.create("s", ttl_ms=7000)
    for _ in range(3):
        bench.write("s")
    fork = bench.create("f", source="s", upto=2, content_type=None)
    assert (fork.head, fork.inherited, fork.count, fork.earliest) == (2, 2, 0, 1)
    assert stream(fork).content_type == TEXT
    assert stream(fork).ttl_ms == 7000
    assert fork.last_ts_ms == source.last_ts_ms
    assert stream(source).forks == 1
    bench.write("f")
    assert (fork.head, fork.count, source.head) == (3, 1, 3)


def test_a_fork_writes_with_a_clean_slate(bench: Bench) -> None:
    bench.create("s")
    bench.write("s", producer=Producer("p", 4, 0), seq="9", close=True)
    fork = bench.create("f", source="s")
    assert bench.write("f", producer=Producer("p", 0, 0), seq="1")
    assert not stream(fork).closed


def test_a_fork_keeps_the_deadline_of_its_source_unless_told_otherwise(bench: Bench) -> None:
    bench.create("s", expires_at_ms=9)
    assert stream(bench.create("a", source="s")).expires_at_ms == 9
    own = stream(bench.create("b", source="s", ttl_ms=3))
    assert (own.ttl_ms, own.expires_at_ms) == (3, NOW_NS // 1_000_000 + 3)


def test_a_fork_never_reuses_offsets_of_its_name(bench: Bench) -> None:
    bench.create("s")
    bench.create("f")
    bench.remove("f")
    assert stream(bench.create("f", source="s")).epoch == 1


def test_a_fork_has_the_offsets_of_its_sources(bench: Bench) -> None:
    bench.create("s")
    for _ in range(3):
        bench.write("s")
    first = stream(bench.create("f", source="s", upto=2))
    bench.write("f")
    bench.write("f")
    second = stream(bench.create("g", source="f", upto=3))
    third = stream(bench.create("h", source="g", upto=1))
    assert [first.epoch_at(seq) for seq in range(5)] == [0, 0, 0, 1, 1]
    assert [second.epoch_at(seq) for seq in range(5)] == [0, 0, 0, 1, 2]
    assert [third.epoch_at(seq) for seq in range(3)] == [0, 0, 3]


def test_a_source_stays_as_long_as_a_fork_needs_it(bench: Bench) -> None:
    bench.create("s")
    bench.create("f", source="s")
    assert bench.remove("s") == [SoftDelete(1)]
    with pytest.raises(Refused, match="was deleted"):
        stream_rules.fork(bench.state.by_name["s"], Spec(source="s"), 0)
    with pytest.raises(Refused, match="was deleted"):
        stream_rules.check_same(bench.state, bench.state.by_name["s"], Spec())
    assert bench.remove("f") == [Drop(2), Retire("f", 1), Drop(1), Retire("s", 0)]
    assert not bench.state.logs


def test_a_fork_that_goes_leaves_a_living_source(bench: Bench) -> None:
    source = bench.create("s")
    bench.create("f", source="s")
    bench.create("g", source="s")
    assert bench.remove("f") == [Drop(2), Retire("f", 1), CountForks(1, -1)]
    assert stream(source).forks == 1


def test_a_chain_goes_with_its_last_link(bench: Bench) -> None:
    bench.create("a")
    bench.create("b", source="a")
    bench.create("c", source="b")
    assert bench.remove("b") == [SoftDelete(2)]
    assert bench.remove("a") == [SoftDelete(1)]
    bench.remove("c")
    assert not bench.state.logs


def test_forks_must_match_to_be_the_same(bench: Bench) -> None:
    bench.create("s", ttl_ms=50)
    bench.write("s")
    fork = bench.create("f", source="s", at=1, sub=0, upto=1)
    stream_rules.check_same(bench.state, fork, Spec(source="s", at=1))
    for other in (Spec(source="s"), Spec(source="s", at=0), Spec(source="s", at=1, sub=1), Spec()):
        with pytest.raises(Refused):
            stream_rules.check_same(bench.state, fork, other)


def test_streams_are_synced(bench: Bench) -> None:
    assert bench.create("s").config is CONFIG
