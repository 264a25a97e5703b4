"""Snapshots: whole, and every log in them in a state that can be."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator

import msgspec

from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.formats.manifest import Manifest
from headrace.formats.snapshot import Captured, SnapshotHead, decode_snapshot
from headrace.storage.checks.findings import Advance, Finding, Problem
from headrace.storage.checks.findings import log as of_log
from headrace.storage.checks.states import state_problems
from headrace.storage.disk import Disk


class Reach(msgspec.Struct, frozen=True):
    """What the snapshots, or the manifest with them, say of the journal."""

    needed_from: int = 0
    """Nothing below this position is read again."""
    synced_to: int = 0
    """Everything up to here was on stable storage once."""


def check_snapshots(
    disk: Disk, manifest: Manifest | None, advance: Advance
) -> Generator[Finding, None, Reach]:
    """Findings of all snapshots; returns what they say of the journal."""
    reach = Reach()
    for name in disk.list(layout.SNAPSHOTS):
        path = f"{layout.SNAPSHOTS}/{name}"
        raw = disk.read(path)
        try:
            head, parts = decode_snapshot(raw, path)
        except Corrupt as damage:
            yield Problem(damage.where, f"byte {damage.offset}", damage.problem)
        else:
            captured = list(parts)
            yield from _check_head(path, head, manifest)
            yield from _check_captured(path, head, captured)
            positions = [reach.synced_to, head.position, *(item.position for item in captured)]
            reach = Reach(head.position, max(positions))
        advance(len(raw))
    return reach


def _check_head(path: str, head: SnapshotHead, manifest: Manifest | None) -> Iterator[Finding]:
    if layout.snapshot_file(head.position) != path:
        yield Problem(path, "", f"is a snapshot of position {head.position}")
    if manifest is not None and head.manifest > manifest.version:
        what = f"reflects manifest version {head.manifest}; the newest is {manifest.version}"
        yield Problem(path, "", what)


def _check_captured(
    path: str, head: SnapshotHead, captured: Iterable[Captured]
) -> Iterator[Finding]:
    ids: set[int] = set()
    names: set[str] = set()
    for item in captured:
        if item.id in ids or item.id >= head.next_id or item.position < head.position:
            what = f"log {item.id} at position {item.position} does not fit the snapshot"
            yield Problem(path, "", what)
        ids.add(item.id)
        if item.log is None:
            continue
        place = of_log(item.log.name)
        if item.log.id != item.id or item.log.name in names:
            yield Problem(path, place, "its id or name is that of another log")
        names.add(item.log.name)
        for what in state_problems(item.log):
            yield Problem(path, place, what)
