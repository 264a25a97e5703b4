"""The sealing process: it makes way for others, and takes its share when told to hurry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace.formats import layout
from headrace.processes.seal_process import ProcessSealer
from headrace.storage.disk import RealDisk
from headrace.storage.sealing import SealFailed, SealJob, Unreadable


@asynccontextmanager
async def _sealer(root: Path) -> AsyncIterator[ProcessSealer]:
    """A sealer whose process ends with the test, however that ends."""
    sealer = ProcessSealer(root)
    try:
        yield sealer
    finally:
        await sealer.close()


def step_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/autogroup").read_text().split()[-1])


@pytest.mark.skipif(
    not Path("/proc/self/autogroup").exists(), reason="processors are not shared out by session"
)
def test_its_session_steps_back_unless_there_is_a_hurry(tmp_path: Path) -> None:
    async def work() -> None:
        RealDisk(tmp_path).make_folder("journal")
        async with _sealer(tmp_path) as sealer:
            sealer.hurry(True)  # there is no process yet
            await sealer.blank("journal/spare", 1000)
            assert sealer._process is not None
            pid = sealer._process.pid
            assert step_of(pid) == 0
            sealer.hurry(False)
            assert step_of(pid) == 10
            sealer.hurry(True)
            assert step_of(pid) == 0

    asyncio.run(work())


def test_it_tells_a_damaged_journal_from_what_may_pass(tmp_path: Path) -> None:
    async def work() -> None:
        disk = RealDisk(tmp_path)
        disk.make_folder("journal")
        disk.write(layout.journal_file(0), (b"no frame",))
        disk.write(layout.journal_file(8), ())
        async with _sealer(tmp_path) as sealer:
            with pytest.raises(Unreadable, match="byte 0: damaged frame"):
                await sealer.seal(SealJob(1, "a", 0, 8, {}))
            with pytest.raises(SealFailed) as failed:
                await sealer.blank("nowhere/spare", 10)
            assert not isinstance(failed.value, Unreadable)

    asyncio.run(work())
