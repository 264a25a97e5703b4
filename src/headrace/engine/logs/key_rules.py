"""Rules by key in operation: what logs that have one know of their records by key, and the end of
records that were there before the rule.

What an append supersedes is decided with it (`core.supersession`); this is for all else: a start,
and a rule that is new.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import aclosing, suppress
from itertools import count

from headrace.core import supersession
from headrace.core.entry import Delete
from headrace.core.errors import Refused
from headrace.core.keyed_records import KeyedRecords
from headrace.core.limits import SURPLUS_STEP
from headrace.core.log import Log, live_ranges
from headrace.core.record import cut
from headrace.engine.flow.time_slices import slices
from headrace.engine.kernel import Kernel
from headrace.engine.logs.fetcher import Fetcher
from headrace.engine.open_log import OpenLog

_ATTEMPTS = 3
"""How often others may delete records while we look at them, before we do not stop any more."""


class KeyRules:
    """The rules by key of all logs of an engine."""

    def __init__(self, kernel: Kernel, fetcher: Fetcher) -> None:
        self._kernel = kernel
        self._fetcher = fetcher
        self._unfinished: set[int] = set()

    async def open(self) -> None:
        """At a start: learn what there is, and end what a crash left of a rule that was new."""
        ruled = [live for live in self._kernel.open_logs.values() if live.log.config.keyed]
        for live in ruled:
            await self.fill(live)
        for live in ruled:
            with suppress(Refused):  # no room: appends go on with it
                await self.enforce(live)

    async def fill(self, live: OpenLog) -> None:
        """Learn the keys of every live record there is."""
        log = live.log
        for attempt in count(1):
            start, deletions = live.tail.start, live.deletions
            keyed = KeyedRecords()
            if log.extents and log.extents[0][1] < start:
                parts = list(live_ranges(log, start - 1))
                keyed = await self._fetcher.sealed(self._of_sealed, log, parts)
            if live.tail.start == start:
                adding = _add_resident(live, keyed, start)
                if attempt < _ATTEMPTS:
                    async for _ in slices(adding):
                        pass
                else:
                    deque(adding, maxlen=0)
            if (live.tail.start, live.deletions) == (start, deletions):
                break  # else records left memory meanwhile, or were deleted
        keyed.drop_below(log.floor)
        live.keyed = keyed

    def _of_sealed(self, log: Log, parts: list[tuple[int, int]]) -> KeyedRecords:
        keyed = KeyedRecords()
        for block in self._fetcher.segments.parts(log, parts):
            keyed.add(block)
        return keyed

    async def enforce(self, live: OpenLog) -> None:
        """Delete what a log has beyond its rule, step by step; durable when this returns.

        Should a crash come between, the next start goes on with it; should it be refused, who asks
        for the same rule again, or the next append of each key.
        """
        kernel, log, position = self._kernel, live.log, 0
        self._unfinished.add(log.id)
        async with aclosing(slices(self._surplus(live))) as steps:
            async for delete in steps:
                if delete is not None:
                    kernel.check_writable()
                    kernel.check_alive(live)  # it may have been dropped during a rest
                    position = kernel.commit([delete], sync=True)
        self._unfinished.discard(log.id)
        if position:
            await kernel.journal.wait_synced(position, live.wake)

    async def finish(self, live: OpenLog) -> None:
        """Go on with a rule that was refused half-way."""
        if live.log.id in self._unfinished:
            await self.enforce(live)

    def _surplus(self, live: OpenLog) -> Iterator[Delete | None]:
        """What is too much, decided anew at each step: others write, and change rules, between."""
        log, keyed, at = live.log, live.keyed, 0
        # Nearly always a start finds one record of each key: there is nothing to look for.
        keys = keyed.keys() if keyed is not None and keyed.records > keyed.count else []
        while at < len(keys) and live.keyed is not None:
            delete, at = supersession.surplus(log, live.keyed, keys, at, SURPLUS_STEP)
            yield delete
        while live.keyed is not None:
            delete = supersession.surplus_keys(log, live.keyed, SURPLUS_STEP)
            if delete is None:
                return
            yield delete


def _add_resident(live: OpenLog, keyed: KeyedRecords, start: int) -> Iterator[int]:
    """Take in the live records that are in memory, block by block, and those that come meanwhile;
    who looks away between two blocks begins anew when records went.
    """
    log, after = live.log, start - 1
    while (block := next(live.tail.since(after + 1), None)) is not None:
        for low, high in live_ranges(log, block.last, max(block.first, after + 1)):
            first, stop = block.index(low), block.stop_index(high)
            if first < stop:
                keyed.add(cut(block, first, stop))
        after = block.last
        yield after
