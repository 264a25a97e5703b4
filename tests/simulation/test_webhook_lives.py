"""Webhooks under seeded receivers, users and crashes: every record that is wanted arrives, in
order, and nothing arrives under two ids but what somebody changed.

`make soak` looks at fresh seeds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from random import Random
from typing import Any
from unittest import mock

import msgspec
import pytest

from headrace.core.config import Durability, LogConfig
from headrace.core.entry import WebhookStatus
from headrace.core.owners import TOPICS
from headrace.core.record import draft
from headrace.engine.consumers.webhooks import WebhookSpec
from headrace.engine.start import Started, stop
from headrace.storage.checks.findings import Problem
from headrace.storage.verification import Verification
from support.engine_harness import boot, halt, small
from support.hostile import HostileDisk, Survival
from support.receivers import Answer, ScriptedReceivers, SeqFormat
from support.virtual import VirtualClock, VirtualLoop

SEEDS = range(12)
STEPS = 60
HOOKS = {"all": "", "some": "x"}
"""Webhooks, and the tag that each wants."""
ANSWERS: list[Answer] = [200, 200, 200, 500, 301, (429, 20_000), "hang", 410]
CONFIG = LogConfig(durability=Durability.FSYNC)


class Life:
    """One engine after the other over one disk, with two webhooks of one log."""

    def __init__(self, loop: VirtualLoop, random: Random) -> None:
        self._random = random
        self._clock = VirtualClock(loop)
        self._disk = HostileDisk()
        self._started: Started | None = None
        self.receivers = ScriptedReceivers()
        self.wanted: dict[str, list[int]] = {name: [] for name in HOOKS}
        self._head = 0
        self.changed = False

    @property
    def started(self) -> Started:
        assert self._started is not None
        return self._started

    async def begin(self) -> None:
        formats = {"topics": SeqFormat()}
        self._started = await boot(
            self._disk, self._clock, receivers=self.receivers, webhook_formats=formats
        )
        await self.started.engine.webhooks.delivery.run()

    async def set_up(self) -> None:
        await self.append(count=1, tag=None)
        for name, tag in HOOKS.items():
            spec = WebhookSpec(url=url(name), filter=tag.encode(), batch_records=4)
            await self.started.engine.webhooks.put(f"topics/{name}", "a", spec, "earliest")

    async def step(self) -> None:
        draw = self._random.random()
        if draw < 0.45:
            tag = self._random.choice([None, "x", "y"])
            await self.append(count=self._random.randint(1, 6), tag=tag)
        elif draw < 0.65:
            await asyncio.sleep(self._random.choice([0.01, 1, 10, 1000]))
        elif draw < 0.8:
            name = self._random.choice([*HOOKS])
            self.receivers.always[url(name)] = self._random.choice(ANSWERS)
        elif draw < 0.9:
            await self._change(self._random.choice([*HOOKS]))
        else:
            await self._end()
            await self.begin()

    async def append(self, count: int, tag: str | None) -> None:
        drafts = draft([b"1"] * count, tags=None if tag is None else [tag] * count)
        await self.started.engine.appender.append("a", drafts, owner=TOPICS, create=CONFIG)
        seqs = range(self._head + 1, self._head + count + 1)
        self._head += count
        self.wanted["all"] += seqs
        if tag == "x":
            self.wanted["some"] += seqs

    async def _change(self, name: str) -> None:
        field, value = self._random.choice(
            [
                ("status", WebhookStatus.PAUSED),
                ("status", WebhookStatus.ACTIVE),
                ("batch_delay_ms", self._random.choice([0, 500, 5000])),
                ("batch_records", self._random.randint(1, 6)),
            ]
        )
        self.changed = self.changed or field == "batch_records"
        await self.started.engine.webhooks.change(f"topics/{name}", _set(field, value))

    async def _end(self) -> None:
        how = self._random.randrange(3)
        if how == 0:
            if self._random.random() < 0.5:
                await self.started.upkeep.snapshot()
            await stop(self.started)
            self._disk.world.locked.clear()
            return
        halt(self.started)
        self.started.engine.sender.drain()  # its process is gone, and its calls with it
        if how == 1:
            self._disk = self._disk.kill()
        else:
            self._disk = self._disk.lose_power(self._random.choice([*Survival]), self._random)

    async def finish(self) -> None:
        """All receivers are well again, and everything that was given up is sent once more."""
        self.receivers.always.clear()
        webhooks = self.started.engine.webhooks
        for name in HOOKS:
            await webhooks.change(f"topics/{name}", _set("status", WebhookStatus.ACTIVE))
        await asyncio.sleep(200_000)
        for name in HOOKS:
            replayed = await webhooks.replay(f"topics/{name}", 1000)
            assert (replayed.left, replayed.failure) == (0, None)
            state = webhooks.find(f"topics/{name}").state
            assert (state.batch, state.failing_since_ms) == (None, 0)
        await stop(self.started)
        problems = [each for each in Verification(self._disk).run() if isinstance(each, Problem)]
        assert problems == []

    def judge(self) -> None:
        for name, wanted in self.wanted.items():
            taken = [call for call in self.receivers.taken if call.url == url(name)]
            arrived = {seq for call in taken for seq in call.seqs}
            assert arrived == set(wanted)
            tried = [call for call in self.receivers.calls if call.url == url(name)]
            seen = 0
            for call in tried:
                assert call.seqs == sorted(call.seqs)
                new = [seq for seq in call.seqs if seq > seen]
                missed = [seq for seq in wanted if seen < seq < (new[0] if new else 0)]
                assert not missed, "nothing is sent before what comes first"
                seen = max(seen, *call.seqs)
            ids: dict[int, set[str]] = {}
            for call in tried:
                for seq in call.seqs:
                    ids.setdefault(seq, set()).add(call.id)
            assert self.changed or all(len(each) == 1 for each in ids.values())


def url(name: str) -> str:
    return f"https://{name}.example/"


def _set(field: str, value: Any) -> Callable[[WebhookSpec], WebhookSpec]:
    return lambda spec: msgspec.structs.replace(spec, **{field: value})


def simulate(seed: int) -> None:
    random = Random(seed)

    async def live() -> None:
        life = Life(loop, random)
        await life.begin()
        await life.set_up()
        for _ in range(STEPS):
            await life.step()
        await life.finish()
        life.judge()

    with (
        closing(VirtualLoop()) as loop,
        small(),
        mock.patch("headrace.engine.consumers.delivering.random.random", random.random),
    ):
        loop.run(live())


@pytest.mark.parametrize("seed", SEEDS)
def test_lives_of_webhooks(seed: int) -> None:
    simulate(seed)


@pytest.mark.soak
def test_fresh_lives_of_webhooks(fresh_seeds: Iterator[int]) -> None:
    for seed in fresh_seeds:
        simulate(seed)
