"""A log driven as the engine drives it (decide, apply, journal), with the naive log beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from hypothesis import strategies as st

from headrace.core import deletion, idempotency, ranges, supersession
from headrace.core import log as core_log
from headrace.core import state as core_state
from headrace.core.config import LogConfig
from headrace.core.entry import Append, Configure, Create, Entry, LoseAtRestart
from headrace.core.errors import Code, Refused
from headrace.core.log import Log
from headrace.core.match import TagMatch
from headrace.core.read import Budget, Gathering, Page, plan
from headrace.core.record import Block, Drafts, draft
from headrace.core.retention import Ledger, build
from headrace.core.selector import ColumnSelector
from headrace.core.state import State
from headrace.formats.frame import Frame, encode_frame, read_frames
from headrace.formats.snapshot import (
    FORMAT,
    Captured,
    Foot,
    SnapshotHead,
    decode_snapshot,
    encode_part,
)

from .naive import Full, NaiveLog, Record

AHEAD = 8
"""Seqs promised at a time: few, so that tests reach the end of a promise."""

texts = st.sampled_from([None, None, "a", "ab", "b"])
drafts_of = st.lists(
    st.builds(
        Record,
        seq=st.just(0),
        ts_ms=st.just(0),
        data=st.sampled_from([b"1", b"1", b"1", b"[22]", b'"twenty-two characters"']),
        meta=st.sampled_from([None, None, b"{}", b'{"k":1}']),
        tag=texts,
        node=texts,
    ),
    min_size=1,
    max_size=5,
)


def columns(records: list[Record]) -> Drafts:
    """As a surface makes them: a column nobody uses is not there."""
    metas = [record.meta for record in records]
    tags = [record.tag for record in records]
    nodes = [record.node for record in records]
    return draft(
        [record.data for record in records],
        metas if any(meta is not None for meta in metas) else None,
        tags if any(tags) else None,
        nodes if any(nodes) else None,
    )


def records_of(block: Block, picks: Iterable[int]) -> Iterator[Record]:
    for at in picks:
        yield Record(
            block.seq_at(at),
            block.ts_at(at),
            block.data_at(at),
            block.metas[at] if block.metas else None,
            block.tags[at] if block.tags else None,
            block.nodes[at] if block.nodes else None,
        )


def ledger_of(log: Log) -> list[tuple[int, int, int]] | None:
    """(seq, time, size) of each live record, whatever runs the ledger holds them in."""
    if log.ledger is None:
        return None
    return [
        (seq, ts_ms, size)
        for first, last, ts_ms, size in log.ledger.runs(log.missing, log.floor - 1)
        for seq in range(first, last + 1)
    ]


def plain(log: Log) -> dict[str, object]:
    """The log as values that compare."""
    held: dict[str, object] = {name: getattr(log, name) for name in log.__struct_fields__}
    for name in ("deleted", "gaps", "volatile", "extents", "holes"):
        held[name] = list(held[name])  # type: ignore[call-overload]
    held["keys"] = list((log.keys or {}).items())
    held["ledger"] = ledger_of(log)
    held["origins"] = log.origins.dump() if log.origins else None
    held["queue"] = log.queue.dump() if log.queue else None
    return held


class LogHarness:
    """One log in its state, its journal and snapshot as bytes, its blocks, and its naive twin."""

    def __init__(self, config: LogConfig) -> None:
        self.state = State()
        self.journal = bytearray()
        self.snapshot: bytes | None = None
        self.now_ms = 1000
        self.blocks: list[Block] = []
        self.sent: dict[int, Record] = {}
        self.visible = 0
        self.unwritten: set[int] = set()
        """Seqs of class ephemeral: no restart may bring them back."""
        self.commit(Create(1, "a", "topics", config, self.now_ms, AHEAD))
        self.naive = NaiveLog(config)

    @property
    def log(self) -> Log:
        return self.state.logs[1]

    def commit(self, *entries: Entry | None) -> None:
        for entry in entries:
            if entry is not None:
                core_state.apply(self.state, entry)
                self.journal += encode_frame(entry, len(self.journal), 0)

    # --- writing ---

    def expire(self) -> None:
        self.commit(core_log.expire(self.log, self.now_ms))
        self.naive.expire(self.now_ms)

    def append(self, drafts: list[Record], key: str | None = None) -> None:
        self.expire()
        try:
            added = self.naive.append(drafts, self.now_ms)
        except Full:
            with pytest.raises(Refused) as refusal:
                supersession.append(self.log, None, columns(drafts), key, self.now_ms)
            assert refusal.value.code is Code.LOG_FULL
            return
        entry = supersession.append(self.log, None, columns(drafts), key, self.now_ms).append
        assert (entry.block.first, entry.block.last) == (added[0].seq, added[-1].seq)
        self.commit(core_log.reserve(self.log, entry.block.last, AHEAD))
        if self.log.config.journaled:
            self.commit(entry)
        else:
            self._apply_only(entry)
            self.unwritten.update(record.seq for record in added)
        self.blocks.append(entry.block)
        self.sent.update((record.seq, record) for record in added)
        if key is not None:
            self.naive.keys[key] = (added[0].seq, added[-1].seq, added[0].ts_ms)

    def _apply_only(self, entry: Append) -> None:
        """Class ephemeral: journaled is only a floor that passes records which would come back."""
        trim, floor = entry.trim, self.log.floor
        core_state.apply(self.state, entry)
        if trim and next(ranges.outside(self.log.volatile, floor, trim.floor_cap - 1), None):
            self.journal += encode_frame(trim, len(self.journal), 0)

    def find(self, key: str) -> tuple[int, int] | None:
        window_ms = self.log.config.idempotency_window_ms
        return idempotency.find(self.log.keys, key, window_ms, self.now_ms)

    def configure(self, config: LogConfig) -> None:
        self.expire()
        if config.trims and self.log.ledger is None:
            self.log.ledger = self.build_ledger(self.log)
        self.commit(Configure(1, config, self.log.head))
        self.commit(core_log.expire(self.log, self.now_ms))
        self.commit(core_log.overflow(self.log))
        self.naive.configure(config, self.now_ms)

    def build_ledger(self, log: Log) -> Ledger:
        ledger = build(iter(self.blocks))
        ledger.drop_below(log.floor)
        return ledger

    def delete_below(self, before: int) -> int:
        self.expire()
        found = deletion.live_below(self.log, before, self.visible)
        size_bytes = sum(self.measure(first, last) for first, last in ranges.pairs(found))
        entry = deletion.delete_ranges(self.log, found, size_bytes)
        self.commit(entry)
        bound = min(before - 1, self.visible)
        self.naive.delete({record.seq for record in self.naive.live if record.seq <= bound})
        return entry.count if entry else 0

    def delete_tagged(self, match: TagMatch, before: int) -> int:
        self.expire()
        before = min(before, self.visible + 1)
        sizes = [
            (record.seq, record.size)
            for record in self.sent.values()
            if match.matches(record.tag) and record.seq < before
        ]
        entry = deletion.delete_seqs(self.log, sizes, before)
        self.commit(entry)
        self.naive.delete(
            {r.seq for r in self.naive.live if r.seq < before and match.matches(r.tag)}
        )
        return entry.count if entry else 0

    def measure(self, first: int, last: int) -> int:
        """Bytes of the records in [first, last], which are all live."""
        return sum(
            block.measure(block.index(first), block.stop_index(last)) for block in self.blocks
        )

    # --- reading ---

    def read(
        self, after: int, budget: Budget, exclude: frozenset[str]
    ) -> tuple[Page, list[Record]]:
        gathering = Gathering(
            self.log, plan(self.log, self.visible, after, None), budget, ColumnSelector(exclude)
        )
        for block in self.blocks:
            if block.last >= gathering.next + 1 and not gathering.take(block):
                break
        page = gathering.page(self.visible)
        found = [record for part in page.slices for record in records_of(part.block, part.picks)]
        return page, found

    def check_read(
        self, after: int, records: int, size_bytes: int, exclude: frozenset[str]
    ) -> Page:
        self.expire()
        page, found = self.read(after, Budget(records, size_bytes, 1 << 20), exclude)
        wanted = self.naive.read(after, self.visible, records, size_bytes, set(exclude))
        assert (found, page.next, page.gap) == wanted
        assert page.earliest == min(self.naive.earliest, self.visible + 1)
        assert page.head == self.visible
        assert page.caught_up == (page.next == self.visible)
        return page

    # --- keeping ---

    def save(self) -> None:
        """A snapshot, from which replay goes on."""
        parts = (
            SnapshotHead(FORMAT, len(self.journal), self.state.next_id, 0, "boot"),
            *(Captured(len(self.journal), log.id, log) for log in self.state.logs.values()),
            Foot(len(self.state.logs)),
        )
        self.snapshot = b"".join(map(encode_part, parts))

    def replayed(self) -> State:
        """The state that snapshot and journal give."""
        state, position = State(), 0
        if self.snapshot is not None:
            head, captured = decode_snapshot(self.snapshot, "snapshot")
            position, state.next_id = head.position, head.next_id
            for item in captured:
                if item.log is not None:
                    state.put(item.log)
        for frame in read_frames(memoryview(bytes(self.journal)), 0, "journal", final=True):
            if frame.position >= position:
                core_state.apply(state, frame.entries[0])
        for log in state.logs.values():
            if log.config.trims and log.ledger is None:
                log.ledger = self.build_ledger(log)
        return state

    def tear(self, count: int) -> None:
        """A power cut: up to `count` appends at the end of the journal, never synced, are gone."""
        frames = list(read_frames(memoryview(bytes(self.journal)), 0, "journal", final=True))
        for frame in reversed(frames[max(0, len(frames) - count) :]):
            entry = frame.entries[0]
            if not isinstance(entry, Append) or entry.trim is not None or self._saved(frame):
                return
            del self.journal[frame.position :]

    def _saved(self, frame: Frame) -> bool:
        return self.snapshot is not None and decode_snapshot(self.snapshot, "")[0].position > (
            frame.position
        )

    def restart(self, *, clean: bool, same_boot: bool) -> None:
        """Go on with what is on disk; the naive log loses what it must."""
        if clean:
            self.save()
        self.state = self.replayed()
        log, naive = self.log, self.naive
        lost, head = core_log.lost_by_restart(log, clean=clean, same_boot=same_boot)
        lost_seqs = {seq for first, last in ranges.pairs(lost) for seq in range(first, last + 1)}
        assert self.unwritten <= lost_seqs
        self.unwritten = set()
        # Appends never journaled had moved floors and the clock; their loss covers that.
        naive.floor_cap, naive.floor_ttl = log.floor_cap, log.floor_ttl
        naive.last_ts_ms = log.last_ts_ms
        if lost:
            naive.lose(lost_seqs, head)
            self.commit(LoseAtRestart(1, list(lost), head, naive.size_bytes))
        self.blocks = [block for block in self.blocks if block.first not in lost_seqs]
        self.visible = log.head
