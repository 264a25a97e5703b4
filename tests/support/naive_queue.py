"""A queue, the naive way: each job knows its story, and each question looks at all of them."""

from __future__ import annotations

from dataclasses import dataclass, field

FRESH, RETURNED, DELAYED, PARKED, LEASED = "fresh", "returned", "delayed", "parked", "leased"


@dataclass
class Held:
    """A lease."""

    node: str
    fence: int
    deadline_ms: int


@dataclass
class Job:
    seq: int
    group: str | None
    ready_at_ms: int
    touched: bool
    """Whether it was ever anything but fresh."""
    lease: Held | None = None
    deliveries: int = 0


@dataclass
class NaiveQueue:
    head: int = 0
    jobs: dict[int, Job] = field(default_factory=dict)
    cursor: int = 0
    dead_lettered: int = 0

    def append(self, groups: list[str | None], due_ms: list[int | None], now_ms: int) -> None:
        for group, due in zip(groups, due_ms, strict=True):
            self.head += 1
            ready_at_ms = due if due is not None and due > now_ms else 0
            behind = any(job.group == group for job in self.jobs.values()) if group else False
            touched = behind or bool(ready_at_ms)
            self.jobs[self.head] = Job(self.head, group, ready_at_ms, touched)

    def place(self, seq: int, now_ms: int) -> str:
        job = self.jobs[seq]
        if job.lease is not None and now_ms <= job.lease.deadline_ms:
            return LEASED
        if job.group and any(o.group == job.group and o.seq < seq for o in self.jobs.values()):
            return PARKED
        if job.ready_at_ms > now_ms:
            return DELAYED
        return RETURNED if job.touched or seq <= self.cursor else FRESH

    def ready(self, visible: int, now_ms: int) -> list[int]:
        """Claimable jobs in the order they are handed out."""
        places = {seq: self.place(seq, now_ms) for seq in sorted(self.jobs) if seq <= visible}
        returned = [seq for seq, place in places.items() if place == RETURNED]
        return returned + [seq for seq, place in places.items() if place == FRESH]

    def in_flight(self, now_ms: int) -> list[int]:
        return [seq for seq in self.jobs if self.place(seq, now_ms) == LEASED]

    def deal(
        self, wanted: list[int], visible: int, now_ms: int, deliveries_max: int
    ) -> tuple[list[list[int]], list[int]]:
        """Hands in turn, one job at a time; and the jobs that failed too often on the way."""
        hands: list[list[int]] = [[] for _ in wanted]
        spent: list[int] = []
        at = 0
        for seq in self.ready(visible, now_ms):
            if all(len(hand) == want for hand, want in zip(hands, wanted, strict=True)):
                break
            if deliveries_max and self.jobs[seq].deliveries >= deliveries_max:
                spent.append(seq)
                continue
            while len(hands[at % len(hands)]) == wanted[at % len(hands)]:
                at += 1
            hands[at % len(hands)].append(seq)
            at += 1
        return [sorted(hand) for hand in hands], spent

    def claim(self, seqs: list[int], node: str, fence: int, deadline_ms: int, now_ms: int) -> None:
        for at, seq in enumerate(seqs):
            job = self.jobs[seq]
            assert self.place(seq, now_ms) in (RETURNED, FRESH)
            if not job.touched and seq > self.cursor:
                self.cursor = seq
            job.touched = True
            job.deliveries += 1
            job.ready_at_ms = 0
            job.lease = Held(node, fence + at, deadline_ms)

    def holds(self, node: str, seq: int, fence: int | None, now_ms: int) -> bool:
        if seq not in self.jobs or self.place(seq, now_ms) != LEASED:
            return False
        lease = self.jobs[seq].lease
        assert lease is not None
        return lease.node == node and (fence is None or fence == lease.fence)

    def release(self, seqs: list[int], ready_at_ms: int) -> None:
        for seq in seqs:
            self.jobs[seq].lease = None
            self.jobs[seq].ready_at_ms = ready_at_ms

    def extend(self, seqs: list[int], deadline_ms: int) -> None:
        for seq in seqs:
            lease = self.jobs[seq].lease
            assert lease is not None
            lease.deadline_ms = deadline_ms

    def remove(self, seqs: set[int]) -> None:
        for seq in seqs:
            del self.jobs[seq]
