"""What entries make of a log: the only place where one changes.

Decisions (`core.log` and others) return entries, and never change anything themselves.
"""

from __future__ import annotations

from headrace.core import idempotency, ranges, stream_state, transaction
from headrace.core import subscription as subscribing
from headrace.core import tracker as tracking
from headrace.core import webhook as webhooks
from headrace.core.contents import Contents
from headrace.core.entry import (
    Append,
    Arrive,
    Claim,
    Configure,
    CountForks,
    Delay,
    Delete,
    Dispatch,
    Entry,
    Extend,
    ExtendTtl,
    Follow,
    Forward,
    LoseAtRestart,
    NoteDelivery,
    NotePoll,
    NoteWrite,
    Open,
    Plan,
    Refer,
    Register,
    Release,
    Reserve,
    Route,
    SetProfile,
    SetTracker,
    SetWebhook,
    SoftDelete,
    Trim,
    Unroute,
)
from headrace.core.inbound_route import InboundRoute
from headrace.core.log import Log, fresh_ranges, live_ranges
from headrace.core.origin import Lineage, Origins
from headrace.core.ranges import EMPTY
from headrace.core.tracker import Tracker
from headrace.core.webhook import Webhook


def apply(log: Log, entry: Entry) -> None:
    """Make the entry true. The only place where a log changes."""
    match entry:
        case Append():
            _apply_append(log, entry)
        case Open():
            log.stream = stream_state.opened(entry)
            log.head, log.last_ts_ms = log.inherited, entry.last_ts_ms
        case Forward():
            _apply_forward(log, entry)
        case Delete():
            _apply_delete(log, entry)
        case Claim():
            _apply_claim(log, entry)
        case Trim():
            _apply_trim(log, entry)
        case Reserve():
            log.reserved = max(log.reserved, entry.upto)
        case Configure():
            _pass_over(log, entry.head)
            log.config = entry.config
            if not entry.config.trims:
                log.ledger = None
        case LoseAtRestart():
            _apply_lose(log, entry)
        case Follow() | Dispatch():
            log.subscription = subscribing.apply(log.subscription, entry)
        case SetTracker() | NotePoll():
            assert not isinstance(log.consumer, Webhook), entry
            log.consumer = tracking.apply(log.consumer, entry)
        case SetWebhook() | NoteDelivery():
            assert not isinstance(log.consumer, Tracker), entry
            log.consumer = webhooks.apply(log.consumer, entry)
        case NoteWrite() | ExtendTtl() | CountForks() | SoftDelete() | Register() | SetProfile():
            assert log.stream is not None, entry
            stream_state.apply(log.stream, entry)
        case Release():
            log.jobs.release(entry.seqs, entry.ready_at_ms)
        case Extend():
            log.jobs.extend(entry.seqs, entry.deadline_ms)
        case Delay():
            # (Some may have gone with the append that brought them: it was over the caps.)
            log.jobs.delay(ranges.drop_below(tuple(entry.ranges), log.floor), entry.ready_at_ms)
        case Route():
            inbound = InboundRoute(
                entry.source, entry.rule, entry.cursor, entry.forwarded, entry.created_by
            )
            log.inbound_routes = {**(log.inbound_routes or {}), entry.router: inbound}
        case Plan():
            log.search = entry.search
        case Refer():
            if log.contents is None:
                log.contents = Contents()
            log.contents.refer(entry)
        case Arrive():
            log.arrived = transaction.arrive(log.arrived, entry)
        case Unroute():
            assert log.inbound_routes is not None
            log.inbound_routes = {
                k: v for k, v in log.inbound_routes.items() if k != entry.router
            } or None
        case _:
            raise AssertionError(f"not an entry of one log: {entry}")


def _apply_append(log: Log, entry: Append) -> None:
    new = entry.block
    if new.first - 1 > log.head:
        _pass_over(log, new.first - 1)
    log.head = new.last
    log.last_ts_ms = new.ts_ms
    if log.stream is not None:
        log.stream.last_ns = new.ns
    log.count += new.count
    log.size_bytes += new.size_bytes
    if not log.config.journaled:
        log.volatile = ranges.add(log.volatile, new.first, new.last)
    if log.ledger is not None:
        log.ledger.add(new)
    if log.queue is not None and new.keys is not None:
        log.queue.line_up(new.first, new.keys)
    if entry.trim is not None:
        _apply_trim(log, entry.trim)
    if entry.key is not None:
        window_ms = log.config.idempotency_window_ms
        log.keys = idempotency.remember(
            log.keys, entry.key, new.first, new.last, new.ts_ms, window_ms
        )


def _pass_over(log: Log, head: int) -> None:
    """Only in replay: seqs up to `head` were given to records that were never journaled.

    They count until the restart is said to have taken them. Their bytes are not known, so until
    then `size_bytes` is not either.
    """
    if head > log.head:
        log.volatile = ranges.add(log.volatile, log.head + 1, head)
        log.count += head - log.head
        log.head = head


def _apply_delete(log: Log, entry: Delete) -> None:
    _pass_over(log, entry.ranges[-1])
    log.deleted = ranges.union(log.deleted, entry.ranges)
    log.count -= entry.count
    log.size_bytes -= entry.size_bytes
    if log.ledger is not None:
        log.ledger.drop_below(log.earliest)
        log.ledger.sweep(log.missing, entry.count)
    if log.queue is not None:
        log.queue.forget(entry.ranges, entry.count)
        log.queue.dead_lettered += entry.dead_lettered


def _apply_claim(log: Log, entry: Claim) -> None:
    queue = log.jobs
    _pass_over(log, entry.seqs[-1])
    fresh = queue.take(entry)
    if not fresh:
        return
    last, passed_over = fresh[-1], list[int]()
    if last - queue.cursor != len(fresh):
        taken = set(fresh)
        for low, high in fresh_ranges(log, last):
            passed_over += [seq for seq in range(low, high + 1) if seq not in taken]
    queue.pass_to(last, passed_over)


def _apply_trim(log: Log, entry: Trim) -> None:
    _pass_over(log, max(entry.floor_cap, entry.floor_ttl) - 1)
    log.floor_cap = max(log.floor_cap, entry.floor_cap)
    log.floor_ttl = max(log.floor_ttl, entry.floor_ttl)
    log.count -= entry.count
    log.size_bytes -= entry.size_bytes
    _forget_below_floor(log)


def _apply_lose(log: Log, entry: LoseAtRestart) -> None:
    log.head = max(log.head, entry.head)
    log.gaps = ranges.union(log.gaps, entry.ranges)
    log.volatile = EMPTY
    if log.queue is not None:
        log.queue.forget(entry.ranges, ranges.count(entry.ranges))
    if ranges.contains(log.gaps, log.floor):
        # Nothing live lies before the gap: it is a floor, not a hole.
        log.floor_lost = ranges.end_of(log.gaps, log.floor) + 1
    _forget_below_floor(log)
    log.count = sum(last - first + 1 for first, last in live_ranges(log, log.head))
    log.size_bytes = entry.left_bytes
    if log.keys is not None:
        # A retry must not be told that records which are gone are safe.
        log.keys = {k: v for k, v in log.keys.items() if not ranges.contains(entry.ranges, v[0])}


def _apply_forward(log: Log, entry: Forward) -> None:
    """Move the router on and open the holes; an append of the copies follows, if there are any."""
    assert log.inbound_routes is not None
    inbound = log.inbound_routes[entry.router]
    inbound.cursor = entry.upto
    inbound.forwarded += entry.count
    _pass_over(log, entry.first - 1)
    if entry.holes:
        log.head = entry.first + entry.holes - 1
        log.holes = ranges.add(log.holes, entry.first, log.head)
    if entry.holes or entry.count:
        log.origins = log.origins or Origins()
        _note_origins(log.origins, entry, exactly_once=inbound.rule.exactly_once)


def _note_origins(origins: Origins, entry: Forward, *, exactly_once: bool) -> None:
    path = tuple(entry.path)
    seq = entry.first
    alike = entry.holes if exactly_once else entry.holes + entry.count
    if alike:
        origins.add(seq, seq + alike - 1, 0, Lineage("", path))
        seq += alike
    if exactly_once:
        for first, last in ranges.pairs(entry.picks):
            origins.add(seq, seq + last - first, first, Lineage(entry.router, path))
            seq += last - first + 1


def _forget_below_floor(log: Log) -> None:
    floor = log.floor
    log.deleted = ranges.drop_below(log.deleted, floor)
    log.gaps = ranges.drop_below(log.gaps, floor)
    log.holes = ranges.drop_below(log.holes, floor)
    if log.origins is not None:
        log.origins.drop_below(floor)
    if log.ledger is not None:
        log.ledger.drop_below(floor)
    if log.queue is not None:
        log.queue.forget_below(floor)
