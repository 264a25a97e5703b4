"""Small data directories with a bit of everything in them, made by a real engine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest import mock

import pytest

from headrace import cli
from headrace.core.config import Durability, LogConfig
from headrace.core.match import TagEq
from headrace.core.record import draft
from headrace.engine.caps import Caps
from headrace.engine.engine import Engine, EngineParts
from headrace.engine.start import Started, start, stop
from headrace.engine.upkeep.cycle import UpkeepPace
from headrace.formats.frame import read_frames
from headrace.storage.disk import RealDisk
from headrace.storage.journal import Journal, Progress
from headrace.storage.objects import LocalObjects
from support.inline_ports import CountedIds, Inline, InlineSealer

PACE = UpkeepPace(seal_bytes=4096)
LOGS = {
    "plain": LogConfig(),
    "synced": LogConfig(durability=Durability.FSYNC),
    "capped": LogConfig(cap_records=12),
    "aging": LogConfig(ttl_ms=60_000),
    "passing": LogConfig(durability=Durability.EPHEMERAL),
}


class _Clock:
    def __init__(self) -> None:
        self._now_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        self._now_ms += 1000
        return self._now_ms

    def now_ns(self) -> int:
        return self.now_ms() * 1_000_000


class _InlineWriter:
    """Commits on the loop, as soon as it comes to it."""

    def __init__(self, journal: Journal, loop: asyncio.AbstractEventLoop) -> None:
        self._journal = journal
        self._loop = loop

    def wake(self) -> None:
        self._loop.call_soon(self._journal.commit, self._report)

    def _report(self, progress: Progress) -> None:
        self._loop.call_soon(self._journal.reached, progress)

    def close(self) -> None:
        pass


async def boot(root: Path) -> Started:
    disk, pool = RealDisk(root), Inline()
    objects = LocalObjects(disk)
    return await start(
        EngineParts(
            disk=disk,
            objects=objects,
            clock=_Clock(),
            pool=pool,
            sealer=InlineSealer(disk, objects, pool),
            ids=CountedIds(),
            writer=_InlineWriter,
            caps=Caps(tail_bytes=32_768),
            pace=PACE,
        )
    )


async def fill(engine: Engine, rounds: int) -> None:
    for number in range(rounds):
        for name, config in LOGS.items():
            datas = [b'{"n":%d,"pad":"%s"}' % (number, b"x" * 20 * size) for size in range(3)]
            await engine.appender.append(
                name,
                draft(datas, [b'{"m":1}', None, None], ["a", None, f"t{number}"], ["n1", None, ""]),
                owner="topics",
                create=config,
                key=f"key-{number}-{engine.journal.tail}",
            )


async def _build(root: Path, *, clean: bool) -> None:
    started = await boot(root)
    engine, upkeep = started.engine, started.upkeep
    for _ in range(3):
        await fill(engine, 4)
        await upkeep.checkpoint()
    await engine.appender.append("dropped", draft([b"1"]), owner="topics", create=LogConfig())
    await engine.logs.drop("dropped", if_empty=False)
    await engine.deleter.delete("plain", 6, None)
    await engine.deleter.delete("synced", None, TagEq("t3"))
    await fill(engine, 8)
    await upkeep.checkpoint()
    await fill(engine, 2)
    upkeep.close_file()
    await fill(engine, 1)
    if clean:
        await stop(started)
    else:
        await engine.journal.close()


def build(root: Path, *, clean: bool = True) -> Path:
    """A directory with sealed segments, snapshots and an unsealed end of the journal."""
    root.mkdir()
    with (
        mock.patch("headrace.formats.segment.ROW_GROUP_ROWS", 16),
        mock.patch("headrace.core.state.RESERVE_SEQS_MIN", 8),
        mock.patch("headrace.engine.open_log.RESERVE_SEQS_MIN", 8),
    ):
        asyncio.run(_build(root, clean=clean))
    return root


def fingerprint(root: Path) -> dict[str, tuple[int, bytes]]:
    """Everything below a folder, and when it was changed."""
    return {
        str(path.relative_to(root)): (
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in (root, *sorted(root.rglob("*")))
    }


def content_of(path: Path) -> bytes:
    """The frames of a journal file, without what is blank behind them."""
    raw = path.read_bytes()
    frames = read_frames(memoryview(raw), int(path.stem), str(path), final=True)
    return raw[: sum(frame.size for frame in frames)]


def replace(path: Path, content: bytes) -> None:
    """Other bytes, and blank behind them as far as the file was."""
    path.write_bytes(content.ljust(path.stat().st_size, b"\0"))


def flip(path: Path, offset: int) -> None:
    """Damage one bit of a file."""
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x10
    path.write_bytes(content)


def run_command(*argv: str) -> int:
    """Run `headrace …` in this process, without touching its log; returns the exit status."""
    with mock.patch("headrace.offline.start_log"), pytest.raises(SystemExit) as ended:
        cli.main(argv)
    assert isinstance(ended.value.code, int)
    return ended.value.code
