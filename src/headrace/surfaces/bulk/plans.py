"""What a reader must know of a log to read it from the object store and from us."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import UNSET, UnsetType

from headrace.core import ranges
from headrace.core.limits import PAGE_RANGES_MAX, PLANS_EXTENTS_MAX, PLANS_RANGES_MAX
from headrace.core.log import Log
from headrace.core.stream_state import media_of
from headrace.engine.flow.time_slices import slices
from headrace.engine.open_log import OpenLog
from headrace.formats.log_plan import LogPlan, Span


def fitting(lives: Sequence[OpenLog]) -> int:
    """How many of these logs a page with extents has room for; one at least."""
    room = PLANS_EXTENTS_MAX
    for at, live in enumerate(lives):
        room -= len(live.log.extents)
        if room < 0:
            return max(at, 1)
    return len(lives)


async def plans_of(lives: Iterable[tuple[OpenLog, int]], *, extents: bool) -> list[LogPlan]:
    """What a reader must know of these logs, each with its head."""
    plans: list[LogPlan] = []
    dead_room, sealed_room = PLANS_RANGES_MAX, PLANS_EXTENTS_MAX
    async for live, head in slices(lives):
        plan = _plan(live, head)
        if extents:
            fits = not plans or len(live.log.extents) <= sealed_room
            dead_room -= _add_extents(plan, live.log, min(dead_room, PAGE_RANGES_MAX), fits=fits)
            sealed_room -= len(live.log.extents) if fits else 0
        plans.append(plan)
    return plans


def _plan(live: OpenLog, head: int) -> LogPlan:
    log = live.log
    return LogPlan(
        log=log.name,
        epoch=log.id,
        owner=log.owner,
        media=media_of(log.stream),
        head_seq=head,
        earliest_seq=min(log.earliest, head + 1),
        floor_seq=min(log.floor, head + 1),
        count=log.count,
        bytes=log.size_bytes,
    )


def _add_extents(plan: LogPlan, log: Log, ranges_max: int, *, fits: bool) -> int:
    """Say where records lie and which are gone; returns how many ranges that took."""
    plan.deleted = _spans(log.deleted, ranges_max)
    plan.lost = _spans(ranges.union(list(log.gaps), log.holes), ranges_max)
    # Too much is dead, or sealed, to tell what: then nobody but us can read this log.
    whole = fits and plan.deleted is not UNSET and plan.lost is not UNSET
    plan.sealed = [*_sealed(log, plan.head_seq)] if whole else []
    return sum(len(spans) for spans in (plan.deleted, plan.lost) if spans is not UNSET)


def _spans(found: ranges.Ranges, ranges_max: int) -> list[Span] | UnsetType:
    if len(found) // 2 > ranges_max:
        return UNSET
    return [*ranges.pairs(found)]


def _sealed(log: Log, head: int) -> Iterator[Span]:
    """What of the log lies in segments; records of class ephemeral do not, wherever they are."""
    first = max(log.earliest, log.inherited + 1)
    for _, low, high in log.extents:
        yield from ranges.outside(log.volatile, max(low, first), min(high, head))
