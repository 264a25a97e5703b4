"""Appending: the five-step write of new records."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import msgspec

from headrace.core import idempotency, lease, ranges, supersession
from headrace.core import state as core_state
from headrace.core.config import LogConfig
from headrace.core.entry import Create, Entry
from headrace.core.log import Log, check_owner
from headrace.core.record import Drafts, concat
from headrace.core.supersession import Admitted
from headrace.engine.kernel import Kernel
from headrace.engine.logs.append_batch import AppendBatch, TurnBatches
from headrace.engine.open_log import OpenLog, keyed_by
from headrace.engine.timings import Timings
from headrace.formats.frame import check_append


class Appended(msgspec.Struct, frozen=True):
    """What an append was given."""

    log: Log
    first: int
    last: int
    head: int
    created: bool
    deduped: bool


class Appender:
    """Appends to the logs of one engine."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.batches = TurnBatches(kernel.journal, self._append_batch)

    async def append(
        self,
        name: str,
        drafts: Drafts,
        *,
        owner: str,
        create: LogConfig | None,
        created_by: str = "",
        key: str | None = None,
        due_ms: Sequence[int | None] | None = None,
        patient: bool = False,
        timings: Timings | None = None,
    ) -> Appended:
        """Append the drafts, all or none; `create` is the config of a log that is not there yet,
        and `created_by` who makes it then.

        `due_ms` says of new jobs when they may be claimed.
        """
        kernel, timings = self._kernel, timings or Timings()
        if not kernel.admission.open:
            timings.throttle_ms = await kernel.wait_admitted(name, create, patient=patient)
        kernel.check_open()
        log = kernel.state.by_name.get(name)
        now_ms = kernel.clock.now_ms()
        if log is None:
            if create is None:
                raise core_state.not_found(name)
            kernel.caps.check_logs(kernel.state, owner, created_by)
            made = core_state.create(kernel.state, name, owner, create, now_ms, created_by)
            return await self.append_new(made, drafts, key, due_ms, now_ms, timings)
        check_owner(log, owner)
        live = kernel.open_logs[log.id]
        if key is not None:
            window_ms = log.config.idempotency_window_ms
            if known := idempotency.find(log.keys, key, window_ms, now_ms):
                await kernel.wait(live, kernel.journal.tail, known[1], timings)
                return Appended(log, *known, live.visible, created=False, deduped=True)
        elif due_ms is None and log.config.journaled and self.batches.takes(live, drafts):
            started = perf_counter()
            first = await self.batches.join(live, drafts)
            timings.note_wait(log.config, (perf_counter() - started) * 1e3)
            last = first + drafts.count - 1
            return Appended(log, first, last, live.visible, created=False, deduped=False)
        self.batches.flush(live)
        if log.config.ttl_ms:
            kernel.expire_now(live)
        admitted = supersession.append(log, live.keyed, drafts, key, now_ms)
        block = admitted.append.block
        kernel.caps.check_total(kernel.state, admitted)
        delays = lease.delay(log, block.first, due_ms, now_ms) if due_ms else ()
        position, started = self.enqueue(live, admitted, now_ms, delays), perf_counter()
        await kernel.committed(live, position, block.last)
        timings.note_wait(log.config, (perf_counter() - started) * 1e3)
        return Appended(log, block.first, block.last, live.visible, created=False, deduped=False)

    def _append_batch(self, batch: AppendBatch) -> None:
        """Append what came in one turn, or refuse."""
        kernel, live = self._kernel, batch.live
        log, now_ms = live.log, kernel.clock.now_ms()
        kernel.check_open()
        kernel.check_alive(live)
        if log.config.ttl_ms:
            kernel.expire_now(live)
        admitted = supersession.append(log, live.keyed, concat(batch.drafts), None, now_ms)
        kernel.caps.check_total(kernel.state, admitted)
        position, block = self.enqueue(live, admitted, now_ms), admitted.append.block
        batch.first = block.first

        def show(last: int) -> None:
            batch.commit()
            live.show(last)

        committed = kernel.committed(live, position, block.last, show)
        committed.add_done_callback(batch.note_failure)

    async def append_new(
        self,
        create: Create,
        drafts: Drafts,
        key: str | None,
        due_ms: Sequence[int | None] | None,
        now_ms: int,
        timings: Timings,
    ) -> Appended:
        """Make a log and append to it; neither, if that is refused."""
        kernel = self._kernel
        log = core_state.new_log(create)
        admitted = supersession.append(log, keyed_by(log.config), drafts, key, now_ms)
        block = admitted.append.block
        kernel.caps.check_total(kernel.state, admitted)
        check_append(admitted.append)
        delays = lease.delay(log, block.first, due_ms, now_ms) if due_ms else ()
        kernel.commit([create], sync=True)
        live = kernel.open_logs[create.log]
        position = self.enqueue(live, admitted, now_ms, delays)
        await kernel.wait(live, position, block.last, timings)
        return Appended(
            live.log, block.first, block.last, live.visible, created=True, deduped=False
        )

    def enqueue(
        self, live: OpenLog, admitted: Admitted, now_ms: int, beside: Sequence[Entry] = ()
    ) -> int:
        """Put an append in journal order and apply it, with a promise of further seqs if one is
        due.

        What it supersedes, and what is decided beside it, comes true with it, or not at all.
        """
        kernel, config, entry = self._kernel, live.log.config, admitted.append
        together = bool(beside) or admitted.superseded is not None
        if config.synced and not together:  # nothing to promise: as a rule there is only this
            position = kernel.commit((entry,), sync=True)
            live.remember(entry.block)
            return position
        promise = live.promise(entry.block.last, now_ms)
        first = () if promise is None else (promise.entry,)
        entries = [*first, entry, *admitted.beside, *beside]
        stored: list[Entry] | None = None
        if not config.journaled:
            others = (other for other in beside if other.log != entry.log)
            stored = [*first, *journaled(live.log, admitted), *others]
        sync = config.synced or promise is not None
        position = kernel.commit(entries, stored=stored, sync=sync, together=together)
        live.remember(entry.block)
        if promise is not None:
            promise.made(position, kernel.journal.synced, now_ms)
        return position


def journaled(log: Log, admitted: Admitted) -> list[Entry]:
    """What of an append goes to the journal, by the log's class."""
    entry, gone = admitted.append, admitted.superseded
    if log.config.journaled:
        return [entry, *admitted.beside]
    # Class ephemeral: nothing, unless it ended records that would come back at a restart.
    ended: list[Entry] = []
    trim = entry.trim
    if trim and next(ranges.outside(log.volatile, log.floor, trim.floor_cap - 1), None):
        ended.append(trim)
    if gone and any(
        next(ranges.outside(log.volatile, low, min(high, log.head)), None)
        for low, high in ranges.pairs(gone.ranges)
    ):
        ended.append(gone)
    return ended
