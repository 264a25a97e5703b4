"""The sync process: what it says when a sync works, fails, or nobody is there any more."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.processes.sync_process import SyncProcess


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


def _sync(sync: SyncProcess) -> None:
    sync.start()
    sync.finish()
