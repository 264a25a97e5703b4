"""The jobs of a queue against the naive one; with replays, restarts and torn journals between."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.core import lease, ranges, supersession
from headrace.core import log as core_log
from headrace.core import state as core_state
from headrace.core.config import Durability, Kind, LogConfig
from headrace.core.entry import Configure, Create, Delete, Entry, LoseAtRestart
from headrace.core.lease import Asking
from headrace.core.log import Log
from headrace.core.record import draft
from headrace.core.state import State
from headrace.formats.frame import encode_frame, encode_group, read_frames
from headrace.formats.snapshot import (
    FORMAT,
    Captured,
    Foot,
    SnapshotHead,
    decode_snapshot,
    encode_part,
)
from headrace.storage.checks.states import state_problems
from support.naive_queue import DELAYED, FRESH, LEASED, PARKED, RETURNED, NaiveQueue

RECORD_BYTES = 17
NODES = ("v", "w")

groups = st.sampled_from([None, None, "a", "b"])
delays = st.sampled_from([None, None, None, 0, 1, 5, 20])
waits = st.sampled_from([0, 0, 0, 1, 4, 5, 6, 30])
leases = st.sampled_from([0, 4, 5, 100])
nodes = st.sampled_from(NODES)
configs = st.builds(
    LogConfig,
    kind=st.just(Kind.QUEUE),
    durability=st.just(Durability.FSYNC),
    cap_records=st.sampled_from([0, 0, 4]),
    ttl_ms=st.sampled_from([0, 0, 0, 15]),
    max_deliveries=st.sampled_from([0, 1, 2]),
    dead_letter=st.sampled_from([None, "dlq"]),
    leases_durable=st.booleans(),
)


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        # Few jobs: the heaps are to be made anew all the same.
        self._tight = mock.patch("headrace.core.queue_state._STALE_MAX", 1)
        self._tight.start()

    def teardown(self) -> None:
        self._tight.stop()

    @initialize(config=configs)
    def create(self, config: LogConfig) -> None:
        self.state = State()
        self.journal = bytearray()
        self.snapshot: bytes | None = None
        self.now_ms = 1000
        self.visible = 0
        self.turn = 0
        self.fence = 0
        self.naive = NaiveQueue()
        self.fences: dict[int, list[int]] = {}
        self.past: list[tuple[int, NaiveQueue, LogConfig]] = []
        """The naive queue as it was at each end of a frame."""
        self.commit(Create(1, "q", "topics", config, self.now_ms, 0))

    @property
    def log(self) -> Log:
        return self.state.logs[1]

    def commit(self, *entries: Entry) -> None:
        """Apply entries and journal them in one frame."""
        for entry in entries:
            core_state.apply(self.state, entry)
        at = len(self.journal)
        together = len(entries) > 1
        frame = encode_group(entries, at, 0) if together else encode_frame(entries[0], at, 0)
        self.journal += frame

    def note(self) -> None:
        """The naive queue has followed the last frame."""
        self.past.append((len(self.journal), deepcopy(self.naive), self.log.config))

    # --- rules -----------------------------------------------------------------------------------

    @rule(jobs=st.lists(st.tuples(groups, delays), min_size=1, max_size=4))
    def append(self, jobs: list[tuple[str | None, int | None]]) -> None:
        keys = [group for group, _ in jobs]
        due = [None if delay is None else self.now_ms + delay for _, delay in jobs]
        drafts = draft([b"1"] * len(jobs), keys=keys if any(keys) else None)
        entry = supersession.append(self.log, None, drafts, None, self.now_ms).append
        late = lease.delay(self.log, entry.block.first, due, self.now_ms)
        self.commit(entry, *late)
        self.naive.append(keys, due, self.now_ms)
        self._follow_floor()

    @rule(share=st.floats(0, 1))
    def show(self, share: float) -> None:
        self.visible += round((self.log.head - self.visible) * share)

    @rule(wait_ms=waits)
    def pass_time(self, wait_ms: int) -> None:
        self.now_ms += wait_ms
        trim = core_log.expire(self.log, self.now_ms)
        if trim is not None:
            self.commit(trim)
            self._follow_floor()

    @rule(
        wanted=st.lists(st.integers(1, 4), min_size=1, max_size=3),
        lease_ms=leases,
        turn=st.integers(0, 2),
        partly=st.booleans(),
    )
    def claim(self, wanted: list[int], lease_ms: int, turn: int, partly: bool) -> None:
        log, config = self.log, self.log.config
        askers = [Asking(NODES[at % 2], want, lease_ms + at) for at, want in enumerate(wanted)]
        claims, spent = lease.claim(log, askers, self.visible, self.now_ms, turn=turn)
        first = turn % len(askers)
        limit = config.max_deliveries if config.dead_letter else 0
        hands, failed = self.naive.deal(
            wanted[first:] + wanted[:first], self.visible, self.now_ms, limit
        )
        hands = hands[-first:] + hands[:-first] if first else hands
        assert [claim.seqs if claim else [] for claim in claims] == hands
        assert spent == failed
        for at, claim in enumerate(claims):
            if claim is None or (partly and at == 1):
                continue  # (as if the journal ended before this one)
            assert claim.fence > self.fence
            self.fence = claim.fence + len(claim.seqs) - 1
            assert (claim.node, claim.deadline_ms) == (
                askers[at].node,
                self.now_ms + askers[at].lease_ms,
            )
            self.commit(claim)
            self.naive.claim(claim.seqs, claim.node, claim.fence, claim.deadline_ms, self.now_ms)
            for number, seq in enumerate(claim.seqs, claim.fence):
                self.fences.setdefault(seq, []).append(number)
            self.note()
        if spent:
            self.commit(lease.dead_letter(log, spent, len(spent) * RECORD_BYTES))
            self.naive.remove(set(spent))
            self.naive.dead_lettered += len(spent)
            self.note()

    @rule(
        what=st.sampled_from(["ack", "nack", "later", "extend"]),
        node=nodes,
        seqs=st.lists(st.integers(1, 14), min_size=1, max_size=5),
        data=st.data(),
    )
    def settle(self, what: str, node: str, seqs: list[int], data: st.DataObject) -> None:
        known = [st.sampled_from([None, *self.fences.get(seq, [7])]) for seq in seqs]
        fences = data.draw(st.none() | st.tuples(*known))
        held = self._hold(node, seqs, fences)
        if not held:
            return
        log, now_ms = self.log, self.now_ms
        match what:
            case "ack":
                self.commit(
                    lease.ack(log, ranges.from_seqs(held), len(held), len(held) * RECORD_BYTES)
                )
                self.naive.remove(set(held))
            case "extend":
                self.commit(lease.extend(log, held, 5, now_ms))
                self.naive.extend(held, now_ms + 5)
            case _:
                delay_ms = 5 if what == "later" else 0
                self.commit(lease.nack(log, held, delay_ms, now_ms))
                self.naive.release(held, now_ms + delay_ms if delay_ms else 0)
        self.note()

    def _hold(self, node: str, seqs: list[int], fences: Sequence[int | None] | None) -> list[int]:
        held, skipped = lease.hold(self.log, node, seqs, fences, self.now_ms)
        mine: list[int] = []
        rest: list[int] = []
        for at, seq in enumerate(seqs):
            fence = fences[at] if fences else None
            good = seq not in mine and self.naive.holds(node, seq, fence, self.now_ms)
            (mine if good else rest).append(seq)
        assert (held, skipped) == (sorted(mine), rest)
        return held

    @rule(first=st.integers(1, 12), length=st.integers(1, 6))
    def delete(self, first: int, length: int) -> None:
        doomed = {s for s in self.naive.jobs if first <= s < first + length and s <= self.visible}
        if doomed:
            held = list(ranges.from_seqs(sorted(doomed)))
            self.commit(Delete(1, held, len(doomed), len(doomed) * RECORD_BYTES))
            self.naive.remove(doomed)
            self.note()

    @rule(config=configs)
    def configure(self, config: LogConfig) -> None:
        if config.trims and self.log.ledger is None:
            return  # (whoever builds a ledger is tested elsewhere)
        self.commit(Configure(1, config, self.log.head))
        if trim := core_log.overflow(self.log):
            self.commit(trim)
        self._follow_floor()

    def _follow_floor(self) -> None:
        self.naive.remove({seq for seq in self.naive.jobs if seq < self.log.floor})
        self.note()

    # --- keeping ---------------------------------------------------------------------------------

    @rule()
    def save(self) -> None:
        parts = (
            SnapshotHead(FORMAT, len(self.journal), 2, 0, "boot"),
            Captured(len(self.journal), 1, self.log),
            Foot(1),
        )
        self.snapshot = b"".join(map(encode_part, parts))

    @rule()
    def replay(self) -> None:
        again, now = self.replayed().logs[1].jobs, self.log.jobs
        for queue in (again, now):
            queue.sweep(self.now_ms)
        assert again.dump() == now.dump()

    @rule(torn=st.integers(0, 3), lost=st.booleans())
    def restart(self, torn: int, lost: bool) -> None:
        """Go on from a prefix of the journal, but never from before the snapshot."""
        saved = decode_snapshot(self.snapshot, "")[0].position if self.snapshot else 0
        ends = [at for at, (position, *_) in enumerate(self.past) if position >= saved]
        if ends:
            position, naive, _ = self.past[ends[max(0, len(ends) - 1 - torn)]]
            del self.past[ends[max(0, len(ends) - 1 - torn)] + 1 :]
            del self.journal[position:]
            self.naive = deepcopy(naive)
        self.now_ms += 1  # a new process: fences that were lost are behind the clock
        self.state = self.replayed()
        log = self.log
        self.visible = log.head
        gone: list[int] = []
        if lost and log.head:
            gone = [log.head, log.head]
            alive = self.naive.jobs.keys() - {log.head}
            loss = LoseAtRestart(1, gone, log.head, len(alive) * RECORD_BYTES)
            release = lease.lost_by_restart(log, gone)
            self.commit(loss)
            self.naive.remove(self.naive.jobs.keys() - alive)
        else:
            release = lease.lost_by_restart(log, gone)
        self.note()
        if release is not None:
            assert not log.config.leases_durable
            self.commit(release)
            self.naive.release([seq for seq, job in self.naive.jobs.items() if job.lease], 0)
            self.note()
        if not log.config.leases_durable:
            assert not log.jobs.leases

    def replayed(self) -> State:
        state, position = State(), 0
        if self.snapshot is not None:
            head, captured = decode_snapshot(self.snapshot, "snapshot")
            position = head.position
            for item in captured:
                assert item.log is not None
                state.put(item.log)
        for frame in read_frames(memoryview(bytes(self.journal)), 0, "journal", final=True):
            for entry in frame.entries if frame.position >= position else ():
                core_state.apply(state, entry)
        return state

    # --- what is always so -----------------------------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "naive"):
            return
        log, queue, naive, now_ms = self.log, self.log.jobs, self.naive, self.now_ms
        counters = lease.count(log, self.visible, now_ms)
        assert counters.ready == len(naive.ready(self.visible, now_ms))
        assert counters.in_flight == len(naive.in_flight(now_ms))
        assert counters.dead_lettered == naive.dead_lettered
        assert log.count == len(naive.jobs)
        for seq, job in naive.jobs.items():
            assert self._place(seq) == naive.place(seq, now_ms)
            assert queue.deliveries.get(seq, 0) == job.deliveries
        assert list(state_problems(log)) == []

    def _place(self, seq: int) -> str:
        queue = self.log.jobs
        found = [
            place
            for place, there in (
                (LEASED, seq in queue.leases),
                (PARKED, queue.is_parked(seq)),
                (DELAYED, seq in queue.delayed),
                (RETURNED, seq in queue.returned),
            )
            if there
        ]
        fresh = (low <= seq <= high for low, high in core_log.fresh_ranges(self.log, self.log.head))
        found += [FRESH] * any(fresh)
        assert len(found) == 1, f"job {seq} is {found}"
        return found[0]

    @invariant()
    def time_is_announced(self) -> None:
        """Nothing changes by itself before the time the queue names."""
        if not hasattr(self, "naive"):
            return
        change_ms = self.log.jobs.next_change_ms()
        times = [
            job.lease.deadline_ms + 1
            for seq, job in self.naive.jobs.items()
            if job.lease and self.naive.place(seq, self.now_ms) == LEASED
        ]
        times += [
            job.ready_at_ms
            for seq, job in self.naive.jobs.items()
            if self.naive.place(seq, self.now_ms) == DELAYED
        ]
        assert change_ms == min(times, default=None)


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=300, stateful_step_count=40)
