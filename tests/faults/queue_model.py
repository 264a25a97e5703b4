"""A short life of queues, told to naive ones as it happens; and what a crash may leave of them.

There is one journal, so whatever survives is a prefix of what was offered: records, leases, delays,
delivery counts and dead letters all at once, as they were after one of the steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field

from headrace.core import log as core_log
from headrace.core.config import Durability, Kind, LogConfig
from headrace.core.errors import Code, Refused
from headrace.core.log import Log
from headrace.core.record import draft
from headrace.engine.engine import Engine
from headrace.engine.timings import Timings
from support.engine_harness import view
from support.naive_queue import DELAYED, FRESH, LEASED, PARKED, RETURNED, NaiveQueue
from support.oracle import Blow, Mark
from support.virtual import VirtualClock

DISK, FSYNC = Durability.DISK, Durability.FSYNC


class ReadOnly(Exception):
    """The engine writes no more."""


@dataclass
class QueueLog:
    """One log in the model: its jobs, and what is in them."""

    config: LogConfig
    queue: NaiveQueue = field(default_factory=NaiveQueue)
    data: dict[int, bytes] = field(default_factory=dict)

    def add(
        self,
        datas: list[bytes],
        now_ms: int,
        groups: list[str | None] | None = None,
        due_ms: list[int | None] | None = None,
    ) -> None:
        first, nothing = self.queue.head + 1, [None] * len(datas)
        self.queue.append(groups or [*nothing], due_ms or [*nothing], now_ms)
        self.data.update(enumerate(datas, first))

    def take(self, seqs: Iterable[int]) -> list[bytes]:
        taken = [*seqs]
        self.queue.remove({*taken})
        return [self.data.pop(seq) for seq in taken]

    def left_by_crash(self) -> QueueLog:
        left = deepcopy(self)
        if not self.config.leases_durable:
            left.queue.release([seq for seq, job in left.queue.jobs.items() if job.lease], 0)
        return left


State = dict[str, QueueLog]


class Past:
    """Every state of the model, and how much of it was promised."""

    def __init__(self) -> None:
        self.states: list[State] = [{}]
        self.written = 0
        self.durable = 0

    def next(self) -> State:
        """The model as it is, to be changed: one step, however many logs it changes."""
        self.states.append(deepcopy(self.states[-1]))
        return self.states[-1]

    @property
    def step(self) -> int:
        """The number of the last step."""
        return len(self.states) - 1

    def promise(self, step: int, durability: Durability) -> None:
        """Steps up to this one were acknowledged under this class."""
        self.written = max(self.written, step)
        if durability is FSYNC:
            self.durable = max(self.durable, step)

    def mark(self) -> Mark:
        return Mark(self.step, self.written, self.durable, {})


class QueueClient:
    """Does what producers and workers may do, and tells the model before."""

    def __init__(self, engine: Engine, clock: VirtualClock, past: Past) -> None:
        self.engine = engine
        self.past = past
        self._clock = clock
        self._sent = 0

    @property
    def now(self) -> State:
        return self.past.states[-1]

    async def open(self, name: str, **config: object) -> None:
        known = LogConfig(**config)  # type: ignore[arg-type]
        state = self.past.next()
        if name in state:
            state[name].config = known
        else:
            state[name] = QueueLog(known)
        step = self.past.step
        await self._writing(self.engine.logs.put(name, "topics", known))
        self.past.promise(step, FSYNC)

    async def add(
        self,
        name: str,
        count: int,
        groups: list[str | None] | None = None,
        delays_ms: list[int | None] | None = None,
    ) -> None:
        now_ms = self._clock.now_ms()
        due = [None if d is None else now_ms + d for d in delays_ms] if delays_ms else None
        datas = []
        for _ in range(count):
            self._sent += 1
            datas.append(b'{"n":%d}' % self._sent)
        shelf = self.past.next()[name]
        shelf.add(datas, now_ms, groups, due)
        drafts, step = draft(datas, keys=groups), self.past.step
        await self._writing(
            self.engine.appender.append(name, drafts, owner="topics", create=None, due_ms=due)
        )
        self.past.promise(step, shelf.config.durability)

    async def claim(self, name: str, node: str, wanted: int, lease_ms: int) -> list[int]:
        """Claim; the model says what comes of it, dead letters included."""
        now_ms, shelf = self._clock.now_ms(), self.now[name]
        config = shelf.config
        limit = config.max_deliveries if config.dead_letter else 0
        ((seqs), *_), spent = shelf.queue.deal([wanted], shelf.queue.head, now_ms, limit)
        if spent:
            assert config.dead_letter is not None
            self._bury(name, config.dead_letter, spent, now_ms)
        buried = self.past.step
        if seqs:
            queue = self.past.next()[name].queue
            queue.claim(seqs, node, 0, now_ms + lease_ms, now_ms)
        leased = self.past.step
        claimed = await self._writing(
            self.engine.queues.claim(name, node, wanted, lease_ms, Timings())
        )
        got = [(p.block.seq_at(at), p.block.data_at(at)) for p in claimed.jobs for at in p.picks]
        assert got == [(seq, shelf.data[seq]) for seq in seqs]
        if spent:
            self.past.promise(buried, DISK)
        if seqs and config.leases_durable:
            self.past.promise(leased, FSYNC)
        return seqs

    def _bury(self, name: str, place: str, spent: list[int], now_ms: int) -> None:
        if place not in self.now:
            self.past.next()[place] = QueueLog(LogConfig())
        state = self.past.next()
        state[place].add(state[name].take(spent), now_ms)
        state[name].queue.dead_lettered += len(spent)

    async def ack(self, name: str, node: str, *seqs: int) -> None:
        held = self._held(name, node, seqs)
        shelf = self.past.next()[name] if held else self.now[name]
        shelf.take(held)
        step = self.past.step
        done = await self._writing(self.engine.queues.ack(name, node, seqs, None, Timings()))
        assert done.held == held
        self.past.promise(step if held else 0, shelf.config.durability)

    async def nack(self, name: str, node: str, *seqs: int, delay_ms: int = 0) -> None:
        held, now_ms = self._held(name, node, seqs), self._clock.now_ms()
        if held:
            ready_at_ms = now_ms + delay_ms if delay_ms else 0
            self.past.next()[name].queue.release(held, ready_at_ms)
        step = self.past.step
        done = await self._writing(self.engine.queues.nack(name, node, seqs, None, delay_ms))
        assert done.held == held
        if held and self.now[name].config.leases_durable:
            self.past.promise(step, FSYNC)

    async def extend(self, name: str, node: str, *seqs: int, lease_ms: int) -> None:
        held, now_ms = self._held(name, node, seqs), self._clock.now_ms()
        if held:
            self.past.next()[name].queue.extend(held, now_ms + lease_ms)
        step = self.past.step
        done = await self._writing(self.engine.queues.extend(name, node, seqs, None, lease_ms))
        assert done.held == held
        if held and self.now[name].config.leases_durable:
            self.past.promise(step, FSYNC)

    async def redrive(self, name: str, count_max: int, to: str) -> None:
        seqs = sorted(self.now[name].queue.jobs)[:count_max]
        if seqs:
            state = self.past.next()
            state[to].add(state[name].take(seqs), self._clock.now_ms())
        step = self.past.step
        done = await self._writing(
            self.engine.queues.redrive(name, count_max, to, lambda name: None, owner="topics")
        )
        assert done.redriven == len(seqs)
        self.past.promise(step, DISK)

    def _held(self, name: str, node: str, seqs: Iterable[int]) -> list[int]:
        queue, now_ms = self.now[name].queue, self._clock.now_ms()
        return sorted(seq for seq in seqs if queue.holds(node, seq, None, now_ms))

    async def _writing(self, call):  # type: ignore[no-untyped-def]
        try:
            return await call
        except Refused as refused:
            if refused.code is not Code.READ_ONLY:
                raise
            raise ReadOnly from None


async def live(shop: QueueClient) -> None:
    """Everything that can happen to a job, some of it at once."""
    queue = {"kind": Kind.QUEUE, "lease_ms": 5_000}
    dying = {"max_deliveries": 1, "dead_letter": "dead"}
    await shop.open("jobs", **queue, **dying, durability=DISK)
    await shop.open("sure", **queue, durability=FSYNC, leases_durable=True)
    await shop.open("lines", **queue, durability=FSYNC)
    await shop.add("jobs", 6)
    await shop.add("sure", 4, delays_ms=[None, 400, None, 90_000])
    await shop.add("lines", 5, groups=["a", "a", None, "b", "a"])
    await asyncio.gather(
        shop.claim("jobs", "v", 2, 1_000),
        shop.claim("sure", "v", 2, 60_000),
        shop.claim("jobs", "w", 2, 60_000),
        shop.claim("lines", "v", 9, 1_000),
    )
    await asyncio.gather(shop.ack("jobs", "w", 3), shop.nack("sure", "v", 1, delay_ms=300))
    await shop.extend("sure", "v", 3, lease_ms=90_000)
    await shop.ack("lines", "v", 1, 4)
    await asyncio.sleep(2)  # v's leases are over, but for the durable one
    # Two of them were delivered before: they move to the dead letters, then others are leased.
    await shop.claim("jobs", "w", 3, 60_000)
    await asyncio.gather(
        shop.claim("lines", "w", 9, 60_000),
        shop.claim("sure", "w", 9, 60_000),
    )
    await asyncio.gather(shop.ack("sure", "v", 3), shop.ack("jobs", "w", 4), shop.add("jobs", 2))
    await shop.nack("jobs", "w", 5, 6)
    await shop.claim("jobs", "v", 9, 60_000)  # and two more
    await shop.redrive("dead", 3, "jobs")
    await shop.claim("jobs", "v", 9, 60_000)
    await shop.ack("jobs", "v", 7, 9, 11)
    await shop.ack("sure", "w", 1, 2)
    await shop.nack("lines", "w", 2)
    await shop.open("jobs", **queue, durability=FSYNC)
    await shop.nack("jobs", "v", 8, 10, delay_ms=200)
    await shop.ack("lines", "w", 3)


# --- what is found -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """All there is to learn of one log."""

    data: dict[int, bytes]
    places: dict[int, str]
    deliveries: dict[int, int]
    dead_lettered: int


async def find_all(engine: Engine) -> dict[str, Found]:
    return {name: await _find(engine, name) for name in list(engine.state.names("", ""))}


async def _find(engine: Engine, name: str) -> Found:
    seen = await view(engine, name)
    data = {seq: record.data for seq, record in seen.records.items()}
    log = engine.state.by_name[name]
    if log.queue is None:
        return Found(data, {}, {}, 0)
    log.jobs.sweep(engine.clock.now_ms())
    places = {seq: place_of(log, seq) for seq in data}
    return Found(data, places, dict(log.jobs.deliveries), log.jobs.dead_lettered)


def place_of(log: Log, seq: int) -> str:
    """Where a job is; it must be in one place."""
    queue = log.jobs
    fresh = any(low <= seq <= high for low, high in core_log.fresh_ranges(log, log.head))
    found = [
        place
        for place, there in (
            (LEASED, seq in queue.leases),
            (PARKED, queue.is_parked(seq)),
            (DELAYED, seq in queue.delayed),
            (RETURNED, seq in queue.returned),
            (FRESH, fresh),
        )
        if there
    ]
    assert len(found) == 1, f"job {seq} is {found}"
    return found[0]


def judge(past: Past, mark: Mark, blow: Blow, found: dict[str, Found], now_ms: int) -> int:
    """The step that the survivors match; AssertionError with what is wrong when there is none."""
    complaints: list[list[str]] = []
    for index in range(mark.offered, mark.promised(blow) - 1, -1):
        problems = list(_compare(past.states[index], found, now_ms))
        if not problems:
            return index
        complaints.append(problems)
    raise AssertionError(
        f"no state in {mark.promised(blow)}..{mark.offered} matches; nearest: "
        + "; ".join(min(complaints, key=len)[:5])
    )


def _compare(state: State, found: dict[str, Found], now_ms: int) -> Iterable[str]:
    if state.keys() != found.keys():
        yield f"logs {sorted(found)} instead of {sorted(state)}"
        return
    for name, shelf in state.items():
        seen, left = found[name], shelf.left_by_crash()
        if seen.data != left.data:
            yield f"{name}: records {sorted(seen.data)} instead of {sorted(left.data)}"
            continue
        if shelf.config.kind is not Kind.QUEUE:
            continue
        places = {seq: left.queue.place(seq, now_ms) for seq in left.data}
        if seen.places != places:
            yield f"{name}: jobs {seen.places} instead of {places}"
        jobs = left.queue.jobs.items()
        deliveries = {seq: job.deliveries for seq, job in jobs if job.deliveries}
        if seen.deliveries != deliveries:
            yield f"{name}: deliveries {seen.deliveries} instead of {deliveries}"
        if seen.dead_lettered != left.queue.dead_lettered:
            yield f"{name}: {seen.dead_lettered} dead letters instead of {left.queue.dead_lettered}"
