"""What the entries of a journal say one after the other, and where one contradicts those before."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec

from headrace.core import ranges
from headrace.core.contents import Contents
from headrace.core.entry import (
    Append,
    Claim,
    Configure,
    Create,
    Delay,
    Delete,
    Drop,
    Entry,
    Extend,
    Forward,
    Issue,
    LoseAtRestart,
    NoteDelivery,
    NotePoll,
    Open,
    Refer,
    Release,
    Retire,
    Revoke,
    Route,
    SetTracker,
    SetWebhook,
    Start,
    Stop,
    Trim,
    Unroute,
)
from headrace.storage.checks.contents import refer_problems
from headrace.storage.checks.payloads import block_problems
from headrace.storage.checks.routers import path_problems
from headrace.storage.checks.states import is_set


class _Seen(msgspec.Struct):
    """How far the entries of one log have come."""

    name: str | None = None
    head: int = 0
    ts_ms: int = 0
    fence: int = 0
    routers: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    """Router → (source, how far it came in it)."""
    contents: Contents | None = msgspec.field(default_factory=Contents)
    """What it holds by digest; None when that cannot be known."""
    cursor: int = 0
    """How far it came in the log that it reads, when it is a tracker or a webhook."""
    source: int = 0


class History:
    """Reads entries in journal order; `complete` while none before or between them is missing."""

    def __init__(self, *, complete: bool) -> None:
        self.complete = complete
        self._seen: dict[int, _Seen] = {}
        self._names: dict[str, int] = {}
        self._dropped: set[int] = set()
        self._last_id = 0

    def contradictions(self, entry: Entry) -> Iterator[str]:
        """Take in the next entry; say what in it cannot be."""
        match entry:
            case Start() | Stop() | Retire() | Issue() | Revoke():
                return
            case Create():
                yield from self._create(entry)
                return
        if entry.log in self._dropped:
            yield f"log {entry.log} was dropped before"
            return
        if entry.log not in self._seen and self.complete:
            yield f"log {entry.log} was never created"
        seen = self._seen.setdefault(entry.log, _Seen())
        match entry:
            case Append():
                yield from _append(seen, entry)
            case Configure():
                seen.head = max(seen.head, entry.head)
            case Delete():
                yield from _delete(entry)
            case Trim():
                yield from _trim(entry)
            case LoseAtRestart():
                if not is_set(entry.ranges):
                    yield "the lost seqs are not sorted, disjoint ranges"
                seen.head = max(seen.head, entry.head)
            case Open():
                if seen.head:
                    yield f"it becomes a stream when it has come to seq {seen.head}"
                seen.head = entry.fork.upto if entry.fork else 0
                seen.ts_ms = entry.last_ts_ms
            case Claim():
                yield from _claim(seen, entry)
            case Release() | Extend():
                yield from _jobs(entry.seqs)
            case Delay():
                if not entry.ranges or not is_set(entry.ranges):
                    yield "the delayed seqs are not sorted, disjoint ranges"
            case Route():
                seen.routers[entry.router] = (entry.source, entry.cursor)
            case Unroute():
                if seen.routers.pop(entry.router, None) is None and self.complete:
                    yield f"there is no router {entry.router} to end"
            case Forward():
                if entry.router not in seen.routers and self.complete:
                    yield f"there is no router {entry.router}"
                yield from _forward(seen, entry)
            case Refer():
                yield from self._refer(entry, seen)
            case SetTracker():
                seen.cursor = entry.cursor
            case NotePoll():
                yield from _poll(seen, entry)
            case SetWebhook():
                if entry.source != seen.source:
                    seen.source, seen.cursor = entry.source, entry.cursor
            case NoteDelivery():
                yield from _delivery(seen, entry)
            case Drop():
                self._drop(entry, seen)

    def _create(self, entry: Create) -> Iterator[str]:
        if entry.log <= self._last_id:
            yield f"log id {entry.log} is not above {self._last_id}, which was given out before"
        if (other := self._names.get(entry.name)) is not None:
            yield f'the name "{entry.name}" belongs to log {other}'
        self._last_id = max(self._last_id, entry.log)
        self._names[entry.name] = entry.log
        self._seen[entry.log] = _Seen(entry.name)

    def _refer(self, entry: Refer, seen: _Seen) -> Iterator[str]:
        if not self.complete:
            seen.contents = None
        wrong = list(refer_problems(seen.contents, seen.head, entry))
        yield from wrong
        if wrong:
            seen.contents = None  # what follows from it would only be told again
        elif seen.contents is not None:
            seen.contents.refer(entry)

    def _drop(self, entry: Drop, seen: _Seen) -> None:
        if seen.name is not None:
            self._names.pop(seen.name, None)
        del self._seen[entry.log]
        self._dropped.add(entry.log)


def _append(seen: _Seen, entry: Append) -> Iterator[str]:
    block = entry.block
    yield from block_problems(block)
    if block.first <= seen.head:
        yield f"seq {block.first} was given out before: the log had come to {seen.head}"
    if block.ts_ms < seen.ts_ms:
        yield f"its time, {block.ts_ms}, is before {seen.ts_ms}, that of the append before"
    if entry.trim is not None:
        if entry.trim.log != entry.log:
            yield f"it trims another log, {entry.trim.log}"
        yield from _trim(entry.trim)
    seen.head = max(seen.head, block.last)
    seen.ts_ms = max(seen.ts_ms, block.ts_ms)


def _forward(seen: _Seen, entry: Forward) -> Iterator[str]:
    source, cursor = seen.routers.get(entry.router, (entry.source, 0))
    if entry.source != source or entry.upto < cursor:
        yield f"it comes to seq {entry.upto} of log {entry.source} from {cursor} of {source}"
    seen.routers[entry.router] = (entry.source, entry.upto)
    if entry.first <= seen.head and entry.holes + entry.count:
        yield f"seq {entry.first} was given out before: the log had come to {seen.head}"
    if min(entry.holes, entry.count) < 0 or not is_set(entry.picks):
        yield "a forward of records that cannot be"
    elif entry.picks and ranges.count(entry.picks) != entry.count:
        yield f"says {entry.count} copies and names {ranges.count(entry.picks)} records"
    if entry.holes + entry.count:
        yield from path_problems(entry.log, entry.source, entry.path)
    seen.head = max(seen.head, entry.first + entry.holes - 1)
    if entry.copying is not None:
        if entry.ts_ms < seen.ts_ms:
            yield f"its time, {entry.ts_ms}, is before {seen.ts_ms}, that of the append before"
        seen.head, seen.ts_ms = seen.head + entry.count, max(seen.ts_ms, entry.ts_ms)


def _poll(seen: _Seen, entry: NotePoll) -> Iterator[str]:
    if entry.cursor < seen.cursor:
        yield f"what is done ends at seq {entry.cursor}, and ended at {seen.cursor} before"
    if entry.fence < seen.fence:
        yield f"fence {entry.fence} is below {seen.fence}, which was given out before"
    seen.cursor, seen.fence = max(seen.cursor, entry.cursor), max(seen.fence, entry.fence)


def _delivery(seen: _Seen, entry: NoteDelivery) -> Iterator[str]:
    if entry.cursor < seen.cursor:
        yield f"what is delivered ends at seq {entry.cursor}, and ended at {seen.cursor} before"
    if entry.batch is not None and entry.batch.upto <= entry.cursor:
        yield f"a batch up to seq {entry.batch.upto} is under way behind seq {entry.cursor}"
    seen.cursor = max(seen.cursor, entry.cursor)


def _delete(entry: Delete) -> Iterator[str]:
    if not entry.ranges or not is_set(entry.ranges):
        yield "the deleted seqs are not sorted, disjoint ranges"
    elif entry.count != ranges.count(entry.ranges):
        yield f"says {entry.count} records and names {ranges.count(entry.ranges)}"


def _claim(seen: _Seen, entry: Claim) -> Iterator[str]:
    yield from _jobs(entry.seqs)
    if entry.fence <= seen.fence:
        yield f"fence {entry.fence} is not above {seen.fence}, which was given out before"
    seen.fence = max(seen.fence, entry.fence + len(entry.seqs) - 1)


def _jobs(seqs: list[int]) -> Iterator[str]:
    if not seqs or not all(low < high for low, high in pairwise((0, *seqs))):
        yield "its jobs do not ascend"


def _trim(entry: Trim) -> Iterator[str]:
    if min(entry.floor_cap, entry.floor_ttl, entry.count, entry.size_bytes) < 0:
        yield "a trim with numbers below zero"
