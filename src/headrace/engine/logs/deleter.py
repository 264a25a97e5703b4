"""Deleting records: up to a seq, by tag, or both.

What is in segments is looked at off the event loop; when records left memory meanwhile, the look is
taken again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.core import deletion, ranges
from headrace.core.entry import Delete
from headrace.core.log import Log, check_owner
from headrace.core.match import TagMatch
from headrace.core.ranges import Ranges
from headrace.engine.kernel import Kernel
from headrace.engine.logs.fetcher import Fetcher
from headrace.engine.logs.lookup import LogLookup
from headrace.engine.open_log import OpenLog
from headrace.engine.routers.control import Routers
from headrace.engine.timings import Timings


class Deleter:
    """Deletes records of the logs of one engine."""

    def __init__(
        self, kernel: Kernel, lookup: LogLookup, fetcher: Fetcher, routers: Routers
    ) -> None:
        self._kernel = kernel
        self._lookup = lookup
        self._fetcher = fetcher
        self._routers = routers

    async def delete(
        self,
        name: str,
        before: int | None,
        match: TagMatch | None,
        timings: Timings | None = None,
        owner: str | None = None,
    ) -> tuple[OpenLog, int]:
        """Delete records below `before` and/or with a matching tag; returns how many there were."""
        kernel, timings = self._kernel, timings or Timings()
        await self._routers.catch_up(self._lookup.live(name))
        live = self._lookup.state_of(name)
        check_owner(live.log, owner)
        bound = live.visible + 1 if before is None else min(before, live.visible + 1)
        if match is None:
            entry = await self._delete_below(live, bound)
        else:
            entry = await self._delete_tagged(live, match, bound)
        kernel.check_alive(live)
        if entry is None:
            await kernel.settle(live)  # somebody else may have deleted it a moment ago
            return live, 0
        kernel.check_writable()
        live.forget_recent()
        position = kernel.commit([entry], sync=live.log.config.synced)
        await kernel.wait(live, position, live.visible, timings)
        return live, entry.count

    async def delete_seq(self, name: str, seq: int, *, owner: str) -> bool:
        """Delete one record; says whether it was there."""
        live = self._lookup.state_of(name)
        check_owner(live.log, owner)
        return await self.delete_one(live, seq)

    async def delete_one(self, live: OpenLog, seq: int) -> bool:
        """The same of a log that is at hand."""
        return bool(
            await self._delete(live, lambda: deletion.live_one(live.log, seq, live.visible))
        )

    async def delete_within(self, live: OpenLog, wanted: Sequence[tuple[int, int]]) -> int:
        """Delete the records in these ascending ranges of seqs, whoever owns the log; returns how
        many there were.
        """
        await self._routers.catch_up(live)
        return await self._delete(
            live, lambda: deletion.live_within(live.log, wanted, live.visible)
        )

    async def _delete(self, live: OpenLog, find: Callable[[], Ranges]) -> int:
        kernel, log = self._kernel, live.log
        while True:
            found = find()
            size_bytes = await self.measure(live, found)
            if found == find():
                break
        kernel.check_alive(live)
        entry = deletion.delete_ranges(log, found, size_bytes)
        if entry is None:
            await kernel.settle_all(live)
            return 0
        kernel.check_writable()
        live.forget_recent()
        position = kernel.commit([entry], sync=log.config.synced)
        await kernel.wait(live, position, live.visible, Timings())
        return entry.count

    async def measure(self, live: OpenLog, found: Ranges) -> int:
        """Bytes of these live records, wherever they lie."""
        log = live.log
        if ranges.count(found) == log.count:
            return log.size_bytes
        if log.ledger is not None:
            missing, pairs = log.missing, ranges.pairs(found)
            return sum(log.ledger.measure(low, high, missing)[1] for low, high in pairs)
        start = live.tail.start
        cold = [(low, min(high, start - 1)) for low, high in ranges.pairs(found) if low < start]
        warm = [(max(low, start), high) for low, high in ranges.pairs(found) if high >= start]
        total = sum(live.tail.measure(low, high) for low, high in warm)
        if cold:
            total += await self._fetcher.sealed(self._measure_sealed, log, cold)
        return total

    async def _delete_below(self, live: OpenLog, before: int) -> Delete | None:
        log = live.log
        while True:
            found = deletion.live_below(log, before, live.visible)
            size_bytes = await self.measure(live, found)
            if found == deletion.live_below(log, before, live.visible):
                return deletion.delete_ranges(log, found, size_bytes)

    async def _delete_tagged(self, live: OpenLog, match: TagMatch, before: int) -> Delete | None:
        log = live.log
        while True:
            start = live.tail.start
            sealed: list[tuple[int, int]] = []
            if log.extents and log.extents[0][1] < start:
                sealed = await self._fetcher.sealed(
                    self._fetcher.segments.tagged, log, match, min(before, start)
                )
            if live.tail.start == start:
                return deletion.delete_seqs(log, sealed + live.tail.tagged(match, before), before)

    def _measure_sealed(self, log: Log, parts: list[tuple[int, int]]) -> int:
        return sum(block.size_bytes for block in self._fetcher.segments.parts(log, parts))
