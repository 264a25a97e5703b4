"""What the journal holds, counted from its files: compared with what an engine knows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace.core.config import LogConfig
from headrace.core.inbound_route import Rule
from headrace.core.record import draft
from headrace.engine.engine import Engine
from headrace.engine.routers.control import RouterPlan
from headrace.formats import layout
from headrace.formats.marks import Marks
from headrace.storage import manifests
from headrace.storage.disk import RealDisk
from headrace.storage.journal_census import Census, take_census
from headrace.storage.objects import LocalObjects
from support.directories import boot


async def append(engine: Engine, name: str, count: int, **config: int) -> None:
    drafts = draft([b'{"n":%d}' % n for n in range(count)])
    await engine.appender.append(name, drafts, owner="topics", create=LogConfig(**config))


def census(root: Path) -> Census:
    disk = RealDisk(root)
    return take_census(disk, manifests.load(LocalObjects(disk)).sealed_to, Marks())


def test_records_are_counted_as_sealing_would_find_them(tmp_path: Path) -> None:
    async def work() -> None:
        started = await boot(tmp_path)
        engine, upkeep = started.engine, asyncio.create_task(started.upkeep.run())
        await append(engine, "a", 5)
        assert census(tmp_path) == Census(unsealed=5)
        await engine.deleter.delete("a", 3, None)
        await append(engine, "capped", 4, cap_records=3)
        await append(engine, "dropped", 2)
        await engine.logs.drop("dropped", if_empty=False)
        found = census(tmp_path)
        assert (found.unsealed, found.dead, found.dead_files) == (6, 5, 1)
        assert found.dead_bytes > 0
        assert (await engine.seal()).records == found.unsealed
        found = census(tmp_path)
        assert (found.unsealed, found.dead) == (0, 5)
        await engine.routers.put("r", RouterPlan("a", "copy", Rule(), after=0), "topics")
        await engine.routers.catch_up(engine.live("copy"))
        await append(engine, "a", 1)
        await engine.routers.catch_up(engine.live("copy"))
        assert census(tmp_path).unsealed == 5, "one, and four copies"
        await engine.deleter.delete("copy", 3, None)
        assert census(tmp_path).unsealed == 3
        await engine.seal(retire=True)
        assert census(tmp_path) == Census()
        upkeep.cancel()
        await engine.journal.close()

    asyncio.run(work())
    assert census(tmp_path) == Census()


def test_files_that_go_meanwhile_hold_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        started = await boot(tmp_path)
        await append(started.engine, "a", 5)
        started.upkeep.close_file()
        await append(started.engine, "a", 2)
        await started.engine.journal.close()

    asyncio.run(work())
    assert census(tmp_path).unsealed == 7
    read = RealDisk.read

    def vanish(disk: RealDisk, path: str) -> bytes:
        if path.startswith(layout.JOURNAL) and "0" * 20 in path:
            (tmp_path / path).unlink()
        return read(disk, path)

    monkeypatch.setattr(RealDisk, "read", vanish)
    assert census(tmp_path).unsealed == 2
