"""A log with a rule by key against a list: whatever comes, goes, is sealed, changes or restarts, it
has the newest records of each key that the rule leaves, and no others.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, TypeVar
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.core.config import Discard, Durability, LogConfig
from headrace.core.errors import Code, Refused
from headrace.core.match import TagEq
from headrace.core.record import RECORD_OVERHEAD_BYTES, draft
from headrace.engine.start import Started, stop
from headrace.storage.checks.states import state_problems
from support.engine_harness import boot, halt, small, view
from support.hostile import HostileDisk
from support.virtual import VirtualClock, VirtualLoop

T = TypeVar("T")
KEYS = (None, "a", "b", "c", "d", "e")
TAGS = (None, "x", "y")

configs = st.builds(
    LogConfig,
    durability=st.sampled_from([Durability.EPHEMERAL, Durability.DISK, Durability.FSYNC]),
    keep_per_key=st.sampled_from([0, 1, 1, 2, 3]),
    keys_max=st.sampled_from([0, 0, 1, 3]),
    ttl_ms=st.sampled_from([0, 0, 5_000]),
    cap_records=st.sampled_from([0, 0, 0, 4]),
    cap_bytes=st.sampled_from([0, 0, 0, 200]),
    discard=st.sampled_from([Discard.OLD, Discard.OLD, Discard.REJECT]),
).filter(lambda config: config.keep_per_key or not config.keys_max)


class Naive(NamedTuple):
    key: str | None
    tag: str | None
    data: bytes
    ts_ms: int
    lives_on: bool
    """Whether a restart leaves it."""

    @property
    def size_bytes(self) -> int:
        return len(self.data) + RECORD_OVERHEAD_BYTES


@contextmanager
def tiny() -> Iterator[None]:
    """Everything that is done in portions is done in very small ones."""
    sizes = {
        "headrace.core.keyed_records._ROWS_MAX": 4,
        "headrace.core.keyed_records._ROWS_FEW": 2,
        "headrace.core.retention._SWEEP_RUNS": 2,
        "headrace.core.retention._SWEEP_AFTER": 1,
        "headrace.engine.tail._SWEEP_BLOCKS": 2,
        "headrace.engine.tail._SWEEP_AFTER": 1,
        "headrace.engine.logs.key_rules.SURPLUS_STEP": 2,
    }
    with ExitStack() as stack:
        stack.enter_context(small())
        for name, size in sizes.items():
            stack.enter_context(mock.patch(name, size))
        yield


class KeyRuleMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.stack.enter_context(tiny())
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop)
        self.disk = HostileDisk()
        self.held: dict[int, Naive] = {}
        self.sent = 0
        self.head = 0
        self.last_ts_ms = 0

    def teardown(self) -> None:
        self.loop.stop_all()
        self.loop.close()
        self.stack.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @initialize(config=configs)
    def begin(self, config: LogConfig) -> None:
        self.boot()
        self.config = config
        self.run(self.started.engine.logs.put("log", "topics", config))

    def boot(self) -> None:
        self.started: Started = self.run(boot(self.disk, self.clock))
        self.upkeep = self.loop.create_task(self.started.upkeep.run())

    # --- what a list does ---

    def expire(self) -> None:
        if self.config.ttl_ms:
            now_ms = self.clock.now_ms()
            self.held = {
                seq: record
                for seq, record in self.held.items()
                if now_ms - record.ts_ms <= self.config.ttl_ms
            }

    def obey(self, held: dict[int, Naive]) -> dict[int, Naive]:
        """What the rule by key leaves."""
        keep, keys_max = self.config.keep_per_key, self.config.keys_max
        by_key: dict[str, list[int]] = {}
        for seq, record in held.items():
            if record.key is not None:
                by_key.setdefault(record.key, []).append(seq)
        gone: set[int] = set()
        for seqs in by_key.values():
            gone.update(seqs[:-keep] if keep else ())
        if keys_max:
            for seqs in sorted(by_key.values(), key=max, reverse=True)[keys_max:]:
                gone.update(seqs)
        return {seq: record for seq, record in held.items() if seq not in gone}

    def is_full(self, held: dict[int, Naive]) -> bool:
        sizes = sum(record.size_bytes for record in held.values())
        config = self.config
        return bool(config.cap_records and len(held) > config.cap_records) or bool(
            config.cap_bytes and sizes > config.cap_bytes
        )

    def trim(self) -> None:
        """What the caps leave."""
        if self.config.discard is Discard.OLD:
            while self.is_full(self.held):
                del self.held[next(iter(self.held))]

    # --- what happens ---

    @rule(
        drafts=st.lists(
            st.tuples(st.sampled_from(KEYS), st.sampled_from(TAGS), st.integers(0, 30)),
            min_size=1,
            max_size=6,
        )
    )
    def append(self, drafts: list[tuple[str | None, str | None, int]]) -> None:
        self.expire()
        ts_ms = self.last_ts_ms = max(self.last_ts_ms, self.clock.now_ms())
        new: dict[int, Naive] = {}
        for at, (key, tag, padding) in enumerate(drafts, self.head + 1):
            self.sent += 1
            data = b"%d" % self.sent + b" " * padding
            new[at] = Naive(key, tag, data, ts_ms, self.config.journaled)
        made = draft(
            [record.data for record in new.values()],
            tags=[record.tag for record in new.values()],
            keys=[record.key for record in new.values()],
        )
        after = self.obey(self.held | new)
        appending = self.started.engine.appender.append("log", made, owner="topics", create=None)
        if self.config.discard is Discard.REJECT and self.is_full(after):
            with pytest.raises(Refused) as refused:
                self.run(appending)
            assert refused.value.code is Code.LOG_FULL
            return
        appended = self.run(appending)
        assert (appended.first, appended.last) == (self.head + 1, self.head + len(new))
        self.head = appended.last
        self.held = after
        self.trim()

    @rule(tag=st.sampled_from(TAGS[1:]))
    def delete_tagged(self, tag: str) -> None:
        self.expire()
        gone = [seq for seq, record in self.held.items() if record.tag == tag]
        _, count = self.run(self.started.engine.deleter.delete("log", None, TagEq(tag)))
        assert count == len(gone)
        for seq in gone:
            del self.held[seq]

    @rule(below=st.integers(0, 40))
    def delete_below(self, below: int) -> None:
        self.expire()
        gone = [seq for seq in self.held if seq <= self.head - below]
        before = self.head - below + 1
        if before > 0:
            _, count = self.run(self.started.engine.deleter.delete("log", before, None))
            assert count == len(gone)
            for seq in gone:
                del self.held[seq]

    @rule(ms=st.integers(1, 6_000))
    def wait(self, ms: int) -> None:
        self.loop.now_s += ms / 1000

    @rule(config=configs)
    def configure(self, config: LogConfig) -> None:
        self.expire()
        self.run(self.started.engine.logs.put("log", "topics", config))
        self.config = config
        # The caps come first, and then the rule: neither brings back what the other took.
        self.trim()
        self.expire()
        self.held = self.obey(self.held)

    @rule(retire=st.booleans())
    def seal(self, retire: bool) -> None:
        self.run(self.started.engine.seal(retire=retire))

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        if clean:
            self.run(stop(self.started))
        halt(self.started)
        self.loop.stop_all()
        self.disk = self.disk.kill()
        self.boot()
        self.held = {seq: record for seq, record in self.held.items() if record.lives_on}
        head = self.started.engine.state.by_name["log"].head
        assert head >= self.head
        self.head = head

    # --- what must be true ---

    @invariant()
    def the_log_has_what_the_list_has(self) -> None:
        if not hasattr(self, "started"):
            return
        self.expire()
        found = self.run(view(self.started.engine, "log"))
        assert {seq: record.data for seq, record in found.records.items()} == {
            seq: record.data for seq, record in self.held.items()
        }
        assert found.count == len(self.held)
        assert found.size_bytes == sum(record.size_bytes for record in self.held.values())
        live = self.started.engine.live("log")
        assert list(state_problems(live.log)) == []
        assert (live.keyed is not None) is self.config.keyed
        if live.keyed is not None:
            keys = {record.key for record in self.held.values()} - {None}
            assert set(live.keyed.keys()) == keys
            for key in keys:
                seqs = [seq for seq, record in self.held.items() if record.key == key]
                assert list(live.keyed.of(str(key))) == seqs
            newest = {record.key: seq for seq, record in self.held.items() if record.key}
            assert list(live.keyed.oldest()) == sorted(keys, key=lambda key: newest[key])


TestKeyRule = KeyRuleMachine.TestCase
TestKeyRule.settings = settings(max_examples=80, stateful_step_count=20, deadline=None)
