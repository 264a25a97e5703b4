"""Reading: pages of a log, and records asked for one by one.

Records come from memory where it has them, else from segments. While a segment is read, more
of them may leave memory: whoever gathers looks again where the tail begins.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from headrace.core import log as one
from headrace.core import ranges
from headrace.core import read as reading
from headrace.core.limits import READ_SCANNED_MAX
from headrace.core.read import Budget, Gathering, Page, Plan, Slice
from headrace.core.record import Block, cut
from headrace.core.selector import EVERYTHING, Selector
from headrace.engine.live import Live
from headrace.storage.vanished import Vanished

if TYPE_CHECKING:
    from headrace.engine.engine import Engine

P = ParamSpec("P")
T = TypeVar("T")

_FETCH_ROWS = 256
"""Rows to read at a time for records asked for one by one: neighbours are often next."""


class Reader:
    """Reads the logs of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def read(
        self,
        live: Live,
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
        engine, log = self._engine, live.log
        await self.prepare(live)
        deletions = live.deletions
        visible = live.visible if upto is None else min(upto, live.visible)
        plan = reading.plan(log, visible, after, epoch)
        budget = Budget(records_max, bytes_max, READ_SCANNED_MAX)
        page = Gathering(log, plan, budget, selector)
        if plan.start <= plan.last:
            await self._gather(live, page, plan.last, records_max)
        answer = page.page(visible)
        await engine.settle_deletions(live, deletions, lambda: answer.forget(log.deleted))
        return answer

    async def prepare(self, live: Live) -> None:
        """Have the log as it is now: with what routers have for it, without what is too old."""
        engine, log = self._engine, live.log
        if log.inlets:
            await engine.routers.catch_up(live)
            engine.check_alive(live)
        if log.stream is not None:
            engine.streams.use(live)
        engine.expire_now(live)

    def glance(
        self,
        live: Live,
        after: int,
        *,
        records_max: int,
        bytes_max: int,
        selector: Selector = EVERYTHING,
        upto: int,
    ) -> Page | None:
        """The page that `read` would give, at once, if memory holds all of it; else None."""
        if not self.has_at_hand(live, after, upto):
            return None
        plan = Plan(after + 1, upto, None)
        budget = Budget(records_max, bytes_max, READ_SCANNED_MAX)
        page = Gathering(live.log, plan, budget, selector)
        for block in live.tail.since(plan.start):
            if not page.take(block):
                break
        return page.page(upto)

    def has_at_hand(self, live: Live, after: int, upto: int) -> bool:
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
        if log.config.ttl_ms:
            aged = one.expire(log, self._engine.clock.now_ms())
            if aged is not None and aged.floor_ttl > first:
                return False
        plan = reading.plan(log, upto, after, None)
        return plan == Plan(first, upto, None)

    async def read_or_wait(
        self,
        live: Live,
        after: int,
        *,
        wait_ms: int,
        epoch: int | None = None,
        over: Callable[[Live], bool] = lambda live: False,
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
                if page.slices or page.gap or page.limited or self._engine.draining or over(live):
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
            self._engine.check_alive(live)

    async def _gather(self, live: Live, page: Gathering, last: int, rows_max: int) -> None:
        inherited = min(live.log.inherited, last)
        if page.next < inherited:
            await self._gather(self.source(live), page, inherited, rows_max)
            if page.full or page.next < inherited:
                return
        while page.next < last and page.next + 1 < (start := live.tail.start):
            block = await self.read_sealed(live, page.next + 1, rows_max)
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

    def fetch_now(self, live: Live, seqs: Sequence[int]) -> list[Slice] | None:
        """These records, ascending, if they are all in memory."""
        tail = live.tail
        if seqs and seqs[0] < tail.start:
            return None
        found: list[Slice] = []
        at = 0
        while at < len(seqs):
            block = next(tail.since(seqs[at]))
            stop = bisect_right(seqs, block.last, at)
            first, last = block.index(seqs[at]), block.index(seqs[stop - 1])
            picks: range | list[int] = range(first, last + 1)
            if last - first != stop - 1 - at:
                picks = [block.index(seq) for seq in seqs[at:stop]]
            found.append(Slice(block, picks))
            at = stop
        return found

    async def fetch(
        self, live: Live, seqs: Sequence[int], bytes_max: int | None = None
    ) -> list[Slice]:
        """These records, ascending, wherever they lie; those that are gone by now are left out.

        With `bytes_max`, it ends behind the block with which they come to so much.
        """
        found: list[Slice] = []
        at, size_bytes, deletions = 0, 0, live.deletions
        while at < len(seqs) and (bytes_max is None or size_bytes < bytes_max):
            block = await self._block_of(live, seqs[at])
            if block is None:
                at += 1
                continue
            stop = bisect_right(seqs, block.last, at)
            inside = ((seq, block.index(seq)) for seq in seqs[at:stop])
            picks = [
                index for seq, index in inside if index < block.count and block.seq_at(index) == seq
            ]
            if picks:
                found.append(Slice(block, picks))
                if bytes_max is not None:
                    size_bytes += sum(block.measure(pick, pick + 1) for pick in picks)
            at = max(stop, at + 1)
        return found if live.deletions == deletions else reading.without(found, live.log.deleted)

    async def _block_of(self, live: Live, seq: int) -> Block | None:
        """A block that reaches this seq."""
        if seq <= live.log.inherited:
            return await self._block_of(self.source(live), seq)
        if seq < live.tail.start:
            return await self.read_sealed(live, seq, _FETCH_ROWS)
        return next(live.tail.since(seq), None)

    async def seek(self, live: Live, at_ns: int) -> int:
        """The seq behind which the records of this time and later lie."""
        seq = await self._seek(live, at_ns, live.visible)
        return live.visible if seq is None else seq - 1

    async def _seek(self, live: Live, at_ns: int, last: int) -> int | None:
        """The first record up to `last` that is not older, wherever it lies."""
        log, engine = live.log, self._engine
        stream = log.stream
        if stream is not None and stream.fork is not None:
            upto = min(stream.fork.upto, last)
            seq = await self._seek(self.source(live), at_ns, upto)
            if seq is not None:
                return seq
        while True:
            start, found = live.tail.start, None
            if log.extents:
                found = await self.sealed(engine.segments.seek, log, at_ns, min(start - 1, last))
            if live.tail.start == start:
                break  # else records left memory meanwhile: they are in a segment now
        if found is None:
            found = live.tail.seek(at_ns)
        return found if found is not None and found <= last else None

    async def read_sealed(self, live: Live, seq: int, rows_max: int) -> Block | None:
        """A block of a segment that reaches this seq."""
        return await self.sealed(self._engine.segments.read, live.log, seq, rows_max)

    async def sealed(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Read segments off the event loop; again, when others replaced them meanwhile."""
        return await self.again(lambda: self._engine.pool.run(work, *args, **kwargs))

    async def again(self, take: Callable[[], Awaitable[T]]) -> T:
        """What `take` reads of segments and builds; again, when others replaced them meanwhile."""
        engine = self._engine
        while True:
            version = engine.segments.version
            try:
                return await take()
            except Vanished as gone:
                await engine.renew()
                if engine.segments.version == version and not await engine.let_go(gone.name):
                    raise  # nobody replaced it: it is lost

    def source(self, live: Live) -> Live:
        """The stream that this one was forked from."""
        stream = live.log.stream
        assert stream is not None
        assert stream.fork is not None
        return self._engine.lives[stream.fork.source]
