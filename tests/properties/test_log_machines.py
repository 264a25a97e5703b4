"""State machines: the log against the naive one, under everything that can happen to it."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.core.config import Discard, Durability, LogConfig
from headrace.core.match import TagEq, TagPrefix
from headrace.core.read import Budget

from .log_harness import LogHarness, drafts_of, plain
from .naive import Record

journaled = st.sampled_from([Durability.MEMORY, Durability.DISK, Durability.FSYNC])
caps = st.sampled_from([0, 0, 1, 2, 5, 9])
byte_caps = st.sampled_from([0, 0, 16, 51, 120])
nodes = st.frozensets(st.sampled_from(["a", "b"]))
seqs = st.integers(0, 40)
waits = st.sampled_from([0, 0, 1, 20, 21, -5])
budgets = st.sampled_from([0, 17, 34, 60, 300])


class LogMachine(RuleBasedStateMachine):
    """Append, commit, read; and replay, which always gives the same state again."""

    configs = st.builds(LogConfig, durability=journaled, dedupe_node=st.booleans())

    @initialize(data=st.data())
    def create(self, data: st.DataObject) -> None:
        self.rig = LogHarness(data.draw(self.configs))
        self.floor = 1

    @rule(drafts=drafts_of, wait_ms=waits)
    def append(self, drafts: list[Record], wait_ms: int) -> None:
        self.rig.now_ms += wait_ms
        self.rig.append(drafts)

    @rule(share=st.floats(0, 1))
    def show(self, share: float) -> None:
        """Some of what was appended reaches its commit point."""
        rig = self.rig
        rig.visible += round((rig.log.head - rig.visible) * share)

    @rule(
        after=seqs,
        records=st.integers(1, 12),
        size_bytes=budgets,
        exclude=nodes,
    )
    def read(self, after: int, records: int, size_bytes: int, exclude: frozenset[str]) -> None:
        self.rig.check_read(after, records, size_bytes, exclude)

    @rule(records=st.integers(1, 12), size_bytes=budgets, exclude=nodes)
    def read_all(self, records: int, size_bytes: int, exclude: frozenset[str]) -> None:
        """From 0 to the head: each live record once, in pages within their budgets."""
        rig, after, found = self.rig, 0, list[int]()
        told = set[int]()
        while True:
            page = rig.check_read(after, records, size_bytes, exclude)
            assert page.next >= after
            assert page.next > after or page.caught_up
            got = [p.block.seq_at(at) for p in page.slices for at in p.picks]
            size = sum(rig.sent[seq].size for seq in got)
            assert len(got) <= records
            assert size <= size_bytes or len(got) == 1
            found += got
            if page.gap:
                told.update(range(page.gap.first, page.gap.last + 1))
            after = page.next
            if page.caught_up:
                break
        mine = exclude if rig.log.config.dedupe_node else ()
        live = [r for r in rig.naive.live if r.seq <= rig.visible]
        assert found == [record.seq for record in live if record.node not in mine]
        silent = set(range(1, rig.visible + 1)) - told - {record.seq for record in live}
        assert silent <= rig.naive.deleted

    @rule()
    def save(self) -> None:
        self.rig.save()

    @precondition(lambda self: self.rig.log.config.journaled and not self.rig.log.volatile)
    @rule()
    def replay(self) -> None:
        assert plain(self.rig.replayed().logs[1]) == plain(self.rig.log)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "rig"):
            return
        log, naive, state = self.rig.log, self.rig.naive, self.rig.state
        assert (log.head, log.count, log.size_bytes) == (
            naive.head,
            len(naive.live),
            naive.size_bytes,
        )
        assert (state.count, state.size_bytes) == (log.count, log.size_bytes)
        assert (log.floor, log.earliest) == (naive.floor, naive.earliest)
        assert self.floor <= log.floor <= log.earliest <= log.head + 1
        assert (log.ledger is not None) == log.config.trims
        assert all(held[0] >= log.floor for held in (log.deleted, log.gaps) if held)
        self.floor = log.floor


class RetentionMachine(LogMachine):
    """Age, count and bytes; caps that tighten and relax; records deleted in between."""

    configs = st.builds(
        LogConfig,
        ttl_ms=st.sampled_from([0, 0, 20, 1000]),
        cap_records=caps,
        cap_bytes=byte_caps,
        discard=st.sampled_from(Discard),
        durability=journaled,
    )

    @rule(config=configs)
    def configure(self, config: LogConfig) -> None:
        self.rig.configure(config)

    @rule(wait_ms=waits)
    def pass_time(self, wait_ms: int) -> None:
        self.rig.now_ms += wait_ms
        self.rig.expire()

    @rule(before=seqs)
    def delete_below(self, before: int) -> None:
        self.rig.delete_below(before)

    @rule(tag=st.sampled_from(["a", "b"]))
    def delete_tagged(self, tag: str) -> None:
        self.rig.delete_tagged(TagPrefix(tag), 1 << 60)

    @invariant()
    def within_caps(self) -> None:
        if not hasattr(self, "rig"):
            return
        log = self.rig.log
        if log.config.discard is Discard.OLD:
            assert log.count <= (log.config.cap_records or log.count)
            assert log.size_bytes <= (log.config.cap_bytes or log.size_bytes)


class DeletionMachine(LogMachine):
    """By seq, by tag, by both: exactly what is there now, for good, in silence."""

    matches = st.one_of(
        st.sampled_from(["a", "ab", "c"]).map(TagEq),
        st.sampled_from(["", "a", "ab", "b"]).map(TagPrefix),
    )

    @rule(before=seqs)
    def delete_below(self, before: int) -> None:
        count = len(self.rig.naive.live)
        assert self.rig.delete_below(before) == count - len(self.rig.naive.live)

    @rule(match=matches, before=st.one_of(seqs, st.just(1 << 60)))
    def delete_tagged(self, match: TagEq | TagPrefix, before: int) -> None:
        count = len(self.rig.naive.live)
        assert self.rig.delete_tagged(match, before) == count - len(self.rig.naive.live)

    @invariant()
    def tells_of_no_loss(self) -> None:
        if hasattr(self, "rig"):
            page, _ = self.rig.read(0, Budget(1, 1, 1), frozenset())
            assert (page.gap, self.rig.log.floor) == (None, 1)


class RestartMachine(RetentionMachine):
    """Stops, kills and power cuts, with classes that change and records that never reach a disk."""

    configs = st.builds(
        LogConfig,
        ttl_ms=st.sampled_from([0, 0, 20]),
        cap_records=caps,
        cap_bytes=byte_caps,
        durability=st.sampled_from(Durability),
    )

    @rule(config=configs)
    def reclass(self, config: LogConfig) -> None:
        self.rig.configure(config)

    @rule()
    def stop(self) -> None:
        self.rig.restart(clean=True, same_boot=True)

    @rule()
    def kill(self) -> None:
        self.rig.restart(clean=False, same_boot=True)

    @rule(torn=st.integers(0, 3))
    def cut_power(self, torn: int) -> None:
        if not self.rig.log.config.synced:
            self.rig.tear(torn)
        head = self.rig.visible
        self.rig.restart(clean=False, same_boot=False)
        assert self.rig.log.head >= head

    @rule()
    def recover_twice(self) -> None:
        """What recovery leaves on disk gives the same state once more."""
        self.rig.restart(clean=False, same_boot=True)
        assert plain(self.rig.replayed().logs[1]) == plain(self.rig.log)


class KeyMachine(LogMachine):
    """An idempotency key stands for its first append until the window has passed."""

    configs = st.builds(
        LogConfig,
        durability=st.sampled_from([Durability.DISK, Durability.EPHEMERAL]),
        idempotency_window_ms=st.sampled_from([0, 10, 21]),
    )

    @rule(drafts=drafts_of, key=st.sampled_from("xyz"), wait_ms=st.sampled_from([0, 1, 10, 11]))
    def append_once(self, drafts: list[Record], key: str, wait_ms: int) -> None:
        rig = self.rig
        rig.now_ms = max(rig.now_ms, rig.log.last_ts_ms) + wait_ms
        known = rig.naive.keys.get(key)
        if known and rig.now_ms - known[2] <= rig.log.config.idempotency_window_ms:
            assert rig.find(key) == known[:2]
        else:
            assert rig.find(key) is None
            rig.append(drafts, key)
            assert rig.find(key) == (rig.log.head - len(drafts) + 1, rig.log.head)

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.rig.restart(clean=clean, same_boot=True)

    @invariant()
    def forgets(self) -> None:
        """Keys are not kept for ever: what a later key found too old is gone."""
        if hasattr(self, "rig") and (keys := self.rig.log.keys):
            times = [at_ms for _, _, at_ms in keys.values()]
            assert times == sorted(times)
            assert times[-1] - times[0] <= self.rig.log.config.idempotency_window_ms


TestLog = LogMachine.TestCase
TestRetention = RetentionMachine.TestCase
TestDeletion = DeletionMachine.TestCase
TestRestart = RestartMachine.TestCase
TestKeys = KeyMachine.TestCase

TestLog.settings = settings(max_examples=60, stateful_step_count=30)
TestRetention.settings = settings(max_examples=250, stateful_step_count=30)
TestDeletion.settings = settings(max_examples=80, stateful_step_count=30)
TestRestart.settings = settings(max_examples=250, stateful_step_count=40)
TestKeys.settings = settings(max_examples=80, stateful_step_count=30)
