"""Time slices: long work in short ones, so that it can share the loop with requests.

A request needs the loop a few times before it is answered. If several walks over a million logs had
a slice each in between, it would wait for all of them every time; so they rest longer than they
work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from time import perf_counter
from typing import TypeVar

from headrace.core.limits import REST_MS, WALK_MS

T = TypeVar("T")


async def slices(
    items: Iterable[T], slice_ms: float | None = None, rest_ms: float = REST_MS
) -> AsyncGenerator[T, None]:
    """The items, with a rest for everybody else after every slice, which is short unless told.

    Work that somebody waits for takes slices of `SLICE_MS` and needs no rest: others get a turn.
    """
    slice_ms = WALK_MS if slice_ms is None else slice_ms
    started = perf_counter()
    for item in items:
        yield item
        if (perf_counter() - started) * 1e3 > slice_ms:
            await asyncio.sleep(rest_ms / 1e3)
            started = perf_counter()
