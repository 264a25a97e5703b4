"""What must be true of the state of one log, wherever it comes from."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise

from headrace.core.limits import RECORD_OVERHEAD_BYTES
from headrace.core.log import Log, live_ranges
from headrace.core.ranges import Ranges
from headrace.core.retention import Ledger
from headrace.storage.checks.contents import contents_problems
from headrace.storage.checks.queues import queue_problems
from headrace.storage.checks.routers import inbound_problems


def is_set(ranges: Ranges) -> bool:
    """Whether these are sorted, disjoint ranges with something between any two of them."""
    steps = enumerate(pairwise(ranges))
    return len(ranges) % 2 == 0 and all(
        low + 1 < high if at % 2 else low <= high for at, (low, high) in steps
    )


def state_problems(log: Log) -> Iterator[str]:
    """Everything about this state that cannot be."""
    if min(log.floor_cap, log.floor_ttl, log.floor_lost) < 1 or log.floor > log.head + 1:
        yield f"floor {log.floor} is not between 1 and the seq behind the head, {log.head}"
    wrong = list(_range_problems(log))
    yield from wrong
    if not wrong:  # else nothing can be counted
        yield from _count_problems(log)
        yield from queue_problems(log)
        yield from inbound_problems(log)
        yield from contents_problems(log)
    yield from _extent_problems(log)
    yield from _key_problems(log)


def _range_problems(log: Log) -> Iterator[str]:
    for title, held, low in (
        ("deleted seqs", log.deleted, log.floor),
        ("gaps", log.gaps, log.floor),
        ("holes", log.holes, log.floor),
        ("volatile seqs", log.volatile, 1),
    ):
        if not is_set(held):
            yield f"its {title} are not sorted, disjoint ranges"
        elif held and not low <= held[0] <= held[-1] <= log.head:
            yield f"its {title}, {held[0]} to {held[-1]}, are not between {low} and {log.head}"


def _count_problems(log: Log) -> Iterator[str]:
    live = sum(last - first + 1 for first, last in live_ranges(log, log.head))
    if log.count != live:
        yield f"counts {log.count} records where {live} seqs are live"
    if log.size_bytes < log.count * RECORD_OVERHEAD_BYTES or (log.size_bytes and not log.count):
        yield f"{log.size_bytes} bytes cannot be the size of {log.count} records"
    if log.config.trims != (log.ledger is not None):
        yield "a ledger is kept exactly when there is retention, and here it is not so"
    if log.ledger is not None:
        yield from _ledger_problems(log, log.ledger)


def _ledger_problems(log: Log, ledger: Ledger) -> Iterator[str]:
    firsts, lasts, stamps, sizes = (array("q", column) for column in ledger.dump())
    if not len(firsts) == len(lasts) == len(stamps) == len(sizes):
        yield "the columns of its ledger differ in length"
        return
    behind = array("q", (0, *lasts[:-1]))
    runs = zip(behind, firsts, lasts, strict=False)
    if list(stamps) != sorted(stamps) or not all(a < b <= c for a, b, c in runs):
        yield "the runs of its ledger do not ascend"
        return
    count, size_bytes = ledger.measure(log.floor, log.head, log.missing)
    if (count, size_bytes) != (log.count, log.size_bytes):
        yield (
            f"its ledger says {count} records of {size_bytes} bytes, "
            f"the log {log.count} of {log.size_bytes}"
        )


def _extent_problems(log: Log) -> Iterator[str]:
    known: set[int] = set()
    end = 0
    for segment, first, last in log.extents:
        if segment in known or not end < first <= last:
            yield f"the extent of segment {segment}, seqs {first} to {last}, does not ascend"
        known.add(segment)
        end = last
    if end > log.head:
        yield f"records are sealed up to seq {end}, above the head, {log.head}"


def _key_problems(log: Log) -> Iterator[str]:
    for key, (first, last, _) in (log.keys or {}).items():
        if not 1 <= first <= last <= log.head:
            yield f"the key {key!r} stands for seqs {first} to {last}, the head is {log.head}"
