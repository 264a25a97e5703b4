"""Forwarding: routers come on beside requests, and ahead of readers who must not miss anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from time import perf_counter

from headrace.core.errors import Code, Corrupt, Refused
from headrace.core.limits import (
    CATCH_UP_S,
    FINISH_S,
    FORWARD_RECORDS_MAX,
    FORWARD_RETRY_S,
    FORWARD_RETRY_S_MAX,
    FORWARD_SLICE_MS,
)
from headrace.core.log import Log
from headrace.core.record import Block, cut
from headrace.engine.flow.priority_scheduler import PriorityScheduler
from headrace.engine.kernel import Kernel
from headrace.engine.logs.fetcher import Fetcher
from headrace.engine.open_log import OpenLog
from headrace.engine.routers.steps import Pass, Router, Shown, Step
from headrace.observe import log_line
from headrace.storage.segments import UNREADABLE


class _OutboundRoutes:
    """All routers of one source."""

    __slots__ = ("due", "listener", "routers", "scheduled", "source", "work")

    def __init__(self, source: OpenLog) -> None:
        self.source = source
        self.routers: dict[str, Router] = {}
        self.due: dict[str, Router] = {}
        """Those that may have something to do; first come, first served."""
        self.scheduled = False
        self.listener: Callable[[], None]
        self.work: Callable[[], None]


class Forwarder:
    """Brings routers on."""

    def __init__(self, kernel: Kernel, fetcher: Fetcher, scheduler: PriorityScheduler) -> None:
        self.routers: dict[str, Router] = {}
        self._kernel = kernel
        self._fetcher = fetcher
        self._scheduler = scheduler
        self._outbound: dict[int, _OutboundRoutes] = {}
        self._shown: Shown = {}
        self._cold: dict[str, Router] = {}
        self._cold_due = asyncio.Event()
        self._closed = False

    def attach(self, router: Router) -> None:
        """A router begins, or has changed: it may have something to do."""
        self.routers[router.name] = router
        source = router.source
        outbound = self._outbound.get(source.log.id)
        if outbound is None:
            outbound = self._outbound[source.log.id] = _OutboundRoutes(source)
            outbound.work = partial(self._serve, outbound)
            outbound.listener = partial(self._on_change, outbound)
            source.listen(outbound.listener)
        outbound.routers[router.name] = router
        self._schedule(outbound, (router,))

    def detach(self, router: Router) -> None:
        """A router ends."""
        router.ended = True
        self._unblock(router)
        del self.routers[router.name]
        self._cold.pop(router.name, None)
        outbound = self._outbound[router.source.log.id]
        outbound.due.pop(router.name, None)
        del outbound.routers[router.name]
        if not outbound.routers:
            outbound.source.unlisten(outbound.listener)
            self._scheduler.cancel(outbound.work)
            del self._outbound[outbound.source.log.id]

    def forget(self, dest: OpenLog) -> None:
        """A log is gone."""
        self._shown.pop(dest.log.id, None)

    # --- beside requests -------------------------------------------------------------------------

    def _on_change(self, outbound: _OutboundRoutes) -> None:
        """The source has something new, or less."""
        self._schedule(outbound, outbound.routers.values())

    def _schedule(self, outbound: _OutboundRoutes, routers: Iterable[Router]) -> None:
        if self._closed:
            return
        for router in routers:
            outbound.due[router.name] = router
        if not outbound.scheduled:
            outbound.scheduled = True
            # Twice round the loop: whoever wrote to the source has the answer by then.
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self._take_turn, outbound)

    def _take_turn(self, outbound: _OutboundRoutes) -> None:
        if outbound.routers:
            self._scheduler.serve(outbound.source, outbound.work, background=True)

    def _serve(self, outbound: _OutboundRoutes) -> None:
        """Bring routers on for a slice of time; then others have their turn."""
        outbound.scheduled = False
        if self._closed or self._kernel.journal.failure is not None:
            return
        if not self._kernel.admission.open:
            outbound.scheduled = True
            later = asyncio.get_running_loop().call_later
            later(FORWARD_RETRY_S, self._take_turn, outbound)
            return
        started = perf_counter()
        work = Pass(self._kernel, self._shown)
        while outbound.due and (perf_counter() - started) * 1e3 < FORWARD_SLICE_MS:
            name, router = next(iter(outbound.due.items()))
            del outbound.due[name]
            self._note(router, work.step(router))
        work.commit()
        if outbound.due:
            self._schedule(outbound, ())

    def _note(self, router: Router, step: Step) -> None:
        """What becomes of a router after a step."""
        match step:
            case Step.MORE:
                self._schedule(self._outbound[router.source.log.id], (router,))
            case Step.COLD:
                self._cold[router.name] = router
                self._cold_due.set()
            case Step.BLOCKED:
                self._block(router)
                return
        self._unblock(router)

    def _block(self, router: Router) -> None:
        """Try again when the destination changes, and after a while in any case."""
        if router.retry is not None:
            return
        delay_s = min(FORWARD_RETRY_S * 2**router.failures, FORWARD_RETRY_S_MAX)
        router.failures += 1
        again = partial(self._try_again, router)
        router.retry = asyncio.get_running_loop().call_later(delay_s, again)
        if router.on_room is None:
            router.on_room = again
            router.dest.listen(again)

    def _try_again(self, router: Router) -> None:
        if router.ended:
            return
        if router.retry is not None:
            router.retry.cancel()
            router.retry = None
        self._schedule(self._outbound[router.source.log.id], (router,))

    def _unblock(self, router: Router) -> None:
        router.failures = 0
        if router.retry is not None:
            router.retry.cancel()
            router.retry = None
        if router.on_room is not None:
            router.dest.unlisten(router.on_room)
            router.on_room = None

    async def run(self) -> None:
        """Bring on those routers that have to read segments: one after the other, bit by bit."""
        while True:
            await self._cold_due.wait()
            self._cold_due.clear()
            while self._cold and not self._closed and self._kernel.journal.failure is None:
                name, router = next(iter(self._cold.items()))
                del self._cold[name]
                step = await self._step_cold(router)
                if not router.ended:
                    self._note(router, step)

    async def _step_cold(self, router: Router) -> Step:
        """A step over records that are not in memory."""
        source, cursor = router.source, router.inbound.cursor
        first = max(cursor + 1, source.log.earliest)
        try:
            block = await self._fetcher.read_sealed(source, first, FORWARD_RECORDS_MAX)
        except (*UNREADABLE, Corrupt) as error:
            log_line("error", "cannot read what to forward", router=router.name, problem=str(error))
            return Step.BLOCKED
        if router.ended or self._closed:
            return Step.DONE
        if router.inbound.cursor != cursor:
            return Step.MORE  # somebody else came first, and may not come again
        blocks: list[Block] = []
        if block is not None and (below := block.stop_index(source.tail.start - 1)):
            blocks.append(cut(block, 0, below))
        work = Pass(self._kernel, self._shown)
        step = work.step(router, blocks)
        work.commit()
        stuck = step is Step.COLD and router.inbound.cursor == cursor
        return Step.BLOCKED if stuck else step

    # --- for readers -----------------------------------------------------------------------------

    async def catch_up(self, *lives: OpenLog) -> None:
        """Bring what was committed in the sources of these logs before this call, and wait until
        readers see it; not for long.
        """
        if not any(self._is_behind(live, set()) for live in lives):
            return
        try:
            async with asyncio.timeout(CATCH_UP_S):
                for live in lives:
                    await self._catch_up(live, set())
        except (TimeoutError, Refused):
            pass  # too much at once, or read-only: what is there is all there is to read

    async def finish(self, *routers: Router) -> None:
        """Before routers end or change: bring what was committed until then.

        When this returns, nothing is left that can be brought, and nobody came in between. What a
        full destination does not take stays behind, and what cannot be read.
        """
        kernel, loop = self._kernel, asyncio.get_running_loop()
        until_s = loop.time() + FINISH_S
        unreadable: set[str] = set()
        while True:
            if not kernel.admission.open and any(map(_is_left, routers)):
                await kernel.wait_admitted(routers[0].dest.log.name, None)
            before = _cursors(routers)
            await self.catch_up(*dict.fromkeys(router.dest for router in routers))
            cold: list[Router] = []
            for router in filter(_is_left, routers):
                work = Pass(kernel, self._shown)
                if work.step(router) is Step.COLD and router.name not in unreadable:
                    cold.append(router)
                work.commit()
            if not any(map(_is_left, routers)):
                return
            for router in cold:  # catching up has not always the time to read them
                stuck = not router.ended and await self._step_cold(router) is Step.BLOCKED
                if stuck and kernel.admission.open:
                    unreadable.add(router.name)
            if _cursors(routers) == before:
                if kernel.admission.open and not cold:
                    return
                if not kernel.admission.open:
                    # Others wait to be admitted as well, and may wait for us to be gone from there.
                    await asyncio.sleep(FORWARD_RETRY_S)
            if loop.time() >= until_s:
                raise _too_much()

    async def finish_from(self, source: OpenLog) -> None:
        """The same for all routers that lead away from this log."""
        if outbound := self._outbound.get(source.log.id):
            await self.finish(*outbound.routers.values())

    async def stop(self) -> None:
        """Bring what can be brought, then no more."""
        await self.catch_up(*dict.fromkeys(router.dest for router in self.routers.values()))
        self._closed = True

    def _has_inbound_routes(self, log: Log) -> bool:
        """A log that is gone still says what led there; nothing does any more."""
        return bool(log.inbound_routes) and log.id in self._kernel.open_logs

    def _is_behind(self, live: OpenLog, seen: set[int]) -> bool:
        """Whether something is on its way to this log, from however far."""
        log = live.log
        if not self._has_inbound_routes(log) or log.id in seen:
            return False
        seen.add(log.id)
        shown = self._shown.get(log.id)
        if shown is not None and not shown.done():
            return True
        routers = [self.routers[name] for name in log.inbound_routes or ()]
        source = routers[0].source  # they all have the same
        if any(router.inbound.cursor < source.visible for router in routers):
            return True
        return self._is_behind(source, seen)

    async def _catch_up(self, live: OpenLog, seen: set[int]) -> None:
        """Sources first: what they are about to get is on its way here as well."""
        log = live.log
        if not self._has_inbound_routes(log) or log.id in seen:
            return
        seen.add(log.id)
        routers = [self.routers[name] for name in log.inbound_routes or ()]
        await self._catch_up(routers[0].source, seen)
        for router in routers:
            await self._bring(router)
        if shown := self._shown.get(log.id):
            await asyncio.shield(shown)

    async def _bring(self, router: Router) -> None:
        visible = router.source.visible
        started = perf_counter()
        while not router.ended and not self._closed and router.inbound.cursor < visible:
            work = Pass(self._kernel, self._shown)
            step = work.step(router)
            work.commit()
            if step is Step.COLD:
                step = await self._step_cold(router)
            if step is Step.BLOCKED:
                return
            if (perf_counter() - started) * 1e3 > FORWARD_SLICE_MS:
                await asyncio.sleep(0)
                started = perf_counter()


def _is_left(router: Router) -> bool:
    """Whether there is something it has not brought yet."""
    return not router.ended and router.inbound.cursor < router.source.visible


def _cursors(routers: Iterable[Router]) -> list[int]:
    return [router.inbound.cursor for router in routers if not router.ended]


def _too_much() -> Refused:
    return Refused(
        Code.THROTTLED, "routers have still much to bring from here; try again", retry_after_ms=1000
    )
