"""Deleting by seq and by tag: which live records go, decided once and written down as seqs."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.core import ranges
from headrace.core.entry import Delete
from headrace.core.log import Log, live_ranges
from headrace.core.ranges import EMPTY, Ranges


def live_below(log: Log, before: int, visible: int) -> Ranges:
    """The live seqs below `before` that readers can see."""
    found: Ranges = EMPTY
    for low, high in live_ranges(log, min(before - 1, visible)):
        found = ranges.add(found, low, high)
    return found


def live_one(log: Log, seq: int, visible: int) -> Ranges:
    """A seq, if it is that of a live record that readers can see."""
    if not log.floor <= seq <= visible or any(ranges.contains(held, seq) for held in log.missing):
        return EMPTY
    return ranges.add(EMPTY, seq, seq)


def live_within(log: Log, wanted: Iterable[tuple[int, int]], visible: int) -> Ranges:
    """The live seqs in these ascending ranges that readers can see."""
    return ranges.from_pairs(
        found for low, high in wanted for found in live_ranges(log, min(high, visible), low)
    )


def delete_ranges(log: Log, found: Ranges, size_bytes: int) -> Delete | None:
    """Delete these live seqs, which hold `size_bytes`."""
    return Delete(log.id, list(found), ranges.count(found), size_bytes) if found else None


def delete_seqs(log: Log, sizes: Iterable[tuple[int, int]], before: int) -> Delete | None:
    """Delete those of the given ascending (seq, bytes) that are live and below `before`."""
    found: Ranges = EMPTY
    size_bytes = 0
    missing, floor = log.missing, log.floor
    for seq, size in sizes:
        if floor <= seq < before and not any(ranges.contains(held, seq) for held in missing):
            found = ranges.add(found, seq, seq)
            size_bytes += size
    return delete_ranges(log, found, size_bytes)
