"""Reading: pages of a log.

Records come from memory where it has them, else from segments. While a segment is read, more
of them may leave memory: whoever gathers looks again where the tail begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from headrace.core import log as core_log
from headrace.core import ranges
from headrace.core import read as reading
from headrace.core.limits import READ_SCANNED_MAX
from headrace.core.log import Log
from headrace.core.read import Budget, Gathering, Page, ReadPlan, gather_known
from headrace.core.record import Block, cut
from headrace.core.selector import EVERYTHING, Selector
from headrace.core.selector_index import Picked
from headrace.engine.kernel import Kernel
from headrace.engine.logs.fetcher import Fetcher
from headrace.engine.open_log import OpenLog
from headrace.engine.routers.control import Routers
from headrace.engine.streams.expiry import StreamExpiry


class Reader:
    """Reads the logs of one kernel."""

    def __init__(
        self, kernel: Kernel, fetcher: Fetcher, routers: Routers, expiry: StreamExpiry
    ) -> None:
        self._kernel = kernel
        self._fetcher = fetcher
        self._routers = routers
        self._expiry = expiry

    async def read(
        self,
        live: OpenLog,
        after: int,
        *,
        records_max: int,
        bytes_max: int,
        selector: Selector = EVERYTHING,
        epoch: int | None = None,
        upto: int | None = None,
    ) -> Page:
        """One page of records after `after`, from memory where it can, else from segments.

        `upto` makes it end earlier than at the last record readers may see.
        """
        kernel, log = self._kernel, live.log
        await self.prepare(live)
        deletions = live.deletions
        visible = live.visible if upto is None else min(upto, live.visible)
        plan = reading.plan(log, visible, after, epoch)
        budget = Budget(records_max, bytes_max, READ_SCANNED_MAX // selector.cost)
        page = Gathering(log, plan, budget, selector)
        if plan.start <= plan.last:
            await self._gather(live, page, plan.last, records_max)
        answer = page.page(visible)
        await kernel.settle_deletions(live, deletions, lambda: answer.forget(log.deleted))
        return answer

    async def prepare(self, live: OpenLog) -> None:
        """Have the log as it is now: with what routers have for it, without what is too old."""
        kernel, log = self._kernel, live.log
        if log.inbound_routes:
            await self._routers.catch_up(live)
            kernel.check_alive(live)
        if log.stream is not None:
            self._expiry.use(live)
        kernel.expire_now(live)

    def glance(
        self,
        live: OpenLog,
        after: int,
        *,
        records_max: int,
        bytes_max: int,
        selector: Selector = EVERYTHING,
        upto: int,
        picked: Picked | None = None,
        gets_superseded: bool = False,
    ) -> Page | None:
        """The page that `read` would give, at once, if memory holds all of it; else None.

        `picked` is what the selector picks, where that is known. `gets_superseded` has in it, too,
        what newer records superseded lately.
        """
        plan = ReadPlan(after + 1, upto, None)
        budget = Budget(records_max, bytes_max, READ_SCANNED_MAX // selector.cost)
        recent = None
        if not self.has_at_hand(live, after, upto):
            if gets_superseded and picked is None:
                recent = self._recall(live, after + 1, upto)
            if recent is None:
                return None
        elif picked is not None:
            return gather_known(live.log, picked.by_block.values(), plan, budget)
        page = Gathering(live.log, plan, budget, selector, takes_deleted=recent is not None)
        for block in live.tail.since(plan.start) if recent is None else recent:
            if not page.take(block):
                break
        return page.page(upto)

    def has_at_hand(self, live: OpenLog, after: int, upto: int) -> bool:
        """Whether memory holds all records behind `after`, up to `upto`.

        Not when there is something to wait for: records in segments, or a loss or a deletion on
        the way that must be durable before anybody is told to pass it.
        """
        log = live.log
        first = after + 1
        if first < live.tail.start or ranges.touches(log.deleted, first, upto):
            return False
        if first <= log.inherited:
            return False
        if self._is_aged(log, first):
            return False
        plan = reading.plan(log, upto, after, None)
        return plan == ReadPlan(first, upto, None)

    def _recall(self, live: OpenLog, first: int, last: int) -> list[Block] | None:
        """What came lately, whether or not newer records have superseded it since."""
        if live.recent is None or live.log.floor > first or self._is_aged(live.log, first):
            return None
        return live.recall(first, last)

    def _is_aged(self, log: Log, first: int) -> bool:
        """Whether this seq is too old, though nobody has looked yet."""
        if not log.config.ttl_ms:
            return False
        aged = core_log.expire(log, self._kernel.clock.now_ms())
        return aged is not None and aged.floor_ttl > first

    async def read_or_wait(
        self,
        live: OpenLog,
        after: int,
        *,
        wait_ms: int,
        epoch: int | None = None,
        over: Callable[[OpenLog], bool] = lambda live: False,
        read: Callable[..., Awaitable[Page]] | None = None,
        **how: object,
    ) -> Page:
        """A page as `read` gives it; when it would be empty, wait for something to deliver.

        Nothing more will come once the log is `over`.
        """
        look: Callable[..., Awaitable[Page]] = read or self.read
        if not wait_ms:
            return await look(live, after, epoch=epoch, **how)
        deadline = asyncio.get_running_loop().time() + wait_ms / 1000
        while True:
            changed = live.wakeup()
            try:
                page = await look(live, after, epoch=epoch, **how)
                after, epoch = page.next, None
                if page.slices or page.gap or page.limited or self._kernel.draining or over(live):
                    return page
                if asyncio.get_running_loop().time() >= deadline:
                    return page
                if not page.caught_up:
                    continue
                async with asyncio.timeout_at(deadline):
                    await changed
            except TimeoutError:
                return page
            finally:
                live.forget(changed)
            self._kernel.check_alive(live)

    async def _gather(self, live: OpenLog, page: Gathering, last: int, rows_max: int) -> None:
        inherited = min(live.log.inherited, last)
        if page.next < inherited:
            await self._gather(self._kernel.source_of(live), page, inherited, rows_max)
            if page.full or page.next < inherited:
                return
        while page.next < last and page.next + 1 < (start := live.tail.start):
            block = await self._fetcher.read_sealed(live, page.next + 1, rows_max)
            below = block.stop_index(min(live.tail.start - 1, last)) if block is not None else 0
            if block is None or not below:
                if live.tail.start != start:
                    continue  # what left the tail meanwhile is in a segment now
                break  # what is left below the tail is gone
            # The tail knows better than the segment: it may hold records no segment has.
            if not page.take(cut(block, 0, below)):
                return
        for block in live.tail.since(page.next + 1):
            # A fork goes no further here than to where it began.
            below = block.stop_index(last)
            if not below or not page.take(cut(block, 0, below)):
                return

    async def seek(self, live: OpenLog, at_ns: int) -> int:
        """The seq behind which the records of this time and later lie."""
        seq = await self._seek(live, at_ns, live.visible)
        return live.visible if seq is None else seq - 1

    async def _seek(self, live: OpenLog, at_ns: int, last: int) -> int | None:
        """The first record up to `last` that is not older, wherever it lies."""
        log = live.log
        stream = log.stream
        if stream is not None and stream.fork is not None:
            upto = min(stream.fork.upto, last)
            seq = await self._seek(self._kernel.source_of(live), at_ns, upto)
            if seq is not None:
                return seq
        while True:
            start, found = live.tail.start, None
            if log.extents:
                found = await self._fetcher.sealed(
                    self._fetcher.segments.seek, log, at_ns, min(start - 1, last)
                )
            if live.tail.start == start:
                break  # else records left memory meanwhile: they are in a segment now
        if found is None:
            found = live.tail.seek(at_ns)
        return found if found is not None and found <= last else None
