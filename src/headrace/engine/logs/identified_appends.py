"""Appending records that have ids: each id is stored once, whoever sends it again in whatever
company.

Which ids are known is decided with the append, in one step of the loop, and so are the seqs: the
records are written when these are known, and may name their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from headrace.core import state as core_state
from headrace.core import supersession
from headrace.core.cap import Cap
from headrace.core.config import LogConfig
from headrace.core.entry import Create, Drop
from headrace.core.limits import RECORD_IDS_MAX, RECORD_IDS_SWEPT
from headrace.core.log import Log, check_owner
from headrace.core.record import Drafts
from headrace.core.record_ids import Placement, RecordIds, place, window_floor
from headrace.engine.kernel import Kernel
from headrace.engine.logs.appender import Appender
from headrace.engine.logs.fetcher import Fetcher
from headrace.engine.logs.live_records import index_records
from headrace.engine.open_log import OpenLog
from headrace.engine.timings import Timings

Write = Callable[[Sequence[int], int, int], Drafts]
"""Writes these of the records, by their places: the seq of the first, and the time of commit."""


class IdentifiedAppend(msgspec.Struct, frozen=True):
    """What an append of records with ids was given."""

    log: Log
    placement: Placement
    created: bool


class IdentifiedAppender:
    """Appends to logs with unique ids.

    How many ids are known altogether is bounded: what would be too many is refused, and takes its
    turn when older ones have left the window.
    """

    def __init__(self, kernel: Kernel, appender: Appender, fetcher: Fetcher) -> None:
        self._kernel = kernel
        self._appender = appender
        self._fetcher = fetcher
        self._counted: dict[int, int] = {}
        """How many ids of each log are counted."""
        self._total = 0
        self._cap = Cap("max_record_ids", RECORD_IDS_MAX)
        kernel.observe(lambda live, _: self._forget(live), Drop)

    async def open(self) -> None:
        """At a start: learn which ids there are."""
        kernel = self._kernel
        for live in list(kernel.open_logs.values()):
            if live.log.config.unique_ids:
                first = window_floor(live.log, kernel.clock.now_ms())
                live.ids = await index_records(self._fetcher, live, RecordIds, first)
                self._count(live, live.ids)

    async def append(
        self,
        name: str,
        ids: Sequence[bytes],
        write: Write,
        *,
        owner: str,
        create: LogConfig,
        created_by: str = "",
        timings: Timings | None = None,
    ) -> IdentifiedAppend:
        """Append those records whose ids are new, all or none, to a log that is made if need be.

        Ids that are known are stored for good when this returns, too.
        """
        kernel, timings = self._kernel, timings or Timings()
        if not kernel.admission.open:
            timings.throttle_ms = await kernel.wait_admitted(name, create)
        kernel.check_open()
        log = kernel.state.by_name.get(name)
        now_ms = kernel.clock.now_ms()
        self._check_room(len(ids), now_ms)
        if log is None:
            kernel.caps.check_logs(kernel.state, owner, created_by)
            made = core_state.create(kernel.state, name, owner, create, now_ms, created_by)
            return await self._append_new(made, ids, write, now_ms, timings)
        check_owner(log, owner)
        live = kernel.open_logs[log.id]
        self._appender.batches.flush(live)
        kernel.expire_now(live)
        assert live.ids is not None, f"{name} has no ids"
        placement = place(log, live.ids, ids, now_ms)
        position = kernel.journal.tail
        if placement.fresh:
            at_ms = max(now_ms, log.last_ts_ms)
            drafts = write(placement.fresh, log.head + 1, at_ms)
            admitted = supersession.append(log, live.keyed, drafts, None, now_ms)
            kernel.caps.check_total(kernel.state, admitted)
            position = self._appender.enqueue(live, admitted, now_ms)
            self._count(live, live.ids)
        await kernel.wait(live, position, max(placement.seqs), timings)
        return IdentifiedAppend(log, placement, created=False)

    async def _append_new(
        self, create: Create, ids: Sequence[bytes], write: Write, now_ms: int, timings: Timings
    ) -> IdentifiedAppend:
        placement = place(core_state.new_log(create), RecordIds(), ids, now_ms)
        drafts = write(placement.fresh, 1, now_ms)
        done = await self._appender.append_new(create, drafts, None, None, now_ms, timings)
        live = self._kernel.open_logs.get(done.log.id)
        if live is not None and live.ids is not None:
            self._count(live, live.ids)
        return IdentifiedAppend(done.log, placement, created=True)

    # --- how many there are -----------------------------------------------------------------------

    def _check_room(self, more: int, now_ms: int) -> None:
        """Refuse so many more where that is too many, once a look for forgotten ones is taken."""
        if not self._cap.has_room(self._total, more):
            self._reclaim(now_ms)
            self._cap.check(self._total, more)

    def _reclaim(self, now_ms: int) -> None:
        """Free what has left the window, of the log whose turn it is."""
        id = next(iter(self._counted))
        live = self._kernel.open_logs[id]
        assert live.ids is not None
        live.ids.drop_below(window_floor(live.log, now_ms))
        live.ids.sweep(RECORD_IDS_SWEPT)
        self._total -= self._counted.pop(id)  # the next time it is the turn of another one
        self._count(live, live.ids)

    def _count(self, live: OpenLog, ids: RecordIds) -> None:
        before = self._counted.get(live.log.id, 0)
        self._counted[live.log.id] = ids.count
        self._total += ids.count - before

    def _forget(self, live: OpenLog) -> None:
        self._total -= self._counted.pop(live.log.id, 0)
