"""Claiming jobs, and what a holder may do with them: who gets which, decided and written down."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from headrace.core import ranges
from headrace.core.entry import Claim, Delay, Delete, Extend, Release
from headrace.core.errors import Code, Refused
from headrace.core.log import Log, fresh_ranges, live_ranges
from headrace.core.ranges import EMPTY, Ranges

_FENCE_BITS = 10
"""Fences follow the clock, with room for so many bits of them in a millisecond: they grow even if a
crash took the newest.
"""


class Asking(msgspec.Struct, frozen=True, gc=False):
    """Somebody who wants jobs."""

    node: str
    wanted: int
    lease_ms: int


class Counters(msgspec.Struct, frozen=True, gc=False):
    """How many jobs can be claimed, are under a lease, and were moved away as dead letters."""

    ready: int
    in_flight: int
    dead_lettered: int


def count(log: Log, visible: int, now_ms: int) -> Counters:
    """The counters at this time, of jobs that readers can see."""
    queue = log.jobs
    queue.sweep(now_ms)
    aside = len(queue.delayed) + queue.parked
    live = log.count
    for first, last in live_ranges(log, log.head, visible + 1) if visible < log.head else ():
        live -= last - first + 1
        if aside:
            hidden = range(first, last + 1)
            aside -= sum(seq in queue.delayed or queue.is_parked(seq) for seq in hidden)
    in_flight = len(queue.leases)
    return Counters(live - in_flight - aside, in_flight, queue.dead_lettered)


def claim(
    log: Log,
    askers: Sequence[Asking],
    visible: int,
    now_ms: int,
    *,
    turn: int = 0,
) -> tuple[list[Claim | None], list[int]]:
    """What each asker gets, if anything; and jobs that failed too often to be given to anybody.

    Jobs are dealt one at a time, round and round, beginning with the asker whose turn it is:
    returned ones first, then fresh ones.
    """
    queue = log.jobs
    queue.sweep(now_ms)
    wanted = sum(asker.wanted for asker in askers)
    jobs: list[int] = []
    spent: list[int] = []
    if queue.returned:
        deliveries_max = log.config.max_deliveries if log.config.dead_letter is not None else 0
        jobs, spent = queue.peek(wanted, visible, deliveries_max)
    if len(jobs) < wanted:
        for first, last in fresh_ranges(log, visible):
            stop = min(last + 1, first + wanted - len(jobs))
            jobs += range(first, stop)
            if len(jobs) == wanted:
                break
    fence = max(queue.fence + 1, now_ms << _FENCE_BITS)
    claims: list[Claim | None] = []
    for asker, seqs in zip(askers, _deal(jobs, askers, turn), strict=True):
        if not seqs:
            claims.append(None)
            continue
        claims.append(Claim(log.id, asker.node, now_ms, now_ms + asker.lease_ms, fence, seqs))
        fence += len(seqs)
    return claims, spent


def _deal(jobs: list[int], askers: Sequence[Asking], turn: int) -> list[list[int]]:
    if len(askers) == 1:
        jobs.sort()
        return [jobs]
    shares: list[list[int]] = [[] for _ in askers]
    waiting = deque(at for at, asker in enumerate(askers) if asker.wanted)
    waiting.rotate(-turn)
    for seq in jobs:
        at = waiting.popleft()
        shares[at].append(seq)
        if len(shares[at]) < askers[at].wanted:
            waiting.append(at)
    for share in shares:
        share.sort()
    return shares


def hold(
    log: Log, node: str, seqs: Sequence[int], fences: Sequence[int | None] | None, now_ms: int
) -> tuple[list[int], list[int]]:
    """(held, skipped): which of these jobs `node` holds, under these fences where some are named.

    A job named twice is held once. What is held comes ascending, the rest as it was given.
    """
    queue = log.jobs
    queue.sweep(now_ms)
    leases = queue.leases
    held: dict[int, None] = {}
    skipped: list[int] = []
    for at, seq in enumerate(seqs):
        lease = leases.get(seq)
        fence = fences[at] if fences is not None else None
        if (
            lease is None
            or lease.node != node
            or (fence is not None and fence != lease.fence)
            or seq in held
        ):
            skipped.append(seq)
        else:
            held[seq] = None
    return sorted(held), skipped


def ack(log: Log, held: Ranges, count: int, size_bytes: int) -> Delete:
    """These jobs are done: an ack is the delete."""
    return Delete(log.id, list(held), count, size_bytes)


def dead_letter(log: Log, spent: list[int], size_bytes: int) -> Delete:
    """These jobs failed too often; their records go where dead letters go."""
    count = len(spent)
    return Delete(log.id, list(ranges.from_seqs(spent)), count, size_bytes, count)


def nack(log: Log, held: list[int], delay_ms: int, now_ms: int) -> Release:
    """These jobs are to be claimed again, at once or after a while."""
    return Release(log.id, held, now_ms + delay_ms if delay_ms else 0)


def extend(log: Log, held: list[int], lease_ms: int, now_ms: int) -> Extend:
    """These jobs take longer."""
    return Extend(log.id, held, now_ms + lease_ms)


def delay(log: Log, first: int, due_ms: Sequence[int | None], now_ms: int) -> list[Delay]:
    """What makes new jobs, from seq `first` on, wait for their time if it has not come yet."""
    if log.queue is None:
        raise Refused(
            Code.INVALID, f'"{log.name}" is not a queue: only jobs can be delivered later'
        )
    by_time: dict[int, Ranges] = {}
    for seq, ready_at_ms in enumerate(due_ms, first):
        if ready_at_ms is not None and ready_at_ms > now_ms:
            by_time[ready_at_ms] = ranges.add(by_time.get(ready_at_ms, EMPTY), seq, seq)
    return [Delay(log.id, list(held), ready_at_ms) for ready_at_ms, held in by_time.items()]


def lost_by_restart(log: Log, lost: Ranges) -> Release | None:
    """Leases end with the process that gave them, unless the queue keeps them.

    Jobs that the restart took are not given back.
    """
    if log.queue is None or log.config.leases_durable:
        return None
    seqs = sorted(seq for seq in log.queue.leases if not ranges.contains(lost, seq))
    return Release(log.id, seqs, 0) if seqs else None
