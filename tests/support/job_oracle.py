"""What must be true of jobs, seen from outside: who has which, who may have it, and what is left.

Told of everything producers and workers do and see, in any order that happened; complains about
what cannot be. Jobs are known by their payloads, which nobody sends twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Being(Enum):
    """Whether a job is there."""

    OFFERED = "offered"
    """Its write was not acknowledged: it may be there or not."""
    PRESENT = "present"
    LEAVING = "leaving"
    """Its ack was sent and not answered: it may be there or not."""
    DONE = "done"
    DEAD = "dead"


@dataclass
class Hold:
    """A lease as its holder knows it."""

    node: str
    fence: int
    deadline_ms: int
    got_ms: int
    void: bool = False
    """It was given back, or the server that gave it is gone."""


@dataclass
class Job:
    group: str | None
    due_ms: int
    being: Being = Being.OFFERED
    number: int = 0
    """Its place in the queue, once it is known."""
    deliveries: int = 0
    acks: int = 0
    """Under way."""
    holds: list[Hold] = field(default_factory=list)


@dataclass
class Oracle:
    """All jobs of one queue."""

    name: str
    durable_leases: bool = False
    deliveries_max: int = 0
    jobs: dict[bytes, Job] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    delivered: int = 0
    restarts: int = 0

    def _complain(self, what: str) -> None:
        self.complaints.append(f"{self.name}: {what}")

    # --- producers -------------------------------------------------------------------------------

    def offer(self, data: bytes, group: str | None = None, due_ms: int = 0) -> None:
        self.jobs[data] = Job(group, due_ms)

    def appended(self, data: bytes, number: int) -> None:
        job = self.jobs[data]
        job.number = number
        if job.being is Being.OFFERED:
            job.being = Being.PRESENT

    # --- workers ---------------------------------------------------------------------------------

    def deliver(self, data: bytes, hold: Hold, *, number: int, deliveries: int) -> None:
        """A worker has the job; news of an older delivery may come late."""
        self.delivered += 1
        job = self.jobs.get(data)
        if job is None:
            self._complain(f"{data!r} was never written")
            return
        what = f"job {number} {data!r}, fence {hold.fence:x}"
        if job.number and job.number != number:
            self._complain(f"{what}: was job {job.number}")
        job.number = number
        if job.due_ms > hold.got_ms:
            self._complain(f"{what}: delivered at {hold.got_ms}, due at {job.due_ms}")
        for other in job.holds:
            if other.fence == hold.fence:
                self._complain(f"{what}: this fence was given to {other.node}")
            older, newer = sorted((other, hold), key=lambda held: held.fence)
            if not older.void and newer.got_ms <= older.deadline_ms:
                until = f"until {older.deadline_ms}"
                self._complain(f"{what}: {older.node} has it {until}, {newer.got_ms} is too early")
        if all(other.fence < hold.fence for other in job.holds):
            self._check_newest(job, deliveries, what)
        job.holds.append(hold)

    def _check_newest(self, job: Job, deliveries: int, what: str) -> None:
        if job.being in (Being.DONE, Being.DEAD):
            self._complain(f"{what}: delivered, and it is {job.being.value}")
        if job.being in (Being.OFFERED, Being.LEAVING) and not job.acks:
            job.being = Being.PRESENT
        self._check_group(job, what)
        self._check_count(job, deliveries, what)

    def _check_group(self, job: Job, what: str) -> None:
        if job.group is None:
            return
        for other in self.jobs.values():
            before = other.group == job.group and 0 < other.number < job.number
            # Somebody may have got it from a server that died before it could say so.
            deliveries = other.deliveries + self.restarts
            spent = self.deliveries_max and deliveries >= self.deliveries_max
            if before and other.being is Being.PRESENT and not spent:
                self._complain(f"{what}: job {other.number} of its group comes first")

    def _check_count(self, job: Job, deliveries: int, what: str) -> None:
        if self.deliveries_max and deliveries > self.deliveries_max:
            self._complain(f"{what}: delivered {deliveries} times")
        if self.durable_leases and deliveries <= job.deliveries:
            self._complain(f"{what}: delivery {deliveries} after {job.deliveries}")
        job.deliveries = max(job.deliveries, deliveries)

    def give_back(self, data: bytes, fence: int) -> None:
        """The holder lets go of it, or is about to."""
        for hold in self.jobs[data].holds:
            if hold.fence == fence:
                hold.void = True

    def acking(self, data: bytes) -> None:
        job = self.jobs[data]
        job.acks += 1
        if job.being is Being.PRESENT:
            job.being = Being.LEAVING

    def acked(self, data: bytes) -> None:
        job = self.jobs[data]
        if job.being not in (Being.PRESENT, Being.LEAVING):
            self._complain(f"job {job.number} {data!r}: acked, and it was {job.being.value}")
        job.being = Being.DONE
        job.acks -= 1

    def skipped(self, data: bytes, fence: int, now_ms: int) -> None:
        """An ack did not count: the holder must have been too late."""
        job = self.jobs[data]
        held = next((hold for hold in job.holds if hold.fence == fence), None)
        if held is not None and not held.void and now_ms <= held.deadline_ms:
            self._complain(f"job {job.number} {data!r}: an ack in time did not count")
        job.acks -= 1
        if job.being is Being.LEAVING and not job.acks:
            job.being = Being.PRESENT

    def extending(self, data: bytes, fence: int, deadline_ms: int) -> None:
        """The holder asks for another deadline, maybe an earlier one: it may count from now on."""
        for hold in self.jobs[data].holds:
            if hold.fence == fence:
                hold.deadline_ms = min(hold.deadline_ms, deadline_ms)

    def extended(self, data: bytes, fence: int, deadline_ms: int) -> None:
        for hold in self.jobs[data].holds:
            if hold.fence == fence:
                hold.deadline_ms = deadline_ms

    # --- restarts --------------------------------------------------------------------------------

    def restart(self) -> None:
        """The server is another one; unless leases are durable, nobody holds anything."""
        self.restarts += 1
        for job in self.jobs.values():
            job.acks = 0
            for hold in job.holds:
                hold.void = hold.void or not self.durable_leases

    def find(self, present: dict[bytes, int], dead: set[bytes]) -> None:
        """This is all there is, here and among the dead letters: it must account for every job."""
        for data, job in self.jobs.items():
            here, there = data in present, data in dead
            if here and there:
                self._complain(f"{data!r} is here and among the dead letters")
            if here and job.being in (Being.DONE, Being.DEAD):
                self._complain(f"{data!r} is here, and it was {job.being.value}")
            if there and job.being is Being.DONE:
                self._complain(f"{data!r} was done, and is among the dead letters")
            if job.being is Being.DEAD and not there:
                self._complain(f"{data!r} left the dead letters")
            if job.being is Being.PRESENT and not here and not there:
                self._complain(f"job {job.number} {data!r} is lost")
        for data in (present.keys() | dead) - self.jobs.keys():
            self._complain(f"{data!r} was never written")
        self.adopt(present, dead)

    def adopt(self, present: dict[bytes, int], dead: set[bytes]) -> None:
        """Take it as it is: more was never promised."""
        for data, job in self.jobs.items():
            job.acks = 0
            if data in present:
                job.being, job.number = Being.PRESENT, present[data]
            else:
                job.being = Being.DEAD if data in dead else Being.DONE

    def left(self) -> list[bytes]:
        return [data for data, job in self.jobs.items() if job.being is Being.PRESENT]
