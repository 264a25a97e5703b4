"""The sync process: what it says when a sync works, fails, or nobody is there any more."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.core.entry import Reserve
from headrace.core.errors import Code, Refused
from headrace.formats import layout
from headrace.processes.sync_process import SyncProcess
from headrace.storage.disk import RealDisk
from headrace.storage.journal import Journal
from headrace.storage.loopwriter import LoopWriter


@pytest.fixture
def sync() -> Iterator[SyncProcess]:
    process = SyncProcess()
    yield process
    process.close()


def test_a_file_is_synced_and_then_another(sync: SyncProcess, tmp_path: Path) -> None:
    for name in ("first", "second"):
        with open(tmp_path / name, "wb", buffering=0) as file:
            file.write(b"bytes")
            sync.use(file.fileno())
        # Handed over, it outlives our own descriptor.
        sync.start()
        sync.finish()


def test_a_sync_that_fails_says_why(sync: SyncProcess) -> None:
    reader, writer = os.pipe()  # cannot be synced
    sync.use(writer)
    sync.start()
    with pytest.raises(OSError, match="Invalid argument") as failed:
        sync.finish()
    assert failed.value.errno == errno.EINVAL
    os.close(reader)
    os.close(writer)


def test_a_process_that_is_gone_is_a_failure(sync: SyncProcess, tmp_path: Path) -> None:
    with open(tmp_path / "file", "wb") as file:
        sync.use(file.fileno())
    sync._process.kill()
    sync._process.wait()
    with pytest.raises(OSError, match=r"gone|pipe|reset"):
        _sync(sync)


def test_a_file_that_did_not_arrive_is_a_failure(sync: SyncProcess, tmp_path: Path) -> None:
    """The process may have no descriptor left for it; to sync the file before would be a lie."""
    with open(tmp_path / "file", "wb") as file:
        sync.use(file.fileno())
    _sync(sync)
    sync._socket.send(b"f")
    with pytest.raises(OSError, match=r"gone|pipe|reset"):
        _sync(sync)


@pytest.mark.parametrize("how", ["not handed over", "process gone"])
def test_a_journal_goes_by_no_sync_of_another_file_or_of_nobody(
    sync: SyncProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async def work() -> None:
        disk = RealDisk(tmp_path)
        disk.make_folder(layout.JOURNAL)
        journal = Journal(disk, 0)
        journal.open(lambda journal, loop: LoopWriter(journal, loop, sync))
        sync.use(journal.fileno())
        good = journal.enqueue([Reserve(1, 1)], sync=True)
        await journal.wait_synced(good)
        if how == "not handed over":
            monkeypatch.setattr(sync, "use", _refuse)
            journal.rotate()
        else:
            sync._process.kill()
        with pytest.raises(Refused) as refused:
            await journal.wait_synced(journal.enqueue([Reserve(1, 2)], sync=True))
        assert refused.value.code is Code.READ_ONLY
        assert journal.synced == good
        await journal.close()

    asyncio.run(work())
    assert (tmp_path / layout.UNSYNCED).exists(), "the next start has to know"


def _refuse(file: int) -> None:
    raise OSError(errno.EMFILE, "no descriptor is left")


def _sync(sync: SyncProcess) -> None:
    sync.start()
    sync.finish()
