"""Where each job of a queue is.

A live job is in exactly one place: fresh (never set aside, never handed out), returned, delayed,
parked behind the first job of its group, or under a lease. Jobs up to the cursor are fresh no more;
`aside` names those above it that never were. `core/lease` decides, `apply` moves jobs with the
methods here, and time moves them by `sweep`: a lease whose deadline has passed is none, a delay
that is over is none. Replay comes to the same places as soon as it looks at the clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import chain

import msgspec

from headrace.core import ranges
from headrace.core.entry import Claim
from headrace.core.limits import SPENT_PASSED_MAX
from headrace.core.ranges import EMPTY, Ranges

_STALE_MAX = 64
"""A heap may hold twice as many items as are valid, and this many more, before it is made anew."""


class Lease(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Who works on a job, until when; the fence tells this delivery from every other."""

    fence: int
    node: str
    deadline_ms: int


class Places(msgspec.Struct, frozen=True, array_like=True):
    """A queue as a snapshot holds it."""

    cursor: int
    fence: int
    dead_lettered: int
    aside: list[int]
    returned: list[int]
    leases: dict[int, Lease]
    delayed: dict[int, int]
    deliveries: dict[int, int]
    groups: dict[str, list[int]]


class Queue:
    """The jobs of one queue that are not fresh, and what was counted of them."""

    __slots__ = (
        "_due",
        "_expiry",
        "_held_back",
        "_lines",
        "_order",
        "_returning",
        "aside",
        "cursor",
        "dead_lettered",
        "delayed",
        "deliveries",
        "ended",
        "fence",
        "grouped",
        "leases",
        "returned",
    )

    def __init__(self) -> None:
        self.cursor = 0
        """Everything up to here was handed out or passed over at least once."""
        self.fence = 0
        """The highest given out."""
        self.dead_lettered = 0
        self.aside: Ranges = EMPTY
        """Seqs above the cursor that are not fresh: they came with a delay or behind others."""
        self.returned: set[int] = set()
        self.leases: dict[int, Lease] = {}
        self.delayed: dict[int, int] = {}
        """Seq → when it may be claimed."""
        self.deliveries: dict[int, int] = {}
        """How often each job that is still there was handed out."""
        self.grouped: dict[int, str] = {}
        """The group of each job that has one; the first of a group holds the others back."""
        self.ended = 0
        """Leases that are no more, however they ended; not kept."""
        self._lines: dict[str, deque[int]] = {}
        self._held_back: dict[int, int] = {}  # delays of parked jobs, until they come first
        # Indexes: heaps of what may be so, looked up above before it is believed.
        self._returning: list[int] = []
        self._expiry: list[tuple[int, list[int]]] = []
        self._due: list[tuple[int, int]] = []
        self._order: list[int] | None = None  # all seqs known here; kept once something was trimmed

    # --- keeping ---------------------------------------------------------------------------------

    def dump(self) -> Places:
        return Places(
            self.cursor,
            self.fence,
            self.dead_lettered,
            list(self.aside),
            sorted(self.returned),
            self.leases,
            self.delayed | self._held_back,
            self.deliveries,
            {group: self._waiting(line) for group, line in self._lines.items()},
        )

    @classmethod
    def load(cls, places: Places) -> Queue:
        queue = cls()
        queue.cursor = places.cursor
        queue.fence = places.fence
        queue.dead_lettered = places.dead_lettered
        queue.aside = places.aside or EMPTY
        queue.leases = places.leases
        queue.deliveries = places.deliveries
        for group, seqs in places.groups.items():
            queue._lines[group] = deque(seqs)
            queue.grouped.update(dict.fromkeys(seqs, group))
        queue._give_back(places.returned)
        for seq, ready_at_ms in places.delayed.items():
            queue._put_off(seq, ready_at_ms)
        queue._expiry = [(lease.deadline_ms, [seq]) for seq, lease in queue.leases.items()]
        heapify(queue._expiry)
        return queue

    def _waiting(self, line: deque[int]) -> list[int]:
        return [seq for seq in line if seq in self.grouped]

    # --- looking ---------------------------------------------------------------------------------

    @property
    def parked(self) -> int:
        """How many jobs wait behind the first of their group."""
        return len(self.grouped) - len(self._lines)

    def is_parked(self, seq: int) -> bool:
        group = self.grouped.get(seq)
        return group is not None and self._lines[group][0] != seq

    def peek(self, count: int, visible: int, deliveries_max: int) -> tuple[list[int], list[int]]:
        """The first so many returned jobs that readers can see, ascending; and those on the way
        that were delivered too often (0: none is).
        """
        heap, returned = self._returning, self.returned
        found: list[int] = []
        spent: list[int] = []
        while len(found) < count and len(spent) < SPENT_PASSED_MAX and heap and heap[0] <= visible:
            seq = heappop(heap)
            if seq not in returned or seq in (found[-1:] + spent[-1:]):
                continue
            if deliveries_max and self.deliveries.get(seq, 0) >= deliveries_max:
                spent.append(seq)
            else:
                found.append(seq)
        for seq in (*found, *spent):
            heappush(heap, seq)
        return found, spent

    def next_change_ms(self) -> int | None:
        """When time will next move a job, if it will."""
        expiry, due = self._expiry, self._due
        while expiry and not any(self._expires(seq, expiry[0][0]) for seq in expiry[0][1]):
            heappop(expiry)
        while due and self.delayed.get(due[0][1]) != due[0][0]:
            heappop(due)
        # A lease is over once its deadline has passed, a delay as soon as its time has come.
        changes = [at for at in ((expiry and expiry[0][0] + 1), (due and due[0][0])) if at]
        return min(changes, default=None)

    def _expires(self, seq: int, deadline_ms: int) -> bool:
        lease = self.leases.get(seq)
        return lease is not None and lease.deadline_ms == deadline_ms

    # --- what time does --------------------------------------------------------------------------

    def sweep(self, now_ms: int) -> int:
        """Return jobs whose lease or delay is over; says how many."""
        freed: list[int] = []
        expiry, due = self._expiry, self._due
        while expiry and expiry[0][0] < now_ms:
            for seq in heappop(expiry)[1]:
                lease = self.leases.get(seq)
                if lease is not None and lease.deadline_ms < now_ms:
                    del self.leases[seq]
                    self.ended += 1
                    freed.append(seq)
        while due and due[0][0] <= now_ms:
            ready_at_ms, seq = heappop(due)
            if self.delayed.get(seq) == ready_at_ms:
                del self.delayed[seq]
                freed.append(seq)
        if freed:
            self._give_back(freed)
        return len(freed)

    # --- what entries do -------------------------------------------------------------------------

    def take(self, entry: Claim) -> list[int]:
        """Put the jobs under their leases; returns those that were fresh, ascending."""
        leases, deliveries, returned = self.leases, self.deliveries, self.returned
        fence, node, deadline_ms = entry.fence, entry.node, entry.deadline_ms
        fresh: list[int] = []
        for seq in entry.seqs:
            if seq in returned:
                returned.remove(seq)
            elif seq not in leases and self.delayed.pop(seq, None) is None:
                # (A lease or a delay that is over, and replay has not looked at the clock yet.)
                fresh.append(seq)
            leases[seq] = Lease(fence, node, deadline_ms)
            deliveries[seq] = deliveries.get(seq, 0) + 1
            fence += 1
        self.fence = max(self.fence, fence - 1)
        self._watch(deadline_ms, entry.seqs)
        if len(self._returning) > 2 * len(returned) + _STALE_MAX:
            self._returning = sorted(returned)
        self._remember(fresh)
        return fresh

    def pass_to(self, cursor: int, passed_over: list[int]) -> None:
        """Nothing up to the cursor is fresh any more; those passed over have been returned."""
        self.cursor = cursor
        self.aside = ranges.drop_below(self.aside, cursor + 1)
        self._remember(passed_over)
        self._give_back(passed_over)

    def extend(self, seqs: list[int], deadline_ms: int) -> None:
        for seq in seqs:
            lease = self.leases[seq]
            self.leases[seq] = Lease(lease.fence, lease.node, deadline_ms)
        self._watch(deadline_ms, seqs)

    def release(self, seqs: list[int], ready_at_ms: int) -> None:
        """End these leases; the jobs are back at once, or at the given time."""
        for seq in seqs:
            del self.leases[seq]
        self.ended += len(seqs)
        if not ready_at_ms:
            self._give_back(seqs)
        for seq in seqs if ready_at_ms else ():
            self._put_off(seq, ready_at_ms)

    def line_up(self, first: int, keys: Iterable[str | None]) -> None:
        """New jobs came, from this seq on, some of them in groups."""
        seqs: list[int] = []
        for seq, group in enumerate(keys, first):
            if group is None:
                continue
            seqs.append(seq)
            self.grouped[seq] = group
            line = self._lines.get(group)
            if line is None:
                self._lines[group] = deque((seq,))
            else:
                line.append(seq)
                self.aside = ranges.add(self.aside, seq, seq)
        self._remember(seqs)

    def delay(self, held: Ranges, ready_at_ms: int) -> None:
        """New jobs are to wait until then."""
        for first, last in ranges.pairs(held):
            self.aside = ranges.add(self.aside, first, last)
            self._remember(range(first, last + 1))
            for seq in range(first, last + 1):
                self.returned.discard(seq)  # what was in front of it went with the same append
                self._put_off(seq, ready_at_ms)

    def forget(self, held: Ranges, count: int) -> None:
        """These jobs, so many, are gone."""
        if count <= self._known:
            for first, last in ranges.pairs(held):
                for seq in range(first, last + 1):
                    self._forget_one(seq)
        else:
            for seq in [seq for seq in self._seqs() if ranges.contains(held, seq)]:
                self._forget_one(seq)

    def forget_below(self, floor: int) -> None:
        """All jobs below the floor are gone."""
        if not self._known:
            return
        if self._order is None:
            self._order = sorted(set(self._seqs()))
        order = self._order
        while order and order[0] < floor:
            self._forget_one(heappop(order))
        self.aside = ranges.drop_below(self.aside, floor)

    # --- steps -----------------------------------------------------------------------------------

    @property
    def _known(self) -> int:
        """How many jobs are known here, some of them counted twice."""
        return len(self.returned) + len(self.leases) + len(self.delayed) + len(self.grouped)

    def _seqs(self) -> Iterator[int]:
        return chain(self.returned, self.leases, self.delayed, self.grouped)

    def _forget_one(self, seq: int) -> None:
        if self.leases.pop(seq, None) is not None:
            self.ended += 1
        else:
            self.returned.discard(seq)
            self.delayed.pop(seq, None)
        self.deliveries.pop(seq, None)
        if self.grouped:
            self._leave_line(seq)

    def _leave_line(self, seq: int) -> None:
        group = self.grouped.pop(seq, None)
        if group is None:
            return
        self._held_back.pop(seq, None)
        line = self._lines[group]
        if line[0] != seq:
            return  # passed over when it would come first
        while line and line[0] not in self.grouped:
            line.popleft()
        if not line:
            del self._lines[group]
            return
        ready_at_ms = self._held_back.pop(line[0], None)
        if ready_at_ms is not None:
            self._put_off(line[0], ready_at_ms)
        elif line[0] <= self.cursor or ranges.contains(self.aside, line[0]):
            self._give_back((line[0],))

    def _give_back(self, seqs: Iterable[int]) -> None:
        for seq in seqs:
            self.returned.add(seq)
            heappush(self._returning, seq)

    def _put_off(self, seq: int, ready_at_ms: int) -> None:
        if self.is_parked(seq):
            self._held_back[seq] = ready_at_ms
            return
        self.delayed[seq] = ready_at_ms
        if len(self._due) > 2 * len(self.delayed) + _STALE_MAX:
            self._due = [(at, seq) for seq, at in self.delayed.items()]
            heapify(self._due)
        else:
            heappush(self._due, (ready_at_ms, seq))

    def _watch(self, deadline_ms: int, seqs: list[int]) -> None:
        if len(self._expiry) > 2 * len(self.leases) + _STALE_MAX:
            self._expiry = [(lease.deadline_ms, [seq]) for seq, lease in self.leases.items()]
            heapify(self._expiry)
        else:
            heappush(self._expiry, (deadline_ms, seqs))

    def _remember(self, seqs: Iterable[int]) -> None:
        if self._order is None:
            return
        for seq in seqs:
            heappush(self._order, seq)
        if len(self._order) > 2 * self._known + _STALE_MAX:
            self._order = None
