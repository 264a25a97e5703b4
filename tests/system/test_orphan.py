"""A killed server leaves its sealing process behind: it must not touch what a new one made."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from .kill_history import Clock
from .launching import Servers, manifest_of, run_headrace, wait_until
from .topics_wire import Connection, read_pages

pytestmark = pytest.mark.system

SETTINGS = {"HEADRACE_SEAL_BYTES": "64KiB", "HEADRACE_TAIL_BYTES": "256KiB"}


def test_an_orphaned_sealer_does_no_harm(new_server: Servers, data_dir: Path) -> None:
    """Its job is held up until the next server has sealed the same part of the journal."""
    server = new_server(**SETTINGS).start()
    written = fill(server.port, range(20))
    wait_until(lambda: manifest_of(data_dir) > 0, "a first segment")
    with frozen(sealers_of(server.pid)) as orphans:
        assert orphans, "sealing left the server's own process family"
        written += fill(server.port, range(20, 32))
        with Connection(server.port) as connection:
            connection.ask("DELETE", "/v0/topics/dropped")
        sealed = manifest_of(data_dir)
        server.kill()
        server.start()
        wait_until(lambda: manifest_of(data_dir) > sealed, "the new server to seal")
        before = objects_of(data_dir)
    wait_until(lambda: not any(map(is_running, orphans)), "the orphan to end")
    after = objects_of(data_dir)
    touched = [path for path in before if path in after and after[path] != before[path]]
    assert touched == [], "an orphan replaced what is published"
    assert read_all(server.port) == written
    assert server.stop() == 0
    verified = run_headrace("verify", "--data-dir", str(data_dir))
    assert verified.returncode == 0, verified.stdout
    server.start()
    assert read_all(server.port) == written


def fill(port: int, numbers: range) -> list[bytes]:
    """Write to a topic that is kept and to one that will be dropped; returns what is kept."""
    kept = []
    with Connection(port) as connection:
        for number in numbers:
            for topic in ("dropped", "kept"):
                records = [{"data": f"{topic} {number} {n} {'x' * 900}"} for n in range(5)]
                connection.ask("POST", f"/v0/topics/{topic}", {"records": records})
            kept += [f'"kept {number} {n} {"x" * 900}"'.encode() for n in range(5)]
    return kept


def read_all(port: int) -> list[bytes]:
    with Connection(port) as connection:
        pages = read_pages(connection, Clock(), "kept")
    return [seen.payload.data for page in pages for seen in page.records]


def objects_of(data_dir: Path) -> dict[Path, tuple[int, int]]:
    """Published files with what changes when one is replaced, even by the same bytes."""
    folders = ("segments", "companions", "manifests")
    files = [p for folder in folders for p in data_dir.glob(f"objects/{folder}/*")]
    found = {}
    for path in files:
        with suppress(FileNotFoundError):
            found[path] = (path.stat().st_ino, path.stat().st_mtime_ns)
    return found


# --- processes ---


@contextmanager
def frozen(pids: list[int]) -> Iterator[list[int]]:
    """Hold processes up; let them go on at the end, or end them when the test failed."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    how = signal.SIGKILL
    try:
        yield pids
        how = signal.SIGCONT
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, how)


def sealers_of(pid: int) -> list[int]:
    """The sealing processes among the children of a server; it has another child that syncs."""
    children = [child for child in running() if parent_of(child) == pid]
    return [child for child in children if b"seal_process" in command_of(child)]


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def running() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def stat_of(pid: int) -> list[str]:
    """State, parent and the rest of what the kernel tells of a process; nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def parent_of(pid: int) -> int:
    stat = stat_of(pid)
    return int(stat[1]) if stat else 0


def is_running(pid: int) -> bool:
    stat = stat_of(pid)
    return bool(stat) and stat[0] not in ("Z", "X")
