"""What a reader must know of a log to read it from the object store and from us."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET, UnsetType

from headrace.core import ranges
from headrace.core.limits import PAGE_RANGES_MAX
from headrace.core.log import Log
from headrace.engine.live import Live
from headrace.formats.plan import LogPlan, Span


def plan_of(live: Live, head: int, *, extents: bool) -> LogPlan:
    log = live.log
    stream = log.stream
    plan = LogPlan(
        log=log.name,
        epoch=log.id,
        owner=log.owner,
        media=None if stream is None or stream.is_json else stream.content_type,
        head_seq=head,
        earliest_seq=min(log.earliest, head + 1),
        floor_seq=min(log.floor, head + 1),
        count=log.count,
        bytes=log.size_bytes,
    )
    if extents:
        plan.deleted = _spans(log.deleted)
        plan.lost = _spans(ranges.union(list(log.gaps), log.holes))
        # Too much is dead to tell what: then nobody but us can read this log.
        plan.sealed = [] if plan.deleted is UNSET or plan.lost is UNSET else [*_sealed(log, head)]
    return plan


def _spans(found: ranges.Ranges) -> list[Span] | UnsetType:
    pairs = [*ranges.pairs(found)]
    return pairs if len(pairs) <= PAGE_RANGES_MAX else UNSET


def _sealed(log: Log, head: int) -> Iterator[Span]:
    """What of the log lies in segments; records of class ephemeral do not, wherever they are."""
    first = max(log.earliest, log.inherited + 1)
    for _, low, high in log.extents:
        yield from ranges.outside(log.volatile, max(low, first), min(high, head))
