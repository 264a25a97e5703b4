"""The naive model beside a running engine: told of every change at the moment it is decided.

The engine says *that* something changed, and in which order; *what* it changes to is worked out
here anew, from what the user asked for, and must be the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from headrace.core import ranges
from headrace.core.config import Durability, LogConfig
from headrace.core.entry import (
    Append,
    Configure,
    Create,
    Delete,
    Drop,
    Entry,
    Route,
    Trim,
    Unroute,
)
from headrace.core.match import TagMatch
from headrace.core.read import Loss, Page
from headrace.core.record import Drafts
from headrace.engine.engine import Engine
from headrace.engine.logs.append_batch import AppendBatch, TurnBatches
from headrace.engine.open_log import OpenLog
from support.engine_harness import Record
from support.oracle import History, ModelLog
from support.relay import Relay
from support.virtual import VirtualClock


@dataclass
class Wish:
    """What a client asked for, and what became of it."""

    records: list[Record] = field(default_factory=list)
    key: str | None = None
    config: LogConfig | None = None
    before: int | None = None
    match: TagMatch | None = None
    due: frozenset[int] = frozenset()
    """A delete must take these: they were acknowledged before it was asked for."""
    index: int = 0
    """The step that made it true; 0 when nothing had to change."""
    durability: Durability = Durability.FSYNC
    """The class it is acknowledged under."""
    last: int = 0
    """The seq of the last record of an append."""
    control: int = 0
    """The step that created or configured the log it was decided on: who is told of it counts on
    that.
    """

    def covers(self, seq: int, record: Record) -> bool:
        return (self.before is None or seq < self.before) and (
            self.match is None or self.match.matches(record.tag)
        )


WISH: ContextVar[Wish] = ContextVar("wish")


class Shadow:
    """Follows one engine and keeps the history."""

    def __init__(self, engine: Engine, history: History, clock: VirtualClock) -> None:
        self.history = history
        self.keys = {
            (log.id, key): span[:2]
            for log in history.now.values()
            for key, span in log.keys.items()
        }
        self.control: dict[int, int] = {}
        """Log → the last step of this life that created or configured it."""
        self.gone: dict[str, int] = {}
        """Name → the last step of this life that dropped a log of this name."""
        self.appended: dict[int, tuple[int, Durability]] = {}
        """Log → the last step of this life that a client appended to it by, and its class."""
        self._clock = clock
        self._names = {log.id: name for name, log in history.now.items()}
        self._relay = Relay(engine, history)
        self._joined: dict[int, tuple[Drafts, Wish]] = {}
        """What clients asked for that is appended together with others, by its drafts."""
        self._together: list[Wish] | None = None
        """Those whose drafts are being appended as one."""
        self._watch(engine)
        self._watch_batches(engine.appender.batches)

    def _watch(self, engine: Engine) -> None:
        apply: Callable[[Entry], None] = engine.apply

        def watched(entry: Entry) -> None:
            apply(entry)
            if not self._relay.follow(entry):
                self._follow(entry)
            elif isinstance(entry, Route | Unroute):
                self._done(WISH.get(), Durability.FSYNC)

        engine.apply = watched  # type: ignore[method-assign]

    def _watch_batches(self, batches: TurnBatches) -> None:
        join, append_batch = batches.join, batches._append

        def joined(live: OpenLog, drafts: Drafts) -> asyncio.Future[int]:
            self._joined[id(drafts)] = drafts, WISH.get()
            return join(live, drafts)

        def appended(batch: AppendBatch) -> None:
            before, self._together = (
                self._together, [self._joined[id(drafts)][1] for drafts in batch.drafts],
            )  # fmt: skip
            try:
                append_batch(batch)
            finally:
                self._together = before

        batches.join = joined  # type: ignore[method-assign]
        batches._append = appended

    def log(self, id: int) -> ModelLog | None:
        found = self.history.now.get(self._names.get(id, ""))
        return found if found is not None and found.id == id else None

    def _step(self, log: ModelLog) -> None:
        self.history.step(self._names[log.id], log)

    def _follow(self, entry: Entry) -> None:
        match entry:
            case Create():
                self._create(entry)
            case Append():
                self._append(entry)
            case Trim():
                self._trim(entry)
            case Delete():
                self._delete(entry)
            case Configure():
                log = self._known(entry.log)
                assert entry.config == WISH.get().config
                self._step(replace(log, config=entry.config))
                self._done(WISH.get(), Durability.FSYNC)
                self.control[log.id] = self._now
            case Drop():
                name = self._names[entry.log]
                self.history.step(name, None)
                self._done(WISH.get(), Durability.FSYNC)
                self.gone[name] = self._now

    @property
    def _now(self) -> int:
        return len(self.history.states) - 1

    def _known(self, id: int) -> ModelLog:
        log = self.log(id)
        assert log is not None, f"an entry for log {id}, which does not exist"
        return log

    def _done(self, wish: Wish, durability: Durability) -> None:
        wish.index = len(self.history.states) - 1
        wish.durability = durability

    def _create(self, entry: Create) -> None:
        assert entry.name not in self.history.now, f"{entry.name} exists"
        assert entry.log not in self._names, f"log id {entry.log} was used before"
        assert entry.config == WISH.get().config
        self._names[entry.log] = entry.name
        self._step(ModelLog(entry.log, entry.config))
        self._done(WISH.get(), Durability.FSYNC)
        self.control[entry.log] = self._now

    def _append(self, entry: Append) -> None:
        wishes = self._together or [WISH.get()]
        log, now_ms = self._known(entry.log), self._clock.now_ms()
        (key,) = {wish.key for wish in wishes}
        assert entry.key == key
        assert key is None or len(wishes) == 1
        if key in log.keys:
            assert now_ms - log.keys[key][2] > log.config.idempotency_window_ms, "twice"
        records = [record for wish in wishes for record in wish.records]
        assert not log.full(records), "more than the caps allow"
        grown = self._stamped(log, entry.block.ts_ms).append(records, key, now_ms)
        assert (entry.block.first, entry.block.last) == (log.head + 1, grown.head)
        floor = entry.trim.floor_cap if entry.trim else log.floor
        assert floor == grown.floor, f"floor {floor} instead of {grown.floor}"
        self._step(grown)
        last = log.head
        for wish in wishes:
            last += len(wish.records)
            wish.last = last
            self._done(wish, log.config.durability)
            wish.control = self.control.get(log.id, 0)
        self.appended[log.id] = (self._now, log.config.durability)
        if key:
            self.keys[log.id, key] = (entry.block.first, entry.block.last)

    def _stamped(self, log: ModelLog, ts_ms: int) -> ModelLog:
        """Time does not run backwards in a log, but for what a restart took with it."""
        now_ms = self._clock.now_ms()
        newest_ms = max((record.ts_ms for record in log.records.values()), default=0)
        assert max(now_ms, newest_ms) <= ts_ms <= max(now_ms, log.last_ts_ms)
        return replace(log, last_ts_ms=ts_ms)

    def _trim(self, entry: Trim) -> None:
        log = self._known(entry.log)
        shrunk = log.expire(self._clock.now_ms()) if entry.floor_ttl else log.trim()
        floor = max(entry.floor_ttl, entry.floor_cap)
        assert floor == shrunk.floor, f"floor {floor} instead of {shrunk.floor}"
        self._step(shrunk)

    def _delete(self, entry: Delete) -> None:
        log = self._known(entry.log)
        gone = {seq for low, high in ranges.pairs(entry.ranges) for seq in range(low, high + 1)}
        assert entry.count == len(gone)
        if log.superseded:
            # It came with an append, and the model has it from there.
            assert gone == log.superseded
            self.history.now[self._names[log.id]] = replace(log, superseded=frozenset())
            return
        wish = WISH.get()
        if wish.config is not None:
            surplus = log.records.keys() - log.obey().records.keys()
            assert gone <= surplus, f"{gone - surplus} go without being superseded"
            self._step(log.delete(lambda seq, record: seq in gone))
            self._done(wish, Durability.FSYNC)
            return
        for seq in gone:
            assert seq in log.records, f"seq {seq} is deleted again"
            assert wish.covers(seq, log.records[seq]), f"seq {seq} was not meant"
        assert wish.due & log.records.keys() <= gone, f"{wish.due} should go, not {gone}"
        self._step(log.delete(lambda seq, record: seq in gone))
        self._done(wish, log.config.durability)

    def check_page(self, id: int, after: int, page: Page) -> None:
        """A page leaves out nothing that is there, and shows nothing that is not."""
        log = self.log(id)
        found = dict(read_page(page))
        assert list(found) == sorted(found)
        gap = page.gap
        recreated = gap is not None and gap.reason is Loss.RECREATED
        start = 1 if recreated else after + 1
        assert all(start <= seq <= page.next for seq in found)
        assert page.next <= page.head
        for seq in range(start, page.next + 1) if log else ():
            told = gap is not None and gap.first <= seq <= gap.last and not recreated
            assert not (told and seq in found), f"seq {seq} is there and in a gap"
            if seq not in found and not told:
                assert seq not in log.records, f"seq {seq} was left out"
        self.history.show(id, found.items(), page.head)


def read_page(page: Page) -> list[tuple[int, Record]]:
    """The records of a page by seq."""
    found: list[tuple[int, Record]] = []
    for piece in page.slices:
        block = piece.block
        for at in piece.picks:
            record = Record(
                block.data_at(at),
                block.metas[at] if block.metas else None,
                block.tags[at] if block.tags else None,
                block.nodes[at] if block.nodes else None,
                block.ts_at(at),
                block.keys[at] if block.keys else None,
            )
            found.append((block.seq_at(at), record))
    return found
