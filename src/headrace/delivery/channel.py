"""All followers of one log: woken when it changes, taken on in passes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import perf_counter

from headrace.core.config import Durability
from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    FRAMES_KEPT,
    INDEXED_COHORTS_MIN,
    SLICE_MS,
    SWEEP_REST,
    SWEEP_REST_S_MAX,
    SWEPT_COHORTS_MIN,
)
from headrace.core.read import Page
from headrace.core.selector_index import Picked
from headrace.delivery.cohort import Cohort, Follower
from headrace.delivery.events import Event, Gone, Held, Records, View
from headrace.delivery.idle_cohorts import IdleCohorts
from headrace.delivery.tasks import Tasks
from headrace.delivery.timer_wheel import TimerWheel
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog
from headrace.observe import log_line
from headrace.storage.journal import ignore

_UNKNOWN = -1


def is_gone(engine: Engine, live: OpenLog) -> bool:
    """Whether a log is deleted, for its readers if not for its forks."""
    stream = live.log.stream
    return live.log.id not in engine.open_logs or (stream is not None and stream.deleted)


def when_durable(engine: Engine, then: Callable[[], None]) -> None:
    """Call this once all that is in the journal now is synced; never, should that fail."""
    ignore(engine.journal.wait_synced(engine.journal.tail, then))


class Channel:
    """One followed log.

    Without pressure, what is shown is with every follower that had caught up before the loop looks
    for input again: one pass over the cohorts, with no task in between.
    """

    def __init__(
        self,
        engine: Engine,
        wheel: TimerWheel,
        tasks: Tasks,
        live: OpenLog,
        on_empty: Callable[[Channel], None],
    ) -> None:
        self.live = live
        self.time = wheel.time
        self._engine = engine
        self._wheel = wheel
        self._tasks = tasks
        self._on_empty = on_empty
        self._cohorts: dict[Cohort, None] = {}
        self._active: dict[Cohort, None] = {}
        self._idle = IdleCohorts(self.time)
        self._homes: dict[View, Cohort] = {}
        """Where those with a view gather once they have caught up."""
        self._queue: deque[Cohort] = deque()
        self._scheduled = False
        self._goes_on = False
        """Whether the rest of a pass is to come in the next round of the loop."""
        self._sweep_began: float | None = None
        self._rests_until = 0.0
        self._sweeps_later = False
        """Whether records came that idle cohorts get with the next sweep."""
        self._changed = False
        self._held = False
        self._dropped = False
        self._synced = _UNKNOWN
        """Highest visible seq known to be synced; kept while somebody asks for that."""
        self._syncing = False
        self._pages: dict[tuple[View, int, int, int], Records | None] = {}
        self._frames: dict[Records, bytes] = {}
        live.listen(self._wake)

    # --- who follows ------------------------------------------------------------------------------

    def join(self, follower: Follower) -> None:
        """Take a follower on from its position."""
        cohort = Cohort(self, follower)
        self._cohorts[cohort] = self._active[cohort] = None
        self._line_up(cohort)
        self._schedule()

    def discard(self, cohort: Cohort) -> None:
        """A cohort has nobody left."""
        self._cohorts.pop(cohort, None)
        self._idle.discard(cohort)
        self._active.pop(cohort, None)
        if self._homes.get(cohort.view) is cohort:
            del self._homes[cohort.view]
        self._wheel.cancel(cohort)
        if not self._cohorts:
            self._close()

    def _close(self) -> None:
        self.live.unlisten(self._wake)
        self._engine.scheduler.cancel(self._pass)
        self._on_empty(self)

    @property
    def idle_position(self) -> int:
        return self._idle.position

    # --- waking up --------------------------------------------------------------------------------

    def _wake(self) -> None:
        """The log changed; more changes may follow in this round of the loop, so look after it."""
        self._changed = True
        self._forget()
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._tasks.soon(self._serve)

    def _serve(self) -> None:
        self._scheduled = False
        if self._dropped or not self._cohorts:
            return
        if self._is_gone:
            self._drop()
        elif self._engine.scheduler.serve(self.live, self._pass):
            self._held = False
        elif not self._held:
            self._held = True
            for cohort in tuple(self._cohorts):
                cohort.say(Held())

    @property
    def _is_gone(self) -> bool:
        return is_gone(self._engine, self.live)

    def _drop(self) -> None:
        """The log is deleted: followers hear of it once that is certain."""
        self._dropped = True
        when_durable(self._engine, self._say_gone)

    def _say_gone(self) -> None:
        gone = Gone(self.live.log.head)
        for cohort in tuple(self._cohorts):
            cohort.drop(gone)

    # --- going on ---------------------------------------------------------------------------------

    def _pass(self) -> None:
        """Take cohorts on, one page each, until all have caught up or the slice is spent."""
        if self._is_gone:
            return  # we were woken for that, too
        if self._changed:
            self._changed = False
            if self._may_sweep():
                self._move_idle()
            for cohort in self._active:
                self._line_up(cohort)
        if not self._goes_on:
            self._take_on()

    def _go_on(self) -> None:
        self._goes_on = False
        self._pass()

    def _take_on(self) -> None:
        """Cohorts that are lined up, for one slice of time."""
        self.live.last_read_at_ms = self._engine.clock.now_ms()
        started = perf_counter()
        while self._queue:
            cohort = self._queue.popleft()
            cohort.queued = False
            if cohort.followers and not cohort.busy:
                try:
                    self._step(cohort)
                except Exception as error:  # noqa: BLE001  (a bug: others get theirs all the same)
                    log_line("error", "a push failed", trace=error)
                    self._fail(cohort)
            if (perf_counter() - started) * 1e3 > SLICE_MS:
                break
        if self._queue:
            # A pass once begun does not wait for another turn, and has one slice in each round of
            # the loop, however often the log changes meanwhile.
            self._goes_on = True
            self._tasks.soon(self._go_on)
        else:
            self._idle.forget()
            self._forget()
            self._end_sweep()

    # Many cohorts that want different records are served in sweeps, so that each of them gets what
    # came meanwhile at once: writers would otherwise wait for as many writes to sockets as there
    # are records and cohorts.

    def _may_sweep(self) -> bool:
        """Whether idle cohorts may be served now; otherwise they are when that is over."""
        if self._sweep_began is None and self.time() >= self._rests_until:
            return True
        if not self._sweeps_later and self._sweep_began is None:
            self._tasks.later(self._rests_until - self.time(), self._sweep_again)
        self._sweeps_later = True
        return False

    def _end_sweep(self) -> None:
        if self._sweep_began is None:
            return
        now = self.time()
        rest_s = min(SWEEP_REST * (now - self._sweep_began), SWEEP_REST_S_MAX)
        self._sweep_began, self._rests_until = None, now + rest_s
        if self._sweeps_later:
            self._tasks.later(rest_s, self._sweep_again)

    def _sweep_again(self) -> None:
        self._sweeps_later = False
        self._changed = True
        self._schedule()

    def _line_up(self, cohort: Cohort) -> None:
        if not cohort.queued:
            cohort.queued = True
            self._queue.append(cohort)

    def _step(self, cohort: Cohort) -> None:
        """One page for a cohort, at once if it can be."""
        upto = self.upto(cohort.view)
        if upto == _UNKNOWN:
            return  # we are woken when it is not
        picked = self._idle.picked(cohort)
        if picked is not None:
            upto = min(upto, self._idle.position)  # what came since is asked of the index first
        if cohort.stale:
            self._read(cohort, upto)
        elif cohort.position >= upto:
            self._rest(cohort, upto)
        elif records := self._glance(cohort, upto, picked):
            cohort.take(records.page, records)
            self._rest(cohort, upto)
        else:
            self._read(cohort, upto)

    def _rest(self, cohort: Cohort, upto: int) -> None:
        """A page was delivered: the cohort goes on or, once it has caught up, joins the others."""
        if cohort.position < upto or cohort.stale:
            self._line_up(cohort)
            return
        if cohort.position > upto:
            return  # a strong follower was here before; it goes on when the sync is as far
        cohort.catch_up(upto)
        if cohort.position == self.live.log.head and self._engine.streams.is_closed(self.live):
            cohort.end(upto)
        home = self._homes.get(cohort.view)
        if not cohort.followers:
            return
        if home is not None and home is not cohort and home.suits(cohort):
            home.absorb(cohort)
            self.discard(cohort)
        else:
            self._homes[cohort.view] = cohort
            if len(self._cohorts) >= INDEXED_COHORTS_MIN and self._idle.add(cohort):
                del self._active[cohort]
                self.remind(cohort)

    def _move_idle(self) -> None:
        """Records came: idle cohorts move on behind them, but for those who want some."""
        if not self._idle:
            return
        engine, live, upto = self._engine, self.live, self.live.visible
        at_hand = engine.reader.has_at_hand(live, self._idle.position, upto)
        if at_hand and not engine.streams.is_closed(live):
            wanting = self._idle.move(live, upto)
        else:
            wanting = self._idle.remove_all()
        self._active.update(dict.fromkeys(wanting))
        if len(wanting) >= SWEPT_COHORTS_MIN:
            self._sweep_began = self.time()

    def _glance(self, cohort: Cohort, upto: int, picked: Picked | None) -> Records | None:
        """A page at once, the same for all who ask for the same."""
        view = cohort.view
        key = (view, cohort.reported, cohort.position, upto)
        if key not in self._pages:
            if len(self._pages) >= FRAMES_KEPT:
                self._forget()
            page = self._engine.reader.glance(
                self.live,
                cohort.position,
                records_max=view.records_max,
                bytes_max=view.bytes_max,
                selector=view.selector,
                upto=upto,
                picked=picked,
                gets_superseded=view.gets_superseded,
            )
            self._pages[key] = None if page is None else Records(cohort.reported, page)
        return self._pages[key]

    def _forget(self) -> None:
        """What was encoded is not kept past a change: a record of it may be deleted by then."""
        self._pages.clear()
        self._frames.clear()

    def encode(self, view: View, event: Event, position: int) -> bytes:
        """The bytes of an event; those of records are made once for everybody."""
        if not isinstance(event, Records):
            return view.encode(self.live.log.name, event, position)
        frame = self._frames.get(event)
        if frame is None:
            frame = self._frames[event] = view.encode(self.live.log.name, event, position)
        return frame

    def _read(self, cohort: Cohort, upto: int) -> None:
        """What cannot be had at once is read beside everything else, for the whole cohort."""
        cohort.busy = True
        self._tasks.start(self._read_on(cohort, upto), partial(self._fail, cohort))

    async def _read_on(self, cohort: Cohort, upto: int) -> None:
        page = None
        while page is None:
            page = await self._read_page(cohort, upto)
        cohort.busy = False
        if cohort.followers and not self._is_gone:
            cohort.take(page)
            self._line_up(cohort)
            self._schedule()

    async def _read_page(self, cohort: Cohort, upto: int) -> Page | None:
        """A page; None when nothing can be told of the log just now, once that has passed."""
        view = cohort.view
        try:
            return await self._engine.reader.read(
                self.live,
                cohort.position,
                records_max=view.records_max,
                bytes_max=view.bytes_max,
                selector=view.selector,
                epoch=cohort.epoch,
                upto=upto,
            )
        except Refused as refused:
            if refused.code is not Code.STORAGE_UNAVAILABLE:
                raise
        with suppress(Refused):  # read-only: then all can be told
            await self._engine.journal.wait_synced(self._engine.journal.tail)
        return None

    def _fail(self, cohort: Cohort) -> None:
        if self._is_gone:
            return  # no wonder; the followers hear of it
        for follower in tuple(cohort.followers):
            follower.leave()
            follower.owner.on_log_failed(follower)

    def remind(self, cohort: Cohort) -> None:
        """Tell this cohort how far it is some time, if nothing else does."""
        if cohort.view.heartbeat_s and not cohort.tick:
            self._wheel.schedule(cohort, cohort.view.heartbeat_s)

    # --- strong followers -------------------------------------------------------------------------

    def upto(self, view: View) -> int:
        """The last seq that followers with this view may see."""
        live = self.live
        if not view.strong:
            return live.visible
        journal, config = self._engine.journal, live.log.config
        settled = config.synced and journal.synced >= live.config_position
        if settled or config.durability is Durability.EPHEMERAL:
            self._synced = live.visible
        elif not self._syncing and self._synced < live.visible:
            self._syncing = True
            when_durable(self._engine, partial(self._note_synced, live.visible))
        return self._synced

    def _note_synced(self, visible: int) -> None:
        self._syncing = False
        self._synced = max(self._synced, visible)
        self._wake()
