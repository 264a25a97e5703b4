"""Manifests under seeded clients and crashes: a version has its contents whenever it is found, and
nothing told is lost.

`make soak` looks at fresh seeds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from random import Random
from unittest import mock

import pytest

from headrace.core.errors import Code, Refused
from headrace.core.owners import FLAGS
from headrace.engine.caps import Caps
from headrace.engine.contents import ContentsMissing
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog
from headrace.engine.upkeep.cycle import UpkeepPace
from headrace.storage.objects import LocalObjects
from headrace.surfaces.flags.versions import ManifestVersions, Retention
from support.engine_harness import Unhurried, boot, small
from support.hostile import HostileDisk, Survival
from support.manifests import check_versions, digest, namespace, upload
from support.rival import Rival
from support.state_journal import Client, StateJournal, picture
from support.virtual import VirtualClock, VirtualLoop

FIXED = range(6)
LIVES = 5
CLIENTS = 5
NAMES = ("flags:acme:one", "flags:acme:two", "flags:zoo:one")
PATHS = tuple(f"flags/{letter}.toml" for letter in "abcdef")
CONTENTS = tuple(b"content %d" % number for number in range(8))
EXPECTED = {Code.CONFLICT, Code.LOG_NOT_FOUND, Code.GONE, Code.THROTTLED}


class World:
    """One seed: lives one after the other on one disk."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop)
        self.disk = HostileDisk()
        self.state_journal = StateJournal()
        self.versions = self.looks = self.missed = 0
        self._beside: list[asyncio.Task[None]] = []
        self._caps = Caps(tail_bytes=self.random.choice((400, 3000)))
        self._pace = UpkeepPace(seal_bytes=self.random.choice((900, 6000)), disk_sync_ms=200)
        self._retention = Retention(self.random.choice((1, 2, 5)), self.random.choice((0, 500)))

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
            pool=Unhurried(),
            delay_s=lambda: random.choice((0.0, 0.001, 0.02)),
        )
        engine = started.engine
        before = self.state_journal
        self.state_journal = StateJournal(records=before.records)
        if before.pages:
            before.judge(before.promised, len(before.pages) - 1, picture(engine.state))
        for live in list(engine.open_logs.values()):
            if live.log.owner == FLAGS:
                await check_versions(engine, live, before.records)
        self.state_journal.watch(engine)
        versions = ManifestVersions(engine, self._retention)
        works = (started.upkeep.run(), versions.run(), self._compact())
        self._beside = [asyncio.create_task(work) for work in works]
        client = Client(engine, self.state_journal)
        clients = [asyncio.create_task(self._work(client, versions)) for _ in range(CLIENTS)]
        ended, _ = await asyncio.wait(clients, timeout=random.uniform(0.05, 3.0))
        for task in (*ended, *(task for task in self._beside if task.done())):
            task.result()

    async def _compact(self) -> None:
        """The pipeline rewrites segments, and erases what is dead, all the time."""
        rival = Rival(LocalObjects(HostileDisk(self.disk.world)), self.random)
        while True:
            await asyncio.sleep(self.random.choice((0.1, 0.7)))
            rival.act()

    async def _work(self, client: Client, versions: ManifestVersions) -> None:
        """One thing after another, for ever."""
        while True:
            try:
                await self._act(client, versions)
            except ContentsMissing:
                self.missed += 1
            except Refused as refused:
                if refused.code not in EXPECTED:
                    raise
            await asyncio.sleep(self.random.choice((0.0, 0.0, 0.01, 0.2)))

    async def _act(self, client: Client, versions: ManifestVersions) -> None:
        random, engine = self.random, client.engine
        name = random.choice(NAMES)
        log = engine.state.by_name.get(name)
        choice = random.random()
        if log is None:
            await client.told(namespace(engine, name))
        elif choice < 0.04:
            await client.told(versions.delete(engine.open_logs[log.id]))
        elif choice < 0.6:
            files = {
                path: random.choice(CONTENTS)
                for path in random.sample(PATHS, random.randrange(len(PATHS)))
            }
            if_version = random.choice((None, None, log.head))
            await client.told(upload(versions, engine.open_logs[log.id], files, if_version))
            self.versions += 1
        elif engine.open_logs[log.id].visible:
            await self._look(engine, versions, engine.open_logs[log.id])

    async def _look(self, engine: Engine, versions: ManifestVersions, live: OpenLog) -> None:
        """What is available has all its contents; else it is not available any more by now."""
        oldest = await versions.oldest(live)
        version = self.random.randint(oldest, live.visible)
        tree = await versions.tree(live, version)
        contents = await engine.contents.read(tree.values())
        self.looks += 1
        assert all(digest(content) == each for each, content in contents.items())
        if contents.keys() != set(tree.values()):
            engine.check_alive(live)
            assert version < await versions.oldest(live)


def simulate(seed: int) -> None:
    world = World(seed)
    few = mock.patch("headrace.surfaces.flags.version_rows.TREE_ROWS_MAX", 4)
    with closing(world.loop), small(), few:
        for _ in range(LIVES):
            world.live()
    assert world.versions > 20, "too little happened"
    assert world.looks > 5, "nobody looked"


@pytest.mark.parametrize("seed", FIXED)
def test_lives_of_manifests(seed: int) -> None:
    simulate(seed)


@pytest.mark.soak
def test_fresh_lives_of_manifests(fresh_seeds: Iterator[int]) -> None:
    for seed in fresh_seeds:
        simulate(seed)
