"""Several lives of an engine whose queues are worked on: workers come, fail, die and come back.

Producers write jobs, with groups and for later; workers ask or stay, ack, give back, keep, forget.
The server dies in every way there is. An oracle that only knows what they saw says what cannot be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any

from headrace.core.config import Durability, Kind, LogConfig
from headrace.core.entry import Claim
from headrace.core.errors import Code, Refused
from headrace.core.read import Slice
from headrace.core.record import draft
from headrace.engine.caps import Caps
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog
from headrace.engine.queues.dispatcher import JobDispatcher
from headrace.engine.start import stop
from headrace.engine.timings import Timings
from headrace.engine.upkeep.cycle import UpkeepPace
from headrace.storage.checks.states import state_problems
from support.engine_harness import boot, small, view
from support.hostile import Crash, HostileDisk, Survival
from support.job_oracle import Hold, Oracle
from support.virtual import VirtualClock, VirtualLoop
from support.writers import LoopWriter, server_writer

from .crash_simulation import SlowPool

LIVES = 5
LIFE_S = 6.0
ASKERS = 5
STAYERS = 3
EXTENSION_MS = 1000
"""Shorter than some leases: what is asked for later counts, not what lasts longer."""
EXPECTED = {
    Code.READ_ONLY,
    Code.SHUTTING_DOWN,
    Code.STORAGE_UNAVAILABLE,
    Code.THROTTLED,
    Code.LOG_NOT_FOUND,
}

_JOBS = LogConfig(kind=Kind.QUEUE, max_deliveries=3, dead_letter="dead")
QUEUES = {
    "quick": LogConfig(kind=Kind.QUEUE),
    "fair": LogConfig(kind=Kind.QUEUE, claim_jitter_ms=20, durability=Durability.FSYNC),
    "dying": _JOBS,
    "held": LogConfig(kind=Kind.QUEUE, durability=Durability.FSYNC, leases_durable=True),
}


@dataclass
class Task:
    """A job in somebody's hands."""

    data: bytes
    seq: int
    fence: int


class Factory:
    """One seed, one story."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop)
        self.disk = HostileDisk()
        self.lenient: set[str] = set(QUEUES)
        """Queues of which a power loss may have taken the newest."""
        self.sent = 0
        self.story: list[str] = []
        self.caps = Caps(tail_bytes=self.random.choice((400, 5000)))
        self.pace = UpkeepPace(seal_bytes=self.random.choice((500, 3000)), disk_sync_ms=200)
        self.oracles = {
            name: Oracle(name, config.leases_durable, config.max_deliveries)
            for name, config in QUEUES.items()
        }

    def run(self) -> None:
        with small():
            for number in range(LIVES):
                last = number == LIVES - 1
                self.say(f"life {number}")
                Shift(self, last=last).run()
                for oracle in self.oracles.values():
                    assert not oracle.complaints, oracle.complaints[:5]
        self.loop.close()

    def say(self, what: str) -> None:
        self.story.append(f"{self.loop.now_s:.3f} {what}")


class Shift:
    """From one start of the server to its end."""

    def __init__(self, factory: Factory, *, last: bool) -> None:
        self._factory = factory
        self._random = factory.random
        self._loop = factory.loop
        self._clock = factory.clock
        self._oracles = factory.oracles
        self._last = last
        self._ended = asyncio.Event()
        self._problem: BaseException | None = None
        self._over = False
        self._engine: Engine

    def run(self) -> None:
        ending = "stop" if self._last else self._random.choice((*Survival, "kill", "torn", "stop"))
        try:
            self._loop.run_until_complete(self._loop.create_task(self._work(ending)))
        except Crash as crash:
            self._factory.say(f"crash: {crash}")
        self._over = True
        self._loop.stop_all()
        self._check_complaints()
        self._factory.say(f"end: {ending}")
        disk = self._factory.disk
        self._factory.lenient = set()
        power = isinstance(ending, Survival)
        if power or disk.sync_failed:  # what a failed sync covered may be gone in the same boot
            classes = {name: config.durability for name, config in QUEUES.items()}
            self._factory.lenient = {n for n, c in classes.items() if c is not Durability.FSYNC}
        if isinstance(ending, Survival):
            self._factory.disk = disk.lose_power(ending, self._random)
        else:
            torn = self._random if ending == "torn" else None
            evicted = self._random if disk.sync_failed else None
            self._factory.disk = disk.kill(torn, evicted)

    def _check_complaints(self) -> None:
        for context in self._loop.complaints:
            problem = context.get("exception")
            if not isinstance(problem, Crash | Refused):
                raise AssertionError(f"in the background: {context}") from problem
        self._loop.complaints.clear()
        if self._problem is not None:
            raise self._problem

    async def _work(self, ending: object) -> None:
        random, factory = self._random, self._factory
        started = await boot(
            factory.disk,
            self._clock,
            caps=factory.caps,
            pace=factory.pace,
            pool=SlowPool(random),
            make_writer=random.choice((LoopWriter, server_writer)),
            delay_s=lambda: random.choice((0.0, 0.0, 0.001, 0.02)),
            throttled=True,
        )
        self._engine = engine = started.engine
        for name, config in QUEUES.items():
            await engine.logs.put(name, "topics", config)
        await self._find_all()
        if not isinstance(ending, str) or ending != "stop":
            factory.disk.crash_at = factory.disk.calls + random.randrange(400)
        for work in (started.upkeep.run, started.upkeep.run_timers, self._produce):
            self.start(work)
        for number in range(ASKERS):
            self.start(self._ask, f"asker-{number}")
        for number in range(STAYERS):
            self.start(self._stay, f"stayer-{number}")
        await self._until_end(LIFE_S)
        if self._last:
            await self._finish()
        if ending == "stop":
            self._over = True
            await stop(started)
        factory.disk.crash()

    async def _find_all(self) -> None:
        """What is there must account for every job."""
        engine = self._engine
        for log in engine.state.logs.values():
            assert list(state_problems(log)) == []
        dead: set[bytes] = set()
        if "dead" in engine.state.by_name:
            dead = {record.data for record in (await view(engine, "dead")).records.values()}
        for name, oracle in self._oracles.items():
            records = (await view(engine, name)).records
            present = {record.data: seq for seq, record in records.items()}
            mine = dead if QUEUES[name].dead_letter else set()
            oracle.restart()
            if name in self._factory.lenient:
                oracle.adopt(present, mine)
            else:
                oracle.find(present, mine)

    async def _finish(self) -> None:
        """Nobody produces any more: every job ends, and none twice."""
        self._over = True
        await asyncio.sleep(200)  # all leases and delays are over
        engine = self._engine
        for name, oracle in self._oracles.items():
            for _ in range(1000):
                tasks = await self._claim(name, "last", 5, 60_000)
                if not tasks and not engine.queues.count(engine.live(name)).ready:
                    break
                await self._ack(name, "last", tasks)
            await self._find_all()
            assert oracle.left() == [], f"{name}: {oracle.left()} are never handed out"
        total = sum(oracle.delivered for oracle in self._oracles.values())
        assert total > 100, "the story is too short"

    async def _until_end(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            return
        if self._problem is not None:
            raise self._problem
        raise Crash("as planned")

    def start(self, work: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        self._loop.create_task(self._guard(work, *args))

    async def _guard(self, work: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        try:
            await work(*args)
        except Crash:
            self._ended.set()
        except Refused as refused:
            if refused.code not in EXPECTED:
                self._problem = self._problem or refused
                self._ended.set()
        except Exception as problem:  # noqa: BLE001  (raised again by whoever runs this life)
            self._problem = self._problem or problem
            self._ended.set()

    # --- producers -------------------------------------------------------------------------------

    async def _produce(self) -> None:
        random = self._random
        while not self._over:
            await asyncio.sleep(random.choice((0, 0.01, 0.05, 0.2)))
            name = random.choice([*QUEUES])
            self.start(self._append, name, random.choice((1, 1, 2, 4)))

    async def _append(self, name: str, count: int) -> None:
        random, factory, oracle = self._random, self._factory, self._oracles[name]
        now_ms = self._clock.now_ms()
        datas: list[bytes] = []
        groups: list[str | None] = []
        due: list[int | None] = []
        for _ in range(count):
            factory.sent += 1
            datas.append(b'{"n":%d}' % factory.sent)
            groups.append(random.choice((None, None, "a", "b")))
            due.append(random.choice((None, None, None, now_ms + 300, now_ms + 2000)))
            oracle.offer(datas[-1], groups[-1], due[-1] or 0)
        drafts = draft(datas, keys=groups)
        done = await self._engine.appender.append(
            name, drafts, owner="topics", create=None, due_ms=due
        )
        for seq, data in enumerate(datas, done.first):
            oracle.appended(data, seq)

    # --- workers who ask -------------------------------------------------------------------------

    async def _ask(self, node: str) -> None:
        random = self._random
        while not self._over:
            await asyncio.sleep(random.choice((0, 0.005, 0.03, 0.2)))
            name = random.choice([*QUEUES])
            lease_ms = random.choice((100, 300, 2000))
            tasks = await self._claim(name, node, random.choice((1, 2, 8)), lease_ms)
            if tasks:
                await self._handle(name, node, tasks)

    async def _claim(self, name: str, node: str, wanted: int, lease_ms: int) -> list[Task]:
        claimed = await self._engine.queues.claim(name, node, wanted, lease_ms, Timings())
        if claimed.claim is None:
            return []
        return self._note(name, node, claimed.live, claimed.claim, claimed.jobs)

    def _note(
        self, name: str, node: str, live: OpenLog, claim: Claim, jobs: list[Slice]
    ) -> list[Task]:
        """Tell the oracle what somebody got."""
        queue, tasks = live.log.jobs, list[Task]()
        for piece in jobs:
            for at in piece.picks:
                seq, data = piece.block.seq_at(at), piece.block.data_at(at)
                lease = queue.leases.get(seq)
                if lease is None or not 0 <= lease.fence - claim.fence < len(claim.seqs):
                    continue  # lost while it was read
                self._oracles[name].deliver(
                    data,
                    Hold(node, lease.fence, lease.deadline_ms, self._clock.now_ms()),
                    number=seq,
                    deliveries=queue.deliveries[seq],
                )
                tasks.append(Task(data, seq, lease.fence))
        return tasks

    async def _handle(self, name: str, node: str, tasks: list[Task]) -> None:
        """Do something with jobs, or nothing at all."""
        random = self._random
        await asyncio.sleep(random.choice((0, 0, 0.02, 0.15, 0.5)))
        what = random.choices(("ack", "some", "nack", "extend", "forget"), (10, 3, 3, 2, 2))[0]
        match what:
            case "ack":
                await self._ack(name, node, tasks)
            case "some":
                await self._ack(name, node, tasks[::2])
            case "nack":
                await self._nack(name, node, tasks, random.choice((0, 0, 200)))
            case "extend":
                await self._extend(name, node, tasks)
                await asyncio.sleep(random.choice((0.01, 0.4)))
                await self._ack(name, node, tasks)

    async def _ack(self, name: str, node: str, tasks: list[Task]) -> None:
        oracle = self._oracles[name]
        if not tasks:
            return
        for task in tasks:
            oracle.acking(task.data)
        seqs, fences = [task.seq for task in tasks], [task.fence for task in tasks]
        done = await self._engine.queues.ack(name, node, seqs, fences, Timings())
        now_ms = self._clock.now_ms()
        for task in tasks:
            if task.seq in done.held:
                oracle.acked(task.data)
            else:
                oracle.skipped(task.data, task.fence, now_ms)

    async def _nack(self, name: str, node: str, tasks: list[Task], delay_ms: int) -> None:
        for task in tasks:
            self._oracles[name].give_back(task.data, task.fence)
        fences = [task.fence for task in tasks]
        await self._engine.queues.nack(name, node, [t.seq for t in tasks], fences, delay_ms)

    async def _extend(self, name: str, node: str, tasks: list[Task]) -> None:
        oracle, deadline_ms = self._oracles[name], self._clock.now_ms() + EXTENSION_MS
        for task in tasks:
            oracle.extending(task.data, task.fence, deadline_ms)
        seqs, fences = [task.seq for task in tasks], [task.fence for task in tasks]
        done = await self._engine.queues.extend(name, node, seqs, fences, EXTENSION_MS)
        for task in tasks:
            if task.seq in done.held:
                oracle.extended(task.data, task.fence, done.deadline_ms)

    # --- workers who stay ------------------------------------------------------------------------

    async def _stay(self, node: str) -> None:
        random = self._random
        while not self._over:
            name = random.choice([*QUEUES])
            queues = self._engine.queues
            dispatcher = queues.dispatcher(queues.find(name))
            stayer = Stayer(self, name, node, dispatcher, random.choice((1, 3)))
            dispatcher.join(stayer)
            await asyncio.sleep(random.choice((0.1, 1.0, 3.0)))
            if not stayer.gone:
                stayer.leave()


class Stayer:
    """A worker on a connection that is none."""

    def __init__(
        self, shift: Shift, name: str, node: str, dispatcher: JobDispatcher, depth: int
    ) -> None:
        self.node = node
        self.depth = depth
        self.lease_ms: int | None = 1000
        self.held: dict[int, int] = {}
        self.blocked = False
        self.gone = False
        self._name = name
        self._shift = shift
        self._dispatcher = dispatcher
        self._tasks: list[Task] = []

    def give(self, live: OpenLog, claim: Claim, jobs: list[Slice]) -> None:
        assert len(self.held) <= self.depth, "more than he can take"
        shift = self._shift
        tasks = shift._note(self._name, self.node, live, claim, jobs)
        self._tasks += tasks
        for task in tasks:
            shift.start(shift._handle, self._name, self.node, [task])

    def on_throttled(self) -> None:
        pass

    def close(self, refused: Refused) -> None:
        assert refused.code in EXPECTED
        self.leave()

    def leave(self) -> None:
        self.gone = True
        for task in self._tasks:
            self._shift._oracles[self._name].give_back(task.data, task.fence)
        self._dispatcher.leave(self)


def simulate(seed: int) -> list[str]:
    factory = Factory(seed)
    try:
        factory.run()
    except BaseException as problem:
        problem.add_note(f"seed {seed}; the last that happened:\n" + "\n".join(factory.story[-12:]))
        raise
    return factory.story
