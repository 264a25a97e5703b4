"""Watches and replays: streams of notifications, of the past, of what comes, or of both.

The past ends at the newest notification there was when the stream began; what comes begins behind
it. So nothing is delivered twice and nothing is left out, whoever writes meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from math import inf

import msgspec

from headrace.core.read import Page
from headrace.delivery.cohort import Follower
from headrace.delivery.endings import (
    Ending,
    Expired,
    Over,
    ShuttingDown,
    SlowConsumer,
    StreamFailed,
    describe,
)
from headrace.delivery.hub import Hub
from headrace.delivery.sse import LAST_CHUNK, EventStream
from headrace.engine.open_log import OpenLog
from headrace.surfaces.notifications.events import (
    REPLAY,
    CloseReason,
    ControlFrames,
    EventForm,
    NotificationView,
)
from headrace.surfaces.notifications.filter_memory import TakenMemory
from headrace.surfaces.notifications.identifiers import NotificationFilter
from headrace.surfaces.notifications.metrics import StreamMeter
from headrace.surfaces.notifications.names import format_id, log_of
from headrace.surfaces.notifications.replaying import read_pages
from headrace.surfaces.notifications.selector import NotificationSelector


class ReplayPlan(msgspec.Struct, frozen=True):
    """What a stream delivers of the past."""

    after: int
    upto: int
    """The newest notification there was when the stream began, or an end that was asked for."""
    count_max: int
    batch_size: int
    delay_s: float
    """Between batches."""
    started: dict[str, object]
    """What is told of it in the first frame."""


class StreamPlan(msgspec.Struct, frozen=True):
    """What a stream delivers, and how."""

    form: EventForm
    wanted: NotificationFilter
    live: OpenLog | None
    """None: there is no notification of this type yet."""
    after: int
    """Behind which what comes begins."""
    history: ReplayPlan | None
    goes_on: bool
    """Whether it goes on with what comes: a watch does, a replay does not."""
    heartbeat_s: float
    duration_s: int


class NotificationStream(EventStream):
    """One watch or replay."""

    __slots__ = ("_control", "_drained", "_log_name", "_meter", "_plan", "_taken")

    def __init__(
        self,
        hub: Hub,
        plan: StreamPlan,
        control: ControlFrames,
        meter: StreamMeter,
        taken: TakenMemory,
    ) -> None:
        heartbeat_s, duration_s = (
            (plan.heartbeat_s, plan.duration_s) if plan.goes_on else (inf, inf)
        )
        super().__init__(hub, heartbeat_s, duration_s)
        self._plan = plan
        self._control = control
        self._meter = meter
        self._taken = taken
        self._log_name = log_of(plan.form.event_type)
        self._drained = asyncio.Event()
        self._drained.set()

    def preamble(self) -> bytes:
        """The frame that says what this stream is: it comes before any other."""
        now_ms, plan = self._clock.now_ms(), self._plan
        if plan.history is None:
            # An EventSource that comes again before the first notification misses none.
            id = format_id(plan.form.event_type, plan.after) if plan.form.ids else None
            return self.wrap(self._control.established(now_ms, plan.duration_s, id))
        return self.wrap(self._control.replay_started(now_ms, **plan.history.started))

    def heartbeat(self) -> bytes:
        return self.wrap(self._control.heartbeat(self._clock.now_ms()))

    def closing_frame(self, ending: Ending) -> bytes:
        """What went wrong, if anything did, and why the stream ends: in words that clients know."""
        last = LAST_CHUNK if self.chunked else b""
        if isinstance(ending, SlowConsumer):
            return last  # an error would end the client; one that is cut off comes again
        reason: CloseReason = "end_of_stream"
        frames = b""
        match ending:
            case ShuttingDown():
                reason = "server_shutdown"
            case Expired():
                reason = "max_duration_reached"
            case Over():
                pass
            case _:
                said = describe(ending)
                frames = self._control.failed(said[1] if said else "")
                self._meter.failed()
        frames += self._control.closing(self._clock.now_ms(), reason)
        return self.wrap(frames) + last

    # --- the connection ---------------------------------------------------------------------------

    def on_open(self) -> None:
        self._meter.opened()
        if self._plan.history is None:
            self._follow()
        else:
            self._hub.tasks.start(self._replay(self._plan.history), self._fail)

    def on_blocked(self) -> None:
        self._drained.clear()
        super().on_blocked()

    def on_writable(self) -> None:
        self._drained.set()
        super().on_writable()

    def on_end(self) -> None:
        self._hub.unwatch_names(self._log_name, self._note_new)
        self._drained.set()
        self._meter.closed()
        self._taken.free()
        super().on_end()

    # --- the past ---------------------------------------------------------------------------------

    async def _replay(self, history: ReplayPlan) -> None:
        live, is_over = self._plan.live, False
        if live is not None:
            pages = read_pages(
                self._hub.engine,
                live,
                self._plan.wanted,
                history.after,
                history.upto,
                self._hub.turn,
                records_max=history.batch_size,
            )
            async with aclosing(pages):
                is_over = await self._deliver_pages(pages, history)
        if self.closed:
            return
        if is_over:
            self.send(self._control.limit_reached(self._clock.now_ms(), history.count_max))
        else:
            self.send(self._control.replay_completed(self._clock.now_ms()))
        if is_over or not self._plan.goes_on:
            await self._finish()
        else:
            self._follow()

    async def _deliver_pages(self, pages: AsyncIterator[Page], history: ReplayPlan) -> bool:
        """Tell of the past; whether there is more of it than is told."""
        left = history.count_max
        async for page in pages:
            await self._drained.wait()
            if self.closed:
                return False
            is_over = page.count > left
            if is_over:
                page.shorten(left)
            if page.slices:
                left -= page.count
                async with self._hub.turn:
                    if self.closed:
                        return False
                    self._deliver(self.wrap(self._plan.form.encode(REPLAY, page)))
                    await asyncio.sleep(0)
            if is_over:
                return True
            # Others get their turn, even if all of it is in memory.
            await asyncio.sleep(history.delay_s if page.slices else 0)
            if self.closed:
                return False
        return False

    async def _finish(self) -> None:
        """All is said, once the peer has taken it; who could not have stayed hears of that."""
        await self._drained.wait()
        if self._hub.engine.draining:
            self.end(ShuttingDown())
        elif self._wheel.time() >= self._deadline:
            self.end(Expired())
        else:
            self.end(Over())

    def _fail(self) -> None:
        self.end(StreamFailed(500, "the notifications cannot be read at the moment"))

    # --- what comes -------------------------------------------------------------------------------

    def _follow(self) -> None:
        plan = self._plan
        if plan.live is None:
            self._hub.watch_names(self._log_name, self._note_new)
            # The log may have come while the past was told, which was none.
            engine = self._hub.engine
            if (log := engine.state.by_name.get(self._log_name)) is not None:
                self._note_new(engine.open_logs[log.id])
        else:
            self._follow_log(plan.live, plan.after)

    def _note_new(self, live: OpenLog) -> None:
        """The first notification of this type is about to come."""
        if live.log.name == self._log_name and not len(self.followers):
            self._hub.unwatch_names(self._log_name, self._note_new)
            self._follow_log(live, 0)

    def _follow_log(self, live: OpenLog, after: int) -> None:
        plan = self._plan
        view = NotificationView(
            form=plan.form, selector=NotificationSelector(plan.wanted), chunked=self.chunked
        )
        self.followers.add(Follower(self, live, view, after, self._deliver, owes_caught_up=False))

    def _deliver(self, frames: bytes) -> None:
        self._meter.sent(frames.count(b"\n\n"))
        self.write(frames)
