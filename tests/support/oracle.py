"""What must be true after a crash, written once: a naive model, its history, and the comparison.

There is one journal, so whatever survives is a prefix of what was offered: `History` keeps the
model's state after every step, and `judge` looks for the step that the survivors match, not before
the last step that was promised to survive.

Promised after a process kill: every acknowledged step, class ephemeral aside. After a power loss:
every acknowledged step of class fsync and every acknowledged create, configure and drop, with all
that came before them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from headrace.core.config import Discard, Durability, LogConfig
from headrace.core.inbound_route import Rule
from headrace.core.read import Loss
from support.engine_harness import Record, View


class Blow(Enum):
    """What the process died of."""

    KILL = "kill"
    POWER = "power"


@dataclass(frozen=True)
class ModelInlet:
    """A router, as its destination knows it."""

    source: int
    rule: Rule
    cursor: int
    forwarded: int = 0

    def takes(self, record: Record) -> bool:
        return self.rule.match is None or self.rule.match.matches(record.tag)

    def copy(self, record: Record, stamp: Stamp, seq: int) -> Record:
        return record._replace(
            meta=stamp(record.meta, seq) if self.rule.exactly_once else record.meta,
            tag=record.tag if self.rule.keep_tag else None,
            node=record.node if self.rule.keep_node else None,
        )


@dataclass(frozen=True)
class ModelLog:
    """One log, the naive way. A value: changes give a new one."""

    id: int
    config: LogConfig
    head: int = 0
    floor: int = 1
    last_ts_ms: int = 0
    records: dict[int, Record] = field(default_factory=dict)
    """Live records by seq, ascending."""
    volatile: frozenset[int] = frozenset()
    """Seqs whose payload no restart survives."""
    deleted: frozenset[int] = frozenset()
    keys: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    inbound_routes: dict[str, ModelInlet] = field(default_factory=dict)
    holes: frozenset[int] = frozenset()
    """Seqs for what a source had lost."""
    paths: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Seq of a copy or hole → the logs it came through."""
    copies: dict[tuple[str, int, int], int] = field(default_factory=dict)
    """(router, source, its seq) → the newest copy that says so, of routers that bring each once."""
    superseded: frozenset[int] = frozenset()
    """What the last append superseded, until somebody takes note of it."""
    ever_superseded: frozenset[int] = frozenset()
    """All that went so: like what is pushed out, it may still be on its way to a reader."""

    @property
    def size_bytes(self) -> int:
        return sum(record.size_bytes for record in self.records.values())

    def expire(self, now_ms: int) -> ModelLog:
        ttl_ms = self.config.ttl_ms
        old = [seq for seq, record in self.records.items() if now_ms - record.ts_ms > ttl_ms]
        return self._evict(old) if ttl_ms and old else self

    def trim(self) -> ModelLog:
        """Oldest first, until both caps hold."""
        config, count, size_bytes = self.config, len(self.records), self.size_bytes
        gone: list[int] = []
        for seq, record in self.records.items():
            over = config.cap_records and count > config.cap_records
            if not over and not (config.cap_bytes and size_bytes > config.cap_bytes):
                break
            gone.append(seq)
            count, size_bytes = count - 1, size_bytes - record.size_bytes
        return self._evict(gone) if gone else self

    def _evict(self, seqs: list[int]) -> ModelLog:
        floor = max(seqs) + 1
        kept = {seq: record for seq, record in self.records.items() if seq >= floor}
        return replace(self, records=kept, floor=floor)

    def full(self, records: list[Record]) -> bool:
        config = self.config
        new = dict(enumerate(records, self.head + 1))
        grown = replace(self, records={**self.records, **new}).obey()
        return config.discard is Discard.REJECT and bool(
            (config.cap_records and len(grown.records) > config.cap_records)
            or (config.cap_bytes and grown.size_bytes > config.cap_bytes)
        )

    def obey(self) -> ModelLog:
        """What the rule by key leaves: so many of each key, of so many keys."""
        keep, keys_max = self.config.keep_per_key, self.config.keys_max
        by_key: dict[str, list[int]] = {}
        for seq, record in self.records.items():
            if record.key is not None and keep:
                by_key.setdefault(record.key, []).append(seq)
        newest = sorted(by_key.values(), key=max)
        over = newest[:-keys_max] if keys_max else []
        gone = {seq for seqs in over for seq in seqs}
        gone.update(seq for seqs in newest for seq in seqs[:-keep])
        return self.delete(lambda seq, record: seq in gone)

    def append(self, records: list[Record], key: str | None, now_ms: int) -> ModelLog:
        ts_ms = max(now_ms, self.last_ts_ms)
        first, last = self.head + 1, self.head + len(records)
        new = {first + at: record._replace(ts_ms=ts_ms) for at, record in enumerate(records)}
        volatile = self.volatile
        if self.config.durability is Durability.EPHEMERAL:
            volatile = volatile | new.keys()
        keys = {**self.keys, key: (first, last, ts_ms)} if key else self.keys
        grown = replace(
            self, head=last, last_ts_ms=ts_ms, records={**self.records, **new}, volatile=volatile,
            keys=keys,
        )  # fmt: skip
        left = grown.obey().trim()
        gone = {seq for seq in grown.records if seq in left.deleted and seq >= left.floor}
        superseded, ever = frozenset(gone), self.ever_superseded.union(gone)
        return replace(left, superseded=superseded, ever_superseded=ever)

    def is_lost(self, seq: int) -> bool:
        return seq < self.floor or (seq not in self.records and seq not in self.deleted)

    def forward(self, name: str, source: ModelLog, upto: int, stamp: Stamp) -> Forwarded:
        """What a router brings from here up to `upto` of its source: holes, then copies."""
        inbound = self.inbound_routes[name]
        holes: list[tuple[int, ...]] = []
        copies: list[tuple[tuple[int, ...], int, Record]] = []
        for seq in range(inbound.cursor + 1, upto + 1):
            path = source.paths.get(seq, ())
            if self.id in path:
                continue
            if source.is_lost(seq):
                assert not copies, f"{name}: a hole behind a copy"
                holes.append((*path, source.id))
            elif seq in source.records and inbound.takes(source.records[seq]):
                held = (
                    self.copies.get((name, source.id, seq)) if inbound.rule.exactly_once else None
                )
                if held not in self.records:
                    copy = inbound.copy(source.records[seq], stamp, seq)
                    copies.append(((*path, source.id), seq, copy))
        return Forwarded(holes, copies)

    def open_holes(self, name: str, upto: int, brought: Forwarded) -> ModelLog:
        """The router came to `upto`; the copies are still to be appended."""
        inbound = self.inbound_routes[name]
        moved = replace(inbound, cursor=upto, forwarded=inbound.forwarded + len(brought.copies))
        paths = [*brought.holes, *(path for path, _, _ in brought.copies)]
        head = self.head + len(brought.holes)
        named = enumerate(brought.copies, head + 1) if inbound.rule.exactly_once else ()
        return replace(
            self, head=head, inbound_routes={**self.inbound_routes, name: moved},
            holes=self.holes | {*range(self.head + 1, head + 1)},
            paths={**self.paths, **dict(enumerate(paths, self.head + 1))},
            copies={**self.copies, **{(name, inbound.source, c[1]): seq for seq, c in named}},
        )  # fmt: skip

    def crash(self) -> ModelLog:
        """What a restart leaves of it."""
        kept = {seq: record for seq, record in self.records.items() if seq not in self.volatile}
        return replace(self, records=kept)

    def delete(self, wanted: Callable[[int, Record], bool]) -> ModelLog:
        gone = frozenset(seq for seq, record in self.records.items() if wanted(seq, record))
        kept = {seq: record for seq, record in self.records.items() if seq not in gone}
        return replace(self, records=kept, deleted=self.deleted | gone)


Stamp = Callable[[bytes | None, int], bytes | None]
"""What becomes of the meta of the record with this seq."""


@dataclass(frozen=True)
class Forwarded:
    """What a router brings at a time; each with the way it came."""

    holes: list[tuple[int, ...]]
    copies: list[tuple[tuple[int, ...], int, Record]]
    """(way, seq in the source, copy)."""

    @property
    def records(self) -> list[Record]:
        return [record for _, _, record in self.copies]


State = dict[str, ModelLog]


class History:
    """Every state the model went through, and how much of it was promised."""

    def __init__(self) -> None:
        self.states: list[State] = [{}]
        self.written = 0
        """A process kill must not go back before this state."""
        self.durable = 0
        """Nothing must go back before this state."""
        self.given: dict[int, int] = {}
        """Log id → highest seq acknowledged or shown, whatever became of it."""
        self.named: dict[tuple[int, int], Record] = {}
        """(log id, seq) → the one record that was ever acknowledged or shown under it."""

    @property
    def now(self) -> State:
        return self.states[-1]

    def step(self, name: str, log: ModelLog | None) -> ModelLog | None:
        """The log became this, or is no more."""
        state = {key: held for key, held in self.now.items() if key != name}
        if log is not None:
            state[name] = log
        self.states.append(state)
        return log

    def mark(self) -> Mark:
        """This moment, to judge a crash by later."""
        return Mark(len(self.states) - 1, self.written, self.durable, dict(self.given))

    def acknowledge(self, index: int, durability: Durability) -> None:
        """Steps up to `index` were acknowledged under this class."""
        if durability is not Durability.EPHEMERAL:
            self.written = max(self.written, index)
        if durability is Durability.FSYNC:
            self.durable = max(self.durable, index)

    def show(self, log: int, records: Iterable[tuple[int, Record]], head: int) -> None:
        """Somebody was told of these records."""
        self.given[log] = max(self.given.get(log, 0), head)
        for seq, record in records:
            known = self.named.setdefault((log, seq), record)
            assert known == record, f"log {log} seq {seq} names {known} and {record}"

    def after(self, mark: Mark, index: int, views: dict[str, View]) -> History:
        """A history that goes on from the survivors: whatever was found must stay."""
        then = History()
        then.states = [{name: _adopt(self.states[index][name], v) for name, v in views.items()}]
        then.given = dict(mark.given)
        then.named = {
            (log, seq): record
            for (log, seq), record in self.named.items()
            if seq <= mark.given.get(log, 0)
        }
        for found in views.values():
            then.show(found.id, found.records.items(), found.head)
        return then


@dataclass(frozen=True)
class Mark:
    offered: int
    written: int
    durable: int
    given: dict[int, int]

    def promised(self, blow: Blow) -> int:
        return self.durable if blow is Blow.POWER else self.written


def _adopt(log: ModelLog, found: View) -> ModelLog:
    """The model of a log whose survivors were found and judged good."""
    keys = {
        key: span
        for key, span in log.keys.items()
        if span[1] <= log.head and not log.volatile & {*range(span[0], span[1] + 1)}
    }
    return replace(
        log, id=found.id, head=found.head, floor=max(log.floor, found.floor),
        records=dict(found.records), volatile=frozenset(), keys=keys,
    )  # fmt: skip


def judge(
    history: History, mark: Mark, blow: Blow | None, views: dict[str, View], now_ms: int
) -> int:
    """The state the survivors match; AssertionError with what is wrong when there is none."""
    complaints: list[list[str]] = []
    for index in range(mark.offered, mark.promised(blow) - 1 if blow else mark.offered - 1, -1):
        problems = list(_compare(history.states[index], mark, blow, views, now_ms))
        if not problems:
            break
        complaints.append(problems)
    else:
        best = min(complaints, key=len)
        raise AssertionError(
            f"no state in {mark.promised(blow) if blow else mark.offered}..{mark.offered} matches; "
            "nearest: " + "; ".join(best[:5])
        )
    return index


def _compare(
    state: State, mark: Mark, blow: Blow | None, views: dict[str, View], now_ms: int
) -> Iterable[str]:
    if state.keys() != views.keys():
        yield f"logs {sorted(views)} instead of {sorted(state)}"
        return
    for name, log in state.items():
        # A start goes on with a rule that was new.
        left = log.crash().obey() if blow else log
        for problem in _compare_log(left.expire(now_ms), mark, blow, views[name]):
            yield f"{name}: {problem}"


def _compare_log(log: ModelLog, mark: Mark, blow: Blow | None, found: View) -> Iterable[str]:
    if found.id != log.id:
        yield f"id {found.id} instead of {log.id}"
    if found.config != log.config:
        yield f"config {found.config} instead of {log.config}"
    inbound_routes = {
        n: (i.source, i.cursor, i.forwarded, i.rule) for n, i in log.inbound_routes.items()
    }
    if found.inbound_routes != inbound_routes:
        yield f"routers {found.inbound_routes} instead of {inbound_routes}"
    if found.records != log.records:
        yield _difference(log.records, found.records)
    if found.count != len(found.records):
        yield f"count {found.count} for {len(found.records)} records"
    if found.size_bytes != (size := sum(r.size_bytes for r in found.records.values())):
        yield f"{found.size_bytes} bytes counted instead of {size}"
    if found.head < log.head or (blow is None and found.head > log.head):
        yield f"head {found.head} instead of {log.head}"
    if found.head < mark.given.get(found.id, 0):
        yield f"head {found.head} although {mark.given[found.id]} was given out"
    journaled = log.config.durability is not Durability.EPHEMERAL
    if blow is Blow.KILL and journaled and not log.volatile and found.head != log.head:
        yield f"head {found.head} after a kill instead of {log.head}"
    if not all(found.lost(seq) for seq in range(found.floor, log.floor)):
        yield f"floor {found.floor} fell below {log.floor}"
    if found.earliest != min(found.records, default=found.head + 1):
        yield f"earliest {found.earliest} for {min(found.records, default=None)}"
    yield from _compare_losses(log, found)


def _compare_losses(log: ModelLog, found: View) -> Iterable[str]:
    """Every seq is a record, a deletion, or told to be lost."""
    for seq in range(1, found.head + 1):
        present, told = seq in found.records, found.lost(seq)
        if present and told:
            yield f"seq {seq} is there and in a gap"
        if not present and not told and seq not in log.deleted:
            yield f"seq {seq} is silently missing"
    if log.floor == 1:
        wrong = [
            gap
            for gap in found.gaps
            if gap.reason is not Loss.RESTART
            and not (
                gap.reason is Loss.SOURCE_TRIM and {*range(gap.first, gap.last + 1)} <= log.holes
            )
        ]
        if wrong:
            yield f"gaps {wrong} although retention took nothing"


def _difference(expected: dict[int, Record], found: dict[int, Record]) -> str:
    missing = sorted(expected.keys() - found.keys())
    extra = sorted(found.keys() - expected.keys())
    changed = sorted(s for s in expected.keys() & found.keys() if expected[s] != found[s])
    parts = (("missing", missing), ("extra", extra), ("changed", changed))
    return "records " + ", ".join(f"{word} {seqs}" for word, seqs in parts if seqs)
