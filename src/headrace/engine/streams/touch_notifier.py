"""The touches of one stream, and who waits for them.

Changes are noted as they become visible. A notifier is in memory only, and only from when somebody
first asked for it: cursors of another notifier of the same stream, such as one from before a
restart, are stale.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

from headrace.core.errors import Code, Refused
from headrace.core.limits import SLICE_MS, TOUCH_KEYS_MAX, TOUCH_SETTLE_MAX
from headrace.engine.kernel import Kernel
from headrace.profiles.changes import Changes
from headrace.profiles.templates import Template, Templates, Wanted
from headrace.profiles.touchconfig import TouchConfig
from headrace.profiles.touches import Touches

if TYPE_CHECKING:
    from headrace.engine.open_log import OpenLog

_NOTIFIER_BYTES, _KEY_BYTES = 1024, 80
_LOOK_EVERY = 64
"""Records between two looks at the time."""


class Interest(msgspec.Struct, frozen=True):
    """What somebody waits for."""

    ids: frozenset[int]
    templates: tuple[int, ...]
    """Those that its keys are of: when their keys cannot be told, it is woken too."""
    coarse: bool
    """Any change of their entities counts."""


class ServedInterest(msgspec.Struct, frozen=True):
    """An interest as the notifier can serve it now."""

    ids: frozenset[int]
    past: frozenset[int]
    """Ids to look at as well behind the cursor, and not any more from now on."""
    anything: bool
    """Every change of the stream counts, since nobody knows more."""
    kind: str


class Totals(msgspec.Struct):
    """What a notifier did so far."""

    records: int = 0
    flushes: int = 0
    waits: int = 0
    wakes: int = 0
    timeouts: int = 0
    stales: int = 0


class _Waiter:
    __slots__ = ("_late", "future", "watch")

    def __init__(self, watch: ServedInterest, future: asyncio.Future[bool]) -> None:
        self.watch = watch
        self.future = future
        self._late = False

    def wake(self, touched: bool) -> None:
        if not self.future.done():
            self.future.set_result(touched)
        elif touched:
            # The time was up, but the answer is yet to be made, and its cursor is behind this.
            self._late = True

    async def wait(self) -> bool:
        """Whether it was touched; what is done before the next await knows all that was."""
        return await self.future or self._late

    def leave(self) -> None:
        """Nobody will hear the answer."""
        self.wake(False)


class TouchNotifier:
    """The touches of one stream, and who waits for them."""

    def __init__(self, kernel: Kernel, live: OpenLog, config: TouchConfig) -> None:
        self._kernel = kernel
        self.live = live
        self.config = config
        self.epoch = secrets.token_hex(8)
        keys_max = min(TOUCH_KEYS_MAX, 1 << config.memory.filter_pow2)
        self.touches = Touches(keys_max, config.memory.pending_max_keys)
        self.templates = Templates(config.templates)
        self.changes = Changes(config, self.templates, self.touches)
        self.totals = Totals()
        self.lagging = False
        self.scanned = live.visible
        """Records up to here are noted."""
        self.flushed = live.visible
        """Records up to here are in the generations so far."""
        self.flushed_at_ms = self.bucket_start_ms = 0
        self.used_at_ms = kernel.clock.now_ms()
        self._loop = asyncio.get_running_loop()
        self._next_flush_s = self._next_tables_s = 0.0
        self._next_collection_ms = self.used_at_ms + config.templates.gc_interval_ms
        self._reading: asyncio.Handle | None = None
        self._flushing: asyncio.TimerHandle | None = None
        self._flushing_s = 0.0
        """When it is due: not all handles of the loop can say."""
        self._waiters: dict[int, set[_Waiter]] = {}
        self._for_anything: set[_Waiter] = set()
        self.waiting = 0

    @property
    def generation(self) -> int:
        return self.touches.generation

    @property
    def cursor(self) -> str:
        return f"{self.epoch}:{self.generation}"

    @property
    def backlog(self) -> int:
        return self.live.visible - self.scanned

    @property
    def settled(self) -> bool:
        return not self.backlog and self.touches.settled

    @property
    def mode(self) -> str:
        """How exactly changes are told."""
        if not len(self.templates) and not self.waiting:
            return "idle"
        if not self.lagging:
            return "fine"
        reserved = self.config.lag_reserved_fine_touch_budget_per_batch
        return "restricted" if reserved else "coarseOnly"

    @property
    def size_bytes(self) -> int:
        """What it remembers, about."""
        return _NOTIFIER_BYTES + _KEY_BYTES * (len(self.touches) + len(self.touches.pending))

    # --- noting ----------------------------------------------------------------------------------

    def notice(self) -> None:
        """There may be more to see of the stream; it is looked at when this round is over."""
        if self._reading is None and self.backlog:
            self._reading = self._loop.call_soon(self._read_some)

    def _read_some(self) -> None:
        self._reading = None
        self.read()
        self.notice()
        self._flush_later()

    def _flush_later(self) -> None:
        """Close the generation when it is time to; at once if it is."""
        if self.touches.settled:
            return
        due_s = self._next_flush_s
        if not self.touches.pending and not self.touches.everyone_pending:
            due_s = max(due_s, self._next_tables_s)
        if self._flushing is not None:
            if self._flushing_s <= due_s:
                return
            self._flushing.cancel()
        if due_s > self._loop.time():
            self._flushing = self._loop.call_at(due_s, self._flush_due, due_s)
            self._flushing_s = due_s
        else:
            self._flush_due(due_s)

    def _flush_due(self, due_s: float) -> None:
        self.flush(tables=self._next_tables_s <= max(due_s, self._loop.time()))
        self._flush_later()

    def read(self, records_max: int | None = None) -> None:
        """Note what became visible, for a while."""
        config, now_ms = self.config, self._kernel.clock.now_ms()
        if self.backlog >= config.lag_degrade_fine_touches_at_source_offsets:
            self.lagging = True
        elif self.backlog <= config.lag_recover_fine_touches_at_source_offsets:
            self.lagging = False
        if now_ms >= self._next_collection_ms:
            self.templates.expire(now_ms)
            self._next_collection_ms = now_ms + config.templates.gc_interval_ms
        self.changes.begin(lagging=self.lagging, now_ms=now_ms)
        if self.touches.settled:
            self.bucket_start_ms = now_ms
        until = perf_counter() + SLICE_MS / 1e3
        before = self.scanned
        for raw in self._raws():
            self.changes.take(raw)
            count = self.scanned - before
            if records_max is not None and count >= records_max:
                break
            if count % _LOOK_EVERY == 0 and perf_counter() > until:
                break
        self.totals.records += self.scanned - before

    def _raws(self) -> Iterator[memoryview]:
        """Records that are visible and not noted yet; they count as noted when the next is due."""
        live = self.live
        visible = live.visible
        if live.tail.start > self.scanned + 1:
            self.touches.overflow()  # they left memory before we came to see them
            self.scanned = min(live.tail.start - 1, visible)
        for block in live.tail.since(self.scanned + 1):
            if block.first > visible:
                return
            cuts, data = block.cuts(), memoryview(block.data)
            for at in range(block.index(self.scanned + 1), block.stop_index(visible)):
                self.scanned = block.seq_at(at)
                yield data[cuts[at - 1] if at else block.base : cuts[at]]
        self.scanned = max(self.scanned, visible)

    def flush(self, *, tables: bool = True) -> None:
        """Close the generation, perhaps without tables, and wake whom it concerns."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        if self.touches.settled:
            return
        ids, everyone = self.touches.flush(tables=tables)
        now_s = self._loop.time()
        self._next_flush_s = now_s + self.config.window_ms / 1e3
        if not self.touches.tables:
            self.flushed = self.scanned
            self._next_tables_s = now_s + self.config.coarse_interval_ms / 1e3
        self.flushed_at_ms = self._kernel.clock.now_ms()
        self.totals.flushes += 1
        for waiter in self._woken(ids, everyone):
            self.totals.wakes += 1
            waiter.wake(True)

    def _woken(self, ids: set[int], everyone: bool) -> set[_Waiter]:
        woken = set(self._for_anything)
        waiters = self._waiters
        for id in waiters if everyone else waiters.keys() & ids:
            woken |= waiters[id]
        return woken

    def settle(self) -> None:
        """Note all that is visible and close the generation, unless that is too much at once."""
        if self.backlog <= TOUCH_SETTLE_MAX:
            while self.backlog:
                self.read()
            self.flush()

    async def wait_settled(self, timeout_ms: int) -> None:
        """The same, however much it is; but not for longer."""
        target, until = self.live.visible, self._loop.time() + timeout_ms / 1e3
        while self.scanned < target and self._loop.time() < until:
            self.read()
            await asyncio.sleep(0)
        self.flush()

    # --- asking ----------------------------------------------------------------------------------

    def activate(self, wanted: Iterable[Wanted], ttl_ms: int | None) -> list[Template | str]:
        """Have templates looked at from now on; for each of them, or why not."""
        self.settle()
        self.flush()  # what was noted before is told by its table alone
        now_ms = self._kernel.clock.now_ms()
        self.templates.expire(now_ms)
        answers = [self.templates.activate(w, ttl_ms, self.generation, now_ms) for w in wanted]
        for dropped in self.templates.dropped:
            self.touches.touch(dropped.blur_id)
        if self.templates.dropped:
            self.templates.dropped.clear()
            self.flush()
        return answers

    def watch(self, interest: Interest, after: int, wait_ms: int) -> ServedInterest:
        """What to look at for this interest, behind this generation and for so long."""
        now_ms = self._kernel.clock.now_ms()
        found = [self.templates.get(id) for id in interest.templates]
        templates = [template for template in found if template is not None]
        for template in templates:
            self.templates.use(template, now_ms, wait_ms)
        ids, anything = set(interest.ids), len(templates) < len(found)
        if interest.coarse:
            ids |= {template.table_id for template in templates}
            return ServedInterest(frozenset(ids), frozenset(), anything, "tableKey")
        ids |= {template.blur_id for template in templates}
        past = {t.table_id for t in templates if t.active_from > after}
        kind = "tableKey" if anything else "fineKey"
        if templates and self.lagging and not anything:
            ids |= {template.key_id for template in templates}
            kind = "templateKey"
        return ServedInterest(frozenset(ids), frozenset(past), anything, kind)

    def is_touched(self, watch: ServedInterest, after: int) -> bool:
        if watch.anything and self.touches.is_anything_touched(after):
            return True
        return self.touches.is_touched((*watch.ids, *watch.past), after)

    @contextmanager
    def waiter(self, watch: ServedInterest, wait_ms: int) -> Iterator[_Waiter]:
        """Somebody who waits until it is touched."""
        waiter = _Waiter(watch, self._loop.create_future())
        timer = self._loop.call_later(wait_ms / 1e3, waiter.wake, False)
        self._enter(waiter)
        try:
            yield waiter
        finally:
            timer.cancel()
            self._leave(waiter)

    def _enter(self, waiter: _Waiter) -> None:
        if not self.waiting:
            self.live.listen(self._look)  # a stream that somebody waits at is in use
        self.waiting += 1
        if waiter.watch.anything:
            self._for_anything.add(waiter)
        for id in waiter.watch.ids:
            self._waiters.setdefault(id, set()).add(waiter)

    def _leave(self, waiter: _Waiter) -> None:
        self.waiting -= 1
        self._for_anything.discard(waiter)
        for id in waiter.watch.ids:
            others = self._waiters[id]
            others.discard(waiter)
            if not others:
                del self._waiters[id]
        if not self.waiting:
            self.live.unlisten(self._look)

    def _all(self) -> set[_Waiter]:
        return self._for_anything.union(*self._waiters.values())

    def _look(self) -> None:
        """Something happened to the stream: it may be over, or the server about to stop."""
        stream = self.live.log.stream
        if self.live.log.id not in self._kernel.open_logs or stream is None or stream.deleted:
            self.close(Refused(Code.LOG_NOT_FOUND, f'stream "{self.live.log.name}" was deleted'))
        elif self._kernel.draining:
            for waiter in self._all():
                waiter.wake(False)

    def close(self, refused: Refused) -> None:
        """Nobody can wait here any more."""
        for handle in (self._reading, self._flushing):
            if handle is not None:
                handle.cancel()
        for waiter in self._all():
            if not waiter.future.done():
                waiter.future.set_exception(refused)
