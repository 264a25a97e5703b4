"""Queues in operation: who gets which job, and what becomes of it.

A claim leases first, in one step of the loop, and reads the jobs afterwards: nobody else can get
them meanwhile. An ack is the delete, and waits for the commit point of the queue's class; leases
are journaled too, and waited for only where they are durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from headrace.core import lease, ranges
from headrace.core.config import Kind
from headrace.core.entry import Claim, Entry
from headrace.core.errors import Code, Refused
from headrace.core.lease import Asking, Counters
from headrace.core.limits import DELAY_MS_MAX
from headrace.core.log import check_owner
from headrace.core.read import Slice
from headrace.engine.flow.priority_scheduler import PriorityScheduler
from headrace.engine.kernel import Kernel
from headrace.engine.logs.appender import Appender
from headrace.engine.logs.deleter import Deleter
from headrace.engine.logs.fetcher import Fetcher
from headrace.engine.logs.lookup import LogLookup
from headrace.engine.logs.reader import Reader
from headrace.engine.open_log import OpenLog
from headrace.engine.queues.dead_letters import DeadLetters, Redriven
from headrace.engine.queues.dispatcher import JobDispatcher, lease_of
from headrace.engine.routers.control import Routers
from headrace.engine.timings import Timings


class Claimed(msgspec.Struct, frozen=True):
    """The jobs somebody got; none when there are none."""

    live: OpenLog
    claim: Claim | None
    jobs: list[Slice]
    counters: Counters


class Settled(msgspec.Struct, frozen=True):
    """Which of the named jobs somebody held, and what was not his."""

    held: list[int]
    skipped: list[int]
    counters: Counters
    deadline_ms: int = 0


class Queues:
    """Every use case of queues."""

    def __init__(
        self,
        kernel: Kernel,
        lookup: LogLookup,
        fetcher: Fetcher,
        reader: Reader,
        appender: Appender,
        deleter: Deleter,
        routers: Routers,
        scheduler: PriorityScheduler,
    ) -> None:
        self._kernel = kernel
        self._lookup = lookup
        self._fetcher = fetcher
        self._deleter = deleter
        self._routers = routers
        self._scheduler = scheduler
        self._letters = DeadLetters(kernel, fetcher, reader, appender)

    def find(self, name: str) -> OpenLog:
        """The queue of this name, with its floors as of now."""
        live = self._lookup.state_of(name)
        if live.log.config.kind is not Kind.QUEUE:
            raise Refused(Code.NOT_A_QUEUE, f'log "{name}" is not a queue', topic=name)
        return live

    def dispatcher(self, live: OpenLog) -> JobDispatcher:
        """Where this queue hands out its jobs."""
        if live.dispatcher is None:
            live.dispatcher = JobDispatcher(
                self._kernel, self._fetcher, self._scheduler, live, self._letters
            )
        return live.dispatcher

    def count(self, live: OpenLog) -> Counters:
        return lease.count(live.log, live.visible, self._kernel.clock.now_ms())

    async def claim(
        self, name: str, node: str, wanted: int, lease_ms: int | None, timings: Timings
    ) -> Claimed:
        """Lease up to so many jobs to a node."""
        await self._routers.catch_up(self._lookup.live(name))
        live = self.find(name)
        await self._admit(live, timings)
        dispatcher = self.dispatcher(live)
        claim = await dispatcher.claim(Asking(node, wanted, lease_of(live, lease_ms)))
        if claim is None:
            # That there is such a queue, and nothing in it, may not be durable yet.
            await self._kernel.settle(live)
        jobs = await dispatcher.read(claim) if claim is not None else []
        return Claimed(live, claim, jobs, self.count(live))

    async def ack(
        self,
        name: str,
        node: str,
        seqs: Sequence[int],
        fences: Sequence[int | None] | None,
        timings: Timings,
    ) -> Settled:
        """Complete jobs: those the node holds are deleted."""
        kernel, live = self._kernel, self.find(name)
        kernel.check_writable()
        log = live.log
        while True:
            held, skipped = lease.hold(log, node, seqs, fences, kernel.clock.now_ms())
            if not held:
                break
            found = ranges.from_seqs(held)
            if held[0] >= live.tail.start:
                size_bytes = sum(live.tail.measure(low, high) for low, high in ranges.pairs(found))
            else:
                size_bytes = await self._deleter.measure(live, found)
                kernel.check_alive(live)
                now_ms = kernel.clock.now_ms()
                if lease.hold(log, node, seqs, fences, now_ms) != (held, skipped):
                    continue  # some were lost while they were measured
            entry = lease.ack(log, found, len(held), size_bytes)
            position = kernel.commit([entry], sync=log.config.synced)
            self._note_ended(live, held)
            await kernel.wait(live, position, live.visible, timings)
            return Settled(held, skipped, self.count(live))
        # What is skipped may be gone by an ack that is not durable yet.
        await kernel.settle(live)
        return Settled(held, skipped, self.count(live))

    async def nack(
        self,
        name: str,
        node: str,
        seqs: Sequence[int],
        fences: Sequence[int | None] | None,
        delay_ms: int,
    ) -> Settled:
        """Give jobs back, to be claimed again at once or after a while."""
        live, now_ms = self.find(name), self._kernel.clock.now_ms()
        self._kernel.check_writable()
        held, skipped = lease.hold(live.log, node, seqs, fences, now_ms)
        if held:
            entry = lease.nack(live.log, held, min(delay_ms, DELAY_MS_MAX), now_ms)
            position = self._commit(live, entry)
            self._note_ended(live, held)
        else:
            position = self._kernel.journal.tail  # the lease may be over by what is not durable yet
        await self._keep(live, position)
        return Settled(held, skipped, self.count(live))

    async def extend(
        self,
        name: str,
        node: str,
        seqs: Sequence[int],
        fences: Sequence[int | None] | None,
        lease_ms: int,
    ) -> Settled:
        """Push out the deadlines of jobs."""
        live, now_ms = self.find(name), self._kernel.clock.now_ms()
        self._kernel.check_writable()
        held, skipped = lease.hold(live.log, node, seqs, fences, now_ms)
        if not held:
            await self._keep(live, self._kernel.journal.tail)
            return Settled(held, skipped, self.count(live))
        entry = lease.extend(live.log, held, lease_of(live, lease_ms), now_ms)
        await self._keep(live, self._commit(live, entry))
        return Settled(held, skipped, self.count(live), entry.deadline_ms)

    async def redrive(
        self,
        name: str,
        count_max: int,
        to: str | None,
        authorise: Callable[[str], None],
        *,
        owner: str,
    ) -> Redriven:
        """Send dead letters back to work."""
        live = self._lookup.state_of(name)
        check_owner(live.log, owner)
        if to is not None:
            self.find(to)
        self._kernel.check_writable()
        return await self._letters.redrive(live, count_max, to, authorise)

    # --- steps -----------------------------------------------------------------------------------

    async def _admit(self, live: OpenLog, timings: Timings) -> None:
        """Wait to be admitted when the journal cannot keep up."""
        self._kernel.check_writable()
        if not self._kernel.admission.open:
            timings.throttle_ms = await self._kernel.wait_admitted(live.log.name, None)

    def _commit(self, live: OpenLog, entry: Entry) -> int:
        return self._kernel.commit([entry], sync=live.log.config.leases_durable)

    async def _keep(self, live: OpenLog, position: int) -> None:
        if live.log.config.leases_durable:
            await self._kernel.journal.wait_synced(position)

    def _note_ended(self, live: OpenLog, seqs: list[int]) -> None:
        if live.dispatcher is not None:
            live.dispatcher.note_ended(seqs)
