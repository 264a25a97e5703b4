"""Keeping snapshots: written aside, synced, renamed; the newest valid one counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.formats.snapshot import Captured, SnapshotHead, decode_snapshot
from headrace.observe import log_line
from headrace.storage.disk import Disk, write_atomically

KEEP = 2


def write(disk: Disk, position: int, parts: Iterable[bytes]) -> None:
    """Store a snapshot; durable when this returns. Older ones than the last two go."""
    write_atomically(disk, layout.snapshot_file(position), parts)
    for name in disk.list(layout.SNAPSHOTS)[:-KEEP]:
        disk.remove(f"{layout.SNAPSHOTS}/{name}")


def load(disk: Disk) -> tuple[SnapshotHead, Iterator[Captured], bool] | None:
    """The newest snapshot that is whole, and whether it is the newest of all; None without any."""
    names = disk.list(layout.SNAPSHOTS)
    for name in reversed(names):
        path = f"{layout.SNAPSHOTS}/{name}"
        try:
            return *decode_snapshot(disk.read(path), path), name == names[-1]
        except Corrupt as damage:
            log_line("warning", "snapshot is damaged, trying the one before", problem=str(damage))
    return None
