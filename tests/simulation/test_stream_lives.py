"""Streams under seeded clients and crashes: whatever is found was there, and nothing told is lost.

`make soak` looks at fresh seeds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from random import Random

import pytest

from headrace.core.errors import Code, Refused
from headrace.core.stream_state import Producer
from headrace.core.subscription import PULL, WEBHOOK
from headrace.engine.caps import Caps
from headrace.engine.engine import Engine
from headrace.engine.upkeep.cycle import UpkeepPace
from support.engine_harness import boot, small
from support.hostile import HostileDisk, Survival
from support.state_journal import JSON, Client, StateJournal, check_records, done, picture
from support.virtual import VirtualClock, VirtualLoop

FIXED = range(8)
KEPT = (1484786943,)
"""Notes that a subscription needs no more are not durable when its ack is (of the oracle)."""
LIVES = 5
CLIENTS = 5
NAMES = ["a", "b", "c", "jobs/1", "jobs/2"]

EXPECTED = {
    Code.CONFLICT, Code.CLOSED, Code.LOG_NOT_FOUND, Code.GONE, Code.INVALID, Code.FENCED,
    Code.PRODUCER_FENCED, Code.PRODUCER_GAP, Code.ALREADY_CLAIMED, Code.NOTHING_PENDING,
    Code.APPEND_TIMEOUT,
}  # fmt: skip


class World:
    """One seed: lives one after the other on one disk."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop)
        self.disk = HostileDisk()
        self.state_journal = StateJournal()
        self.commits = 0
        self._beside: list[asyncio.Task[None]] = []
        self._caps = Caps(tail_bytes=self.random.choice((400, 3000)))
        self._pace = UpkeepPace(seal_bytes=self.random.choice((600, 4000)), disk_sync_ms=200)

    def live(self) -> None:
        """From one start to one end: judge what the last one left, then go on from it."""
        self.loop.run_until_complete(self.loop.create_task(self._live()))
        self.loop.stop_all()
        ending = self.random.choice((*Survival, "kill", "torn"))
        if isinstance(ending, Survival):
            self.disk = self.disk.lose_power(ending, self.random)
        else:
            self.disk = self.disk.kill(torn=self.random if ending == "torn" else None)
        self.clock.skew_ms += self.random.choice((0, 0, 700, -700))

    async def _live(self) -> None:
        random = self.random
        started = await boot(
            self.disk,
            self.clock,
            caps=self._caps,
            pace=self._pace,
            delay_s=lambda: random.choice((0.0, 0.001, 0.02)),
        )
        engine = started.engine
        before, self.state_journal = (
            self.state_journal,
            StateJournal(records=self.state_journal.records),
        )
        if before.pages:
            before.judge(before.promised, len(before.pages) - 1, picture(engine.state))
        for live in list(engine.open_logs.values()):
            await check_records(engine, live, self.state_journal)
        engine.subscriptions.deliver = done
        self.state_journal.watch(engine)
        upkeep, streams = started.upkeep, engine.streams
        works = (
            upkeep.run(),
            upkeep.run_timers(),
            streams.expiry.run(),
            engine.subscriptions.run(),
        )
        self._beside = [asyncio.create_task(work) for work in works]
        clients = [
            asyncio.create_task(self._work(engine, f"p{number}")) for number in range(CLIENTS)
        ]
        ended, _ = await asyncio.wait(clients, timeout=random.uniform(0.05, 4.0))
        for task in ended:
            task.result()
        self.commits += len(self.state_journal.pages)

    async def _work(self, engine: Engine, id: str) -> None:
        """One thing after another, for ever."""
        client = Client(engine, self.state_journal)
        counts: dict[tuple[str, int], int] = {}
        while True:
            try:
                await self._act(client, engine, id, counts)
            except Refused as refused:
                if refused.code not in EXPECTED:
                    raise
            await asyncio.sleep(self.random.choice((0.0, 0.0, 0.01, 0.3)))

    async def _act(
        self, client: Client, engine: Engine, id: str, counts: dict[tuple[str, int], int]
    ) -> None:
        random = self.random
        name = random.choice(NAMES)
        log = engine.state.by_name.get(name)
        choice = random.random()
        datas = [b"%s %d" % (id.encode(), random.randrange(10**9)) for _ in range(2)]
        if choice < 0.05:
            await client.create("wakes", content_type=JSON)
            await client.subscribe("pull", PULL, pattern="jobs/*", wake_stream="wakes")
            await client.subscribe("push", WEBHOOK, pattern="**", url="http://x")
        elif choice < 0.1:
            await client.work("pull")
        elif log is None:
            spec = random.choice(({}, {"ttl_ms": 1000}, {"closed": True}))
            sources = [other for other in NAMES if other in engine.state.by_name]
            if sources and random.random() < 0.5:
                origin = engine.state.by_name[random.choice(sources)]
                spec = {"source": origin.name, "at": random.randrange(origin.head + 1)}
                spec["sub"] = random.choice((0, 0, 1, 3))
            await client.create(name, *datas, **spec)
        elif choice < 0.2:
            await client.delete(name)
        elif choice < 0.25:
            await client.write(name, close=True)
        elif choice < 0.6:
            key = (name, log.id)
            seq = counts.get(key, 0)
            producer = Producer(id, 0, seq if random.random() < 0.9 else max(0, seq - 1))
            await client.write(name, *datas, producer=producer)
            counts[key] = max(seq, producer.seq + 1)
        else:
            await client.write(name, *datas, seq=f"{random.randrange(10**9):010d}")


def simulate(seed: int) -> None:
    world = World(seed)
    with closing(world.loop), small():
        for _ in range(LIVES):
            world.live()
    assert world.commits > 20, "too little happened"


@pytest.mark.parametrize("seed", [*FIXED, *KEPT])
def test_lives_of_streams(seed: int) -> None:
    simulate(seed)


@pytest.mark.soak
def test_fresh_lives_of_streams(fresh_seeds: Iterator[int]) -> None:
    for seed in fresh_seeds:
        simulate(seed)
