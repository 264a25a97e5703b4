"""Long work in short slices, so that it can share the loop with requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from time import perf_counter
from typing import TypeVar

from headrace.core.limits import SLICE_MS

T = TypeVar("T")


async def slices(items: Iterable[T], slice_ms: float = SLICE_MS) -> AsyncIterator[T]:
    """The items, with a pause for everybody else after every few milliseconds."""
    started = perf_counter()
    for item in items:
        yield item
        if (perf_counter() - started) * 1e3 > slice_ms:
            await asyncio.sleep(0)
            started = perf_counter()
