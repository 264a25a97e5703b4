"""The dispatcher of one queue: hands out its jobs.

Whoever asks is served at once; or, if the queue has a window, together with all who come within it.
Workers who stay are fed whenever there is something for them: new jobs, jobs that came back, room
that an ack made. One timer for each queue with workers looks after what time alone brings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

import msgspec

from headrace.core import lease
from headrace.core.entry import Claim, Release
from headrace.core.errors import Code, Refused
from headrace.core.lease import Asking
from headrace.core.limits import (
    DEAD_LETTERS_MAX,
    DEAD_LETTERS_RETRY_S,
    DISPATCH_TIMER_S_MAX,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
)
from headrace.core.read import Slice
from headrace.engine.flow.priority_scheduler import PriorityScheduler
from headrace.engine.kernel import Kernel
from headrace.engine.logs.fetcher import Fetcher
from headrace.engine.open_log import OpenLog
from headrace.engine.queues.dead_letters import DeadLetters
from headrace.engine.timings import Timings
from headrace.observe import log_line


class Worker(Protocol):
    """Somebody connected who takes jobs as they come."""

    node: str
    depth: int
    """How many jobs he works on at a time."""
    lease_ms: int | None
    held: dict[int, int]
    """The jobs he has, with their fences; kept by the dispatcher."""

    @property
    def blocked(self) -> bool:
        """Whether he can take nothing now; who no longer is must `schedule`."""

    def give(self, live: OpenLog, claim: Claim, jobs: list[Slice]) -> None:
        """Here is work."""

    def on_throttled(self) -> None:
        """The server is hard pressed, and this queue can wait."""

    def close(self, refused: Refused) -> None:
        """There will be no more."""


class _Waiting(msgspec.Struct, eq=False):
    """Somebody who asked during a window, and what he will get."""

    asking: Asking
    claim: asyncio.Future[Claim | None]


class JobDispatcher:
    """Hands out the jobs of one queue."""

    def __init__(
        self,
        kernel: Kernel,
        fetcher: Fetcher,
        scheduler: PriorityScheduler,
        live: OpenLog,
        letters: DeadLetters,
    ) -> None:
        self._kernel = kernel
        self._fetcher = fetcher
        self._scheduler = scheduler
        self._live = live
        self._letters = letters
        self._turn = 0
        self._moving = asyncio.Lock()
        """Held while jobs move to the dead letters."""
        self._stuck = False
        """Whether they could not, the last time."""
        self._waiting: list[_Waiting] = []
        self._window: asyncio.TimerHandle | None = None
        self._last_claimants: frozenset[str] | None = None
        """Who came to the last window."""
        self._workers: dict[Worker, None] = {}
        self._holders: dict[int, Worker] = {}
        self._ended = 0
        """Ends of leases we know of; when the queue counts more, workers may have lost some."""
        self._scheduled: asyncio.Handle | None = None
        self._throttled = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # --- those who ask ---------------------------------------------------------------------------

    async def claim(self, asking: Asking) -> Claim | None:
        """What somebody gets; it is as durable as the queue wants its leases."""
        if self._live.log.config.claim_jitter_ms:
            return await self._wait_in_window(asking)
        claims, spent = self._decide([asking])
        if spent:
            try:
                await self._make_way([asking])
            finally:
                self.schedule()
            claims, _ = self._decide([asking])
        await self._settle(claims, self._commit(claims))
        return claims[0]

    async def read(self, claim: Claim) -> list[Slice]:
        """The jobs of a claim. It may lose some of them while they are read."""
        jobs = self._fetcher.fetch_now(self._live, claim.seqs)
        return await self._fetcher.fetch(self._live, claim.seqs) if jobs is None else jobs

    def _is_held(self, seq: int, fence: int) -> bool:
        held = self._live.log.jobs.leases.get(seq)
        return held is not None and held.fence == fence

    def _decide(self, askers: list[Asking]) -> tuple[list[Claim | None], list[int]]:
        """(What each would get, what stands in their way because it failed too often)."""
        kernel, live = self._kernel, self._live
        kernel.check_alive(live)
        kernel.expire_now(live)
        now_ms = kernel.clock.now_ms()
        return lease.claim(live.log, askers, live.visible, now_ms, turn=self._turn)

    def _commit(self, claims: list[Claim | None]) -> int:
        """Hand out what was decided in the same step of the loop; returns its position, if any."""
        self._turn += 1
        granted = [claim for claim in claims if claim is not None]
        if not granted:
            return 0
        return self._kernel.commit(granted, sync=self._live.log.config.leases_durable)

    async def _make_way(self, askers: list[Asking]) -> None:
        """Move away what failed too often, until these get what they want or all there is.

        What could not be moved stays, and is passed over.
        """
        wanted = sum(asker.wanted for asker in askers)
        async with self._moving:
            claims, spent = self._decide(askers)
            while spent:
                moved = await self._letters.move_spent(self._live, spent[:DEAD_LETTERS_MAX])
                self._stuck = not moved
                claims, spent = self._decide(askers)
                if not moved or sum(len(claim.seqs) for claim in claims if claim) == wanted:
                    return

    async def _settle(self, claims: list[Claim | None], position: int) -> None:
        """What must be done before anybody is told of a pass."""
        live = self._live
        if self._steps_up(claims):
            await self._kernel.wait(live, live.shrunk_position, live.visible, Timings())
        if position and live.log.config.leases_durable:
            await self._kernel.journal.wait_synced(position)

    def _steps_up(self, claims: list[Claim | None]) -> bool:
        """Whether a job may have been held back by others of its group until they were done: a
        crash must not bring those back behind it.
        """
        grouped = self._live.log.jobs.grouped
        granted = (claim.seqs for claim in claims if claim is not None) if grouped else ()
        return any(seq in grouped for seqs in granted for seq in seqs)

    # --- the window ------------------------------------------------------------------------------

    async def _wait_in_window(self, asking: Asking) -> Claim | None:
        waiting = _Waiting(asking, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._join_window()
        return await waiting.claim

    def _join_window(self) -> None:
        """Open the window, if it is not open; close it if all who came last time are here again and
        nobody will go short.
        """
        if self._window is None:
            wait_s = self._live.log.config.claim_jitter_ms / 1000
            self._window = asyncio.get_running_loop().call_later(wait_s, self._close_window)
        if self._last_claimants is None:
            return
        askers = [waiting.asking for waiting in self._waiting]
        askers += [self._asking(worker) for worker in self._workers]
        if self._last_claimants <= {asker.node for asker in askers}:
            wanted = sum(asker.wanted for asker in askers)
            if wanted <= self._count_ready():
                self._window.cancel()
                self._close_window()

    def _close_window(self) -> None:
        self._window = None
        waiting, self._waiting = self._waiting, []
        nodes = {each.asking.node for each in waiting} | {worker.node for worker in self._workers}
        self._last_claimants = frozenset(nodes)
        self._serve([each for each in waiting if not each.claim.done()])

    def _count_ready(self) -> int:
        return lease.count(self._live.log, self._live.visible, self._kernel.clock.now_ms()).ready

    # --- those who stay --------------------------------------------------------------------------

    def join(self, worker: Worker) -> None:
        """Feed this worker from now on."""
        if not self._workers:
            self._live.listen(self.schedule)
        self._workers[worker] = None
        self.schedule()

    def leave(self, worker: Worker) -> None:
        """The worker is gone: what he has goes back at once."""
        del self._workers[worker]
        if not self._workers:
            self._live.unlisten(self.schedule)
            self._scheduler.cancel(self._feed)
            self._cancel_timer()
        for seq in worker.held:
            self._holders.pop(seq, None)
        log = self._live.log
        left = sorted(seq for seq, fence in worker.held.items() if self._is_held(seq, fence))
        if left and log.id in self._kernel.open_logs:
            self._ended += len(left)
            try:
                self._kernel.commit([Release(log.id, left, 0)], sync=log.config.leases_durable)
            except Refused:
                pass  # read-only: a restart gives them back
            self.schedule()

    def note_ended(self, seqs: list[int]) -> None:
        """Holders are done with these jobs."""
        self._ended += len(seqs)
        for seq in seqs if self._holders else ():
            worker = self._holders.pop(seq, None)
            if worker is not None:
                worker.held.pop(seq, None)
        self.schedule()

    def schedule(self) -> None:
        """Something may have changed for the workers: look soon, once for all that happens now."""
        if self._workers and self._scheduled is None:
            self._scheduled = asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._scheduled = None
        throttled = not self._scheduler.serve(self._live, self._feed)
        if throttled and not self._throttled:
            for worker in list(self._workers):
                worker.on_throttled()
        self._throttled = throttled

    def _feed(self) -> None:
        """Give the workers what there is for them."""
        kernel, log = self._kernel, self._live.log
        if not self._workers or kernel.draining:
            return
        if log.id not in kernel.open_logs:
            self._start(self._close())
            return
        log.jobs.sweep(kernel.clock.now_ms())
        if log.jobs.ended != self._ended:
            self._look_after_losses()
        if any(self._asking(worker).wanted for worker in self._workers):
            if not log.config.claim_jitter_ms:
                self._serve([])
            elif self._window is None and self._count_ready():
                self._join_window()
        self._set_timer()

    def _asking(self, worker: Worker) -> Asking:
        room = 0 if worker.blocked else worker.depth - len(worker.held)
        return Asking(worker.node, max(0, room), lease_of(self._live, worker.lease_ms))

    def _look_after_losses(self) -> None:
        """Some leases ended by themselves: they give room to whoever had them."""
        self._ended = self._live.log.jobs.ended
        for worker in self._workers:
            lost = [seq for seq, fence in worker.held.items() if not self._is_held(seq, fence)]
            for seq in lost:
                del worker.held[seq]
                if self._holders.get(seq) is worker:
                    del self._holders[seq]

    def _serve(self, waiting: list[_Waiting], *, cleared: bool = False) -> None:
        """One pass for all who wait in the window and all workers who can take something.

        `cleared`: whatever stands in the way could not be moved.
        """
        workers = [worker for worker in self._workers if self._asking(worker).wanted]
        askers = [each.asking for each in waiting] + [self._asking(worker) for worker in workers]
        if not askers:
            return
        try:
            claims, spent = self._decide(askers)
            self._stuck = self._stuck and bool(spent)
            if spent and not cleared:
                # Whoever is moving some already feeds the workers afterwards.
                if waiting or not self._moving.locked():
                    self._start(self._serve_later(waiting, askers), waiting)
                return
            position = self._commit(claims)
        except Refused as refused:
            self._refuse(waiting, refused)
            return
        grants = [
            (worker, claim)
            for worker, claim in zip(workers, claims[len(waiting) :], strict=True)
            if claim is not None
        ]
        for worker, claim in grants:
            for seq, fence in _fenced(claim):
                worker.held[seq] = fence
                self._holders[seq] = worker
        if position and (self._live.log.config.leases_durable or self._steps_up(claims)):
            self._start(self._deal_out_later(waiting, claims, grants, position), waiting)
        else:
            self._deal_out(waiting, claims, grants)

    async def _serve_later(self, waiting: list[_Waiting], askers: list[Asking]) -> None:
        try:
            await self._make_way(askers)
        except Refused as refused:
            self._refuse(waiting, refused)
            return
        self._serve([each for each in waiting if not each.claim.done()], cleared=True)
        self._set_timer()

    async def _deal_out_later(
        self,
        waiting: list[_Waiting],
        claims: list[Claim | None],
        grants: list[tuple[Worker, Claim]],
        position: int,
    ) -> None:
        try:
            await self._settle(claims, position)
        except Refused as refused:
            self._refuse(waiting, refused)
            return
        self._deal_out(waiting, claims, grants)

    def _deal_out(
        self,
        waiting: list[_Waiting],
        claims: list[Claim | None],
        grants: list[tuple[Worker, Claim]],
    ) -> None:
        for each, claim in zip(waiting, claims, strict=False):
            if not each.claim.done():
                each.claim.set_result(claim)
        for worker, claim in grants:
            jobs = self._fetcher.fetch_now(self._live, claim.seqs)
            if jobs is None:
                self._start(self._give_later(worker, claim))
            elif worker in self._workers:
                worker.give(self._live, claim, jobs)

    async def _give_later(self, worker: Worker, claim: Claim) -> None:
        jobs = await self.read(claim)
        if worker in self._workers:
            worker.give(self._live, claim, jobs)

    def _refuse(self, waiting: list[_Waiting], refused: Refused) -> None:
        for each in waiting:
            if not each.claim.done():
                each.claim.set_exception(refused)
        self._close_workers(refused)

    async def _close(self) -> None:
        """The queue is gone: workers hear of it once that is certain."""
        kernel = self._kernel
        try:
            await kernel.journal.wait_synced(kernel.journal.tail)
        except Refused:
            pass  # read-only: it is gone here all the same
        self._close_workers(_gone(kernel, self._live.log.name))

    def _close_workers(self, refused: Refused) -> None:
        for worker in list(self._workers):
            worker.close(refused)

    def _start(self, work: Coroutine[Any, Any, None], waiting: Sequence[_Waiting] = ()) -> None:
        """Do what takes a while; whoever waits for it hears of it when it fails."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)

        def finish(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            problem = None if task.cancelled() else task.exception()
            if problem is not None:
                name = self._live.log.name
                log_line("error", "jobs could not be handed out", trace=problem, queue=name)
            for each in waiting:
                if not each.claim.done() and problem is not None:
                    each.claim.set_exception(problem)

        task.add_done_callback(finish)

    # --- time ------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """Look again when time will have changed something."""
        self._cancel_timer()
        change_ms = self._live.log.jobs.next_change_ms()
        wait_s = DEAD_LETTERS_RETRY_S if self._stuck else DISPATCH_TIMER_S_MAX
        if (change_ms is not None or self._stuck) and self._workers:
            if change_ms is not None:
                left_s = (change_ms - self._kernel.clock.now_ms()) / 1000
                wait_s = min(max(0.0, left_s), wait_s)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.schedule()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _fenced(claim: Claim) -> zip[tuple[int, int]]:
    """The jobs of a claim with their fences."""
    return zip(claim.seqs, range(claim.fence, claim.fence + len(claim.seqs)), strict=True)


def lease_of(live: OpenLog, lease_ms: int | None) -> int:
    """How long a lease lasts: as asked for, or as the queue says."""
    if lease_ms is None:
        return live.log.config.lease_ms
    return max(LEASE_MS_MIN, min(LEASE_MS_MAX, lease_ms))


def _gone(kernel: Kernel, name: str) -> Refused:
    known = kernel.state.by_name.get(name)
    if known is not None and known.queue is None:
        return Refused(Code.NOT_A_QUEUE, f'log "{name}" is no longer a queue', topic=name)
    return Refused(Code.LOG_NOT_FOUND, f'log "{name}" was deleted', topic=name)
