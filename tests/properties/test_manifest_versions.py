"""Random histories of manifests: every version that is available is read back as it was put, and
what is stored is what available versions name, counted naively.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import closing
from random import Random
from unittest import mock

import pytest

from headrace.core.errors import Code, Refused
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog
from headrace.engine.start import Started, stop
from headrace.storage.checks.findings import Problem
from headrace.storage.objects import LocalObjects
from headrace.storage.verification import Verification
from headrace.surfaces.flags.versions import ManifestVersions, Retention
from support.engine_harness import boot, small
from support.hostile import HostileDisk
from support.manifests import Files, download, lifetimes, namespace, upload
from support.rival import Rival
from support.soak import Seeds
from support.virtual import VirtualClock, VirtualLoop

RETENTION = Retention(versions=3, age_ms=1000)
NAMES = ("flags:acme:one", "flags:acme:two", "flags:zoo:one")
PATHS = tuple(f"flags/{letter}.toml" for letter in "abcdefg")
CONTENTS = tuple(b"content %d" % number for number in range(6))


class Story:
    """One engine, and what a list of all that was ever put says of it."""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self._random = Random(seed)
        self._clock = VirtualClock(loop)
        self._disk = HostileDisk()
        self._histories: dict[str, list[tuple[int, Files]]] = {}
        """Name → (time, files) of each version."""
        self._started: Started

    @property
    def _engine(self) -> Engine:
        return self._started.engine

    async def live(self, steps: int) -> None:
        await self._boot()
        for _ in range(steps):
            weights = {
                self._put: 12,
                self._delete: 1,
                self._prune: 5,
                self._wait: 3,
                self._seal: 2,
                self._compact: 3,
                self._restart: 1,
            }
            step = self._random.choices([*weights], [*weights.values()])[0]
            await step()
            await self._check_references()
        for name in self._histories:
            await self._check_versions(name)
        await self._stop()
        findings = Verification(self._disk).run()
        assert [found for found in findings if isinstance(found, Problem)] == []

    async def _boot(self) -> None:
        self._started = await boot(self._disk, self._clock)
        self._upkeep = asyncio.create_task(self._started.upkeep.run())
        self._versions = ManifestVersions(self._engine, RETENTION)

    async def _stop(self) -> None:
        self._upkeep.cancel()
        await stop(self._started)

    async def _put(self) -> None:
        name = self._random.choice(NAMES)
        live = await namespace(self._engine, name)
        history = self._histories.setdefault(name, [])
        files = dict(history[-1][1]) if history else {}
        for path in self._random.sample(PATHS, self._random.randint(0, 3)):
            if path in files and self._random.random() < 0.4:
                del files[path]
            else:
                files[path] = self._random.choice(CONTENTS)
        row = await upload(self._versions, live, files, self._random.choice((None, len(history))))
        history.append((self._clock.now_ms(), files))
        assert row.version == len(history)
        with pytest.raises(Refused) as refused:
            await upload(self._versions, live, files, len(history) + self._random.choice((-1, 1)))
        assert refused.value.code is Code.CONFLICT

    async def _delete(self) -> None:
        name = self._random.choice(NAMES)
        if name in self._histories:
            await self._versions.delete(self._live(name))
            del self._histories[name]

    async def _prune(self) -> None:
        for name in self._histories:
            live = self._live(name)
            while await self._versions.prune(live):
                pass
            assert self._engine.contents.held_from(live) == self._oldest(name, live)

    async def _wait(self) -> None:
        await asyncio.sleep(self._random.choice((0.1, 0.5, 1.5)))  # of the virtual clock

    async def _seal(self) -> None:
        await self._engine.seal()

    async def _compact(self) -> None:
        """The pipeline rewrites segments, and erases what is dead."""
        Rival(LocalObjects(HostileDisk(self._disk.world)), self._random).act()

    async def _restart(self) -> None:
        if self._random.random() < 0.5:
            await self._started.upkeep.snapshot()
        await self._stop()
        self._disk.world.locked.clear()
        await self._boot()

    def _live(self, name: str) -> OpenLog:
        return self._engine.open_logs[self._engine.state.by_name[name].id]

    def _oldest(self, name: str, live: OpenLog) -> int:
        """The oldest version that is available, looked for one by one."""
        times = [at_ms for at_ms, _ in self._histories[name]]
        since_ms = self._clock.now_ms() - RETENTION.age_ms
        available = [
            version
            for version, at_ms in enumerate(times, 1)
            if version > len(times) - RETENTION.versions or at_ms > since_ms
        ]
        return max(min(available), self._engine.contents.held_from(live))

    async def _check_references(self) -> None:
        """Every reference there is, and the records, by a walk over all that was put."""
        held = self._engine.contents.held
        if held is None:
            assert not any(self._histories.values())
            return
        expected: Counter[bytes] = Counter()
        for name, history in self._histories.items():
            live = self._live(name)
            oldest = held.held_from[live.log.id]
            expected += lifetimes([files for _, files in history], oldest)
            rows = [await self._versions.row(live, at + 1) for at in range(len(history))]
            whole = [row.tree for row in rows[rows[oldest - 1].base - 1 :] if row.tree is not None]
            expected += Counter(map(bytes.fromhex, whole))
        assert held.held_from.keys() == {self._live(name).log.id for name in self._histories}
        assert Counter({digest: held.references(digest) for digest in held}) == expected
        log = self._engine.state.by_name["__flags/contents"]
        assert (log.count, log.size_bytes) == (len(held), held.size_bytes)

    async def _check_versions(self, name: str) -> None:
        live, history = self._live(name), self._histories[name]
        oldest = await self._versions.oldest(live)
        assert oldest == self._oldest(name, live)
        heads = await self._versions.rows(live, None, len(history))
        assert [head.version for head in heads] == list(range(len(history), 0, -1))
        for version, (_, files) in enumerate(history, 1):
            if version >= oldest:
                found = await download(self._engine, self._versions, live, version)
                assert found == files, f"{name}, version {version}"
            else:
                with pytest.raises(Refused) as refused:
                    await self._versions.tree(live, version)
                assert refused.value.code is Code.GONE
        # Nothing of trees is left in memory: rows and stored trees say the same.
        again = ManifestVersions(self._engine, RETENTION)
        for version in range(oldest, len(history) + 1):
            files = history[version - 1][1]
            assert await download(self._engine, again, live, version) == files


def tell(seed: int, steps: int = 60) -> None:
    loop = VirtualLoop()
    with (
        small(),
        closing(loop),
        mock.patch("headrace.surfaces.flags.version_rows.TREE_ROWS_MAX", 4),
    ):
        loop.run(Story(loop, seed).live(steps))


@pytest.mark.parametrize("seed", range(8))
def test_versions_and_contents_are_what_was_put(seed: int) -> None:
    tell(seed)


@pytest.mark.soak
def test_fresh_histories(fresh_seeds: Seeds) -> None:
    for seed in fresh_seeds:
        tell(seed, steps=300)
