"""What must be true of routers: in the state of one log, and of all logs together."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import pairwise

from headrace.core import ranges
from headrace.core.log import Log
from headrace.core.origin import Origins


def inbound_problems(log: Log) -> Iterator[str]:
    """Everything about the routers into this log, and about what they brought, that cannot be."""
    inbound_routes = (log.inbound_routes or {}).values()
    if len(sources := {inbound.source for inbound in inbound_routes}) > 1:
        yield f"routers bring it records from {len(sources)} logs"
    if log.id in sources:
        yield "a router brings it its own records"
    if any(min(inbound.cursor, inbound.forwarded) < 0 for inbound in inbound_routes):
        yield "a router with numbers below zero"
    for title, other in (("deleted", log.deleted), ("lost by a restart", log.gaps)):
        for first, last in ranges.pairs(log.holes):
            if ranges.touches(other, first, last):
                yield f"of the holes at {first} to {last}, some are {title}"
    if log.origins is not None:
        yield from _origin_problems(log, log.origins)


def _origin_problems(log: Log, origins: Origins) -> Iterator[str]:
    columns, lineages = origins.dump()
    firsts, lasts, sources, which = (array("q", column) for column in columns)
    if not len(firsts) == len(lasts) == len(sources) == len(which):
        yield "the columns of its origins differ in length"
        return
    runs = zip(firsts, lasts, strict=True)
    flat = [end for run in runs for end in run]
    if any(low > high for low, high in pairwise(flat)) or (flat and flat[-1] > log.head):
        yield f"the runs of its origins do not ascend to {log.head}"
    if not all(0 <= at < len(lineages) for at in which):
        yield "a run of its origins came no known way"
    if any(not each.path or log.id in each.path for each in lineages):
        yield "copies came from nowhere, or from the log itself"


def router_problems(logs: dict[int, Log]) -> Iterator[tuple[Log, str]]:
    """What contradicts itself between logs, and in which log it shows."""
    known: dict[str, str] = {}
    for log in logs.values():
        for name, inbound in (log.inbound_routes or {}).items():
            if name in known:
                yield log, f'router "{name}" leads to "{known[name]}" as well'
            known[name] = log.name
            source = logs.get(inbound.source)
            if source is None:
                yield log, f'router "{name}" takes records from log {inbound.source}, which is gone'
            elif inbound.cursor > source.head:
                yield (
                    log,
                    f'router "{name}" came to seq {inbound.cursor} of "{source.name}", '
                    f"whose head is {source.head}",
                )


def path_problems(log: int, source: int, path: Iterable[int]) -> Iterator[str]:
    """What cannot be in the way that copies came to this log."""
    way = list(path)
    if way[-1:] != [source] or log in way:
        yield f"copies from log {source} came the way {way}"
