"""What is known of a log's live records and kept in memory, made of the records themselves."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import Protocol, TypeVar

from headrace.core.log import Log, live_ranges
from headrace.core.record import Block, cut
from headrace.engine.flow.time_slices import slices
from headrace.engine.logs.fetcher import Fetcher
from headrace.engine.open_log import OpenLog

_ATTEMPTS = 3
"""How often others may delete records while we look at them, before we do not stop any more."""


class RecordIndex(Protocol):
    """What is made of records."""

    def add(self, block: Block) -> None:
        """Take in records, which are behind all others."""


Index = TypeVar("Index", bound=RecordIndex)


async def index_records(
    fetcher: Fetcher, live: OpenLog, make: Callable[[], Index], first: int = 1
) -> Index:
    """What `make` makes, with every live record from `first` on in it; wherever they lie."""
    log = live.log

    def index_sealed(log: Log, parts: list[tuple[int, int]]) -> Index:
        index = make()
        for block in fetcher.segments.parts(log, parts):
            index.add(block)
        return index

    for attempt in count(1):
        start, deletions = live.tail.start, live.deletions
        index = make()
        if log.extents and log.extents[0][1] < start:
            parts = list(live_ranges(log, start - 1, first))
            index = await fetcher.sealed(index_sealed, log, parts)
        if live.tail.start == start:
            adding = _add_resident(live, index, max(start, first))
            if attempt < _ATTEMPTS:
                async for _ in slices(adding):
                    pass
            else:
                deque(adding, maxlen=0)
        if (live.tail.start, live.deletions) == (start, deletions):
            break  # else records left memory meanwhile, or were deleted
    return index


def _add_resident(live: OpenLog, index: RecordIndex, start: int) -> Iterator[int]:
    """Take in the live records that are in memory, block by block, and those that come meanwhile;
    who looks away between two blocks begins anew when records went.
    """
    log, after = live.log, start - 1
    while (block := next(live.tail.since(after + 1), None)) is not None:
        for low, high in live_ranges(log, block.last, max(block.first, after + 1)):
            first, stop = block.index(low), block.stop_index(high)
            if first < stop:
                index.add(cut(block, first, stop))
        after = block.last
        yield after
