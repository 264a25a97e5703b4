"""What must be true of where the jobs of a queue are: each live one in exactly one place."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.core import ranges
from headrace.core.config import Kind
from headrace.core.log import Log, live_ranges
from headrace.core.queue_state import Queue

_NAMED_MAX = 3
"""Seqs a problem names; how many there are is said as well."""


def queue_problems(log: Log) -> Iterator[str]:
    """Everything about the jobs of this log that cannot be."""
    queue = log.queue
    if (queue is not None) != (log.config.kind is Kind.QUEUE):
        yield "jobs are kept track of exactly in queues, and here it is not so"
    if queue is None:
        return
    if not 0 <= queue.cursor <= log.head:
        yield f"its cursor, {queue.cursor}, is not between 0 and the head, {log.head}"
    newest = max((lease.fence for lease in queue.leases.values()), default=0)
    if newest > queue.fence:
        yield f"a lease has fence {newest}; the highest given out is {queue.fence}"
    yield from _place_problems(log, queue)
    yield from _delivery_problems(queue)


def _place_problems(log: Log, queue: Queue) -> Iterator[str]:
    parked = {seq for seq in queue.grouped if queue.is_parked(seq)}
    places = (queue.returned, queue.leases.keys(), queue.delayed.keys(), parked)
    known = set[int]().union(*places)
    if twice := sum(map(len, places)) - len(known):
        yield f"{twice} jobs are in two places"
    gone = log.gone
    if dead := [
        seq
        for seq in known | queue.grouped.keys()
        if not log.floor <= seq <= log.head or ranges.contains(gone, seq)
    ]:
        yield f"{_named(dead)} are gone and still somewhere"
    passed = live_ranges(log, min(queue.cursor, log.head))
    if lost := {seq for low, high in passed for seq in range(low, high + 1)} - known:
        yield f"{_named(lost)} lie below the cursor, {queue.cursor}, and nowhere else"
    early = [seq for seq in known if seq > queue.cursor and not ranges.contains(queue.aside, seq)]
    if early:
        yield f"{_named(early)} are set aside and fresh at the same time"


def _delivery_problems(queue: Queue) -> Iterator[str]:
    uncounted = [seq for seq in queue.leases if queue.deliveries.get(seq, 0) < 1]
    if uncounted:
        yield f"{_named(uncounted)} are under a lease and were never delivered"
    held = queue.returned | queue.leases.keys() | queue.delayed.keys()
    if strange := queue.deliveries.keys() - held:
        yield f"{_named(strange)} were delivered and are nowhere"


def _named(seqs: set[int] | list[int]) -> str:
    shown = ", ".join(map(str, sorted(seqs)[:_NAMED_MAX]))
    more = f" and {len(seqs) - _NAMED_MAX} more" if len(seqs) > _NAMED_MAX else ""
    return f"jobs {shown}{more}"
