"""Fetching: blocks and single records, from memory where it has them, else from segments."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from typing import ParamSpec, TypeVar

from headrace.core import read as reading
from headrace.core.read import Slice
from headrace.core.record import Block
from headrace.engine.kernel import Kernel
from headrace.engine.open_log import OpenLog
from headrace.engine.upkeep.manifest_follower import ManifestFollower
from headrace.storage.replaced_objects import Vanished
from headrace.storage.segments import Segments

P = ParamSpec("P")
T = TypeVar("T")

_FETCH_ROWS = 256
"""Rows to read at a time for records asked for one by one: neighbours are often next."""


class Fetcher:
    """Reads segments as the manifest in force names them, and records by their seqs."""

    def __init__(self, kernel: Kernel, segments: Segments, manifests: ManifestFollower) -> None:
        self.segments = segments
        self._kernel = kernel
        self._manifests = manifests

    def fetch_now(self, live: OpenLog, seqs: Sequence[int]) -> list[Slice] | None:
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
        self, live: OpenLog, seqs: Sequence[int], bytes_max: int | None = None
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

    async def _block_of(self, live: OpenLog, seq: int) -> Block | None:
        """A block that reaches this seq."""
        if seq <= live.log.inherited:
            return await self._block_of(self._kernel.source_of(live), seq)
        if seq < live.tail.start:
            return await self.read_sealed(live, seq, _FETCH_ROWS)
        return next(live.tail.since(seq), None)

    async def read_sealed(self, live: OpenLog, seq: int, rows_max: int) -> Block | None:
        """A block of a segment that reaches this seq."""
        return await self.sealed(self.segments.read, live.log, seq, rows_max)

    async def sealed(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Read segments off the event loop; again, when others replaced them meanwhile."""
        return await self.again(lambda: self._kernel.pool.run(work, *args, **kwargs))

    async def again(self, take: Callable[[], Awaitable[T]]) -> T:
        """What `take` reads of segments and builds; again, when others replaced them meanwhile."""
        while True:
            version = self.segments.version
            try:
                return await take()
            except Vanished as gone:
                manifests = self._manifests
                await manifests.look()
                if self.segments.version == version and not await manifests.let_go(gone.name):
                    raise  # nobody replaced it: it is lost
