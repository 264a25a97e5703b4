"""Spares: what becomes one, how many there are, and that none is handed out before it is blank."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from headrace.core.limits import SPARE_BYTES_MAX, SPARES_MAX
from headrace.engine.upkeep.journal_recycling import JournalRecycling
from headrace.formats import layout
from headrace.formats.manifest import Segment
from headrace.storage.disk import Disk, make_folders
from headrace.storage.journal import Journal
from headrace.storage.memory import MemoryDisk
from headrace.storage.sealing import SealFailed, SealJob
from support.hostile import HostileDisk, Survival
from support.inline_ports import CountedIds, Inline

FILE_BYTES = 6400


class Blanker:
    """Blanks when it is let to."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.go = asyncio.Event()
        self.go.set()
        self.asked: list[tuple[str, int]] = []
        self.failure: Exception | None = None

    async def seal(self, job: SealJob) -> Segment | None:
        raise AssertionError("not asked for here")

    def hurry(self, hurried: bool) -> None:
        raise AssertionError("nor is this")

    async def blank(self, path: str, size_bytes: int) -> None:
        self.asked.append((path, size_bytes))
        await self.go.wait()
        self._disk.blank(path, size_bytes)
        if self.failure is not None:
            raise self.failure


class Bench:
    """Spares over a journal of some files that nobody needs any more."""

    def __init__(self, *sizes: int, file_bytes: int = FILE_BYTES) -> None:
        self.disk = MemoryDisk()
        self.position = 0
        for size in sizes:
            self.disk.write(layout.journal_file(self.position), (b"x" * size,))
            self.position += size
        self.disk.write(layout.journal_file(self.position), (b"open",))
        self.journal = Journal(self.disk, self.position)
        self.blanker = Blanker(self.disk)
        self.spares = JournalRecycling(
            self.journal, self.disk, self.blanker, Inline(), CountedIds(), file_bytes
        )

    @property
    def unfinished(self) -> list[str]:
        names = self.disk.list(layout.JOURNAL, unfinished=True)
        return [f"{layout.JOURNAL}/{name}" for name in names]


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_files_nobody_needs_become_spares_and_the_rest_go() -> None:
    async def work() -> None:
        bench = Bench(*[FILE_BYTES] * (SPARES_MAX + 3))
        await bench.spares.retire(bench.position - FILE_BYTES)
        assert len(bench.journal.spares) == SPARES_MAX
        assert list(bench.journal.spares) == bench.unfinished
        left = [layout.journal_file(at) for at in (bench.position - FILE_BYTES, bench.position)]
        assert sorted(bench.disk.files) == sorted([*left, *bench.unfinished])
        for path in bench.unfinished:
            assert not any(bench.disk.read(path))
        await bench.spares.retire(bench.position)
        assert len(bench.journal.spares) == SPARES_MAX

    run(work())


def test_the_open_file_stays_whatever_is_needed() -> None:
    async def work() -> None:
        bench = Bench(FILE_BYTES)
        await bench.spares.retire(1 << 60)
        assert bench.disk.exists(layout.journal_file(FILE_BYTES))

    run(work())


def test_a_spare_is_as_large_as_a_file_becomes_within_bounds() -> None:
    async def work() -> None:
        bench = Bench(10, FILE_BYTES * 10)
        await bench.spares.retire(bench.position)
        (path,) = bench.unfinished
        assert FILE_BYTES < bench.disk.size(path) < 2 * FILE_BYTES, "the small one"
        large = Bench(10, file_bytes=1 << 40)
        large.blanker.go.clear()
        task = asyncio.create_task(large.spares.retire(large.position))
        await asyncio.sleep(0)
        assert [size for _, size in large.blanker.asked] == [SPARE_BYTES_MAX]
        task.cancel()

    run(work())


def test_a_spare_is_not_there_before_it_is_blank() -> None:
    """Somebody else is writing zeroes into it."""

    async def work() -> None:
        bench = Bench(FILE_BYTES)
        bench.blanker.go.clear()
        task = asyncio.create_task(bench.spares.retire(bench.position))
        await asyncio.sleep(0)
        assert bench.blanker.asked
        assert not bench.journal.spares
        bench.blanker.go.set()
        await task
        assert len(bench.journal.spares) == 1

    run(work())


def test_one_is_made_when_the_open_file_is_half_full_and_there_is_none() -> None:
    async def work() -> None:
        bench = Bench()
        bench.journal.tail = FILE_BYTES // 2 - 1
        await bench.spares.restock()
        assert not bench.journal.spares
        bench.journal.tail += 1
        for _ in range(2):
            await bench.spares.restock()
            assert list(bench.journal.spares) == bench.unfinished
            assert len(bench.journal.spares) == 1

    run(work())


@pytest.mark.parametrize(
    "failure", [SealFailed("the process ended"), OSError(errno.ENOSPC, "full")]
)
def test_one_that_failed_takes_no_room(failure: Exception) -> None:
    async def work() -> None:
        bench = Bench(FILE_BYTES)
        bench.blanker.failure = failure
        with pytest.raises(type(failure)):
            await bench.spares.retire(bench.position)
        bench.journal.tail += FILE_BYTES
        with pytest.raises(type(failure)):
            await bench.spares.restock()
        assert bench.unfinished == []
        assert not bench.journal.spares

    run(work())


def test_a_file_that_is_written_over_never_comes_back_under_its_old_name() -> None:
    """A power loss right behind it may find the old name, but then with the old bytes."""

    async def work() -> None:
        disk = HostileDisk()
        make_folders(disk, (layout.JOURNAL,))
        old = layout.journal_file(0)
        for path in (old, layout.journal_file(FILE_BYTES)):
            disk.write(path, (b"x" * FILE_BYTES,))
        disk.sync_folder(layout.JOURNAL)
        journal = Journal(disk, FILE_BYTES)
        blanker = Blanker(disk)
        spares = JournalRecycling(journal, disk, blanker, Inline(), CountedIds(), FILE_BYTES)
        await spares.retire(FILE_BYTES)
        assert journal.spares
        for survival in Survival:
            after = disk.lose_power(survival, Random(1))
            assert not after.exists(old) or after.read(old) == b"x" * FILE_BYTES

    run(work())


def test_none_is_left_behind() -> None:
    async def work() -> None:
        bench = Bench(FILE_BYTES, FILE_BYTES)
        await bench.spares.retire(bench.position)
        await bench.spares.clear()
        assert bench.unfinished == []
        assert not bench.journal.spares

    run(work())
