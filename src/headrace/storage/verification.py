"""Verification: every checksum and invariant of a data directory, file by file and together."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from headrace.core import state as core_state
from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.formats.manifest import Manifest
from headrace.storage.checks.agreement import RECOVERY, Agreement
from headrace.storage.checks.findings import Advance, Finding, Problem
from headrace.storage.checks.journal import check_journal
from headrace.storage.checks.manifests import (
    check_manifests,
    check_named,
    check_orphans,
)
from headrace.storage.checks.segments import SegmentCheck
from headrace.storage.checks.snapshots import Reach, check_snapshots
from headrace.storage.disk import Disk
from headrace.storage.readonly import ReadOnlyDisk
from headrace.storage.recovery import Recovery
from headrace.storage.replay import journal_files
from headrace.storage.segments import UNREADABLE, Segments
from headrace.storage.stores import open_objects

_CACHE_BYTES = 16 << 20


class Workload(msgspec.Struct, frozen=True):
    """What there is to look at."""

    journal_files: int
    snapshots: int
    segments: int
    size_bytes: int
    """How far progress will go: journal and segments are looked at twice."""


class Verification:
    """One look at everything in a data directory that nobody writes to; it is not changed."""

    def __init__(
        self,
        disk: Disk,
        advance: Advance = lambda size_bytes: None,
        where: str | None = None,
    ) -> None:
        self._disk = ReadOnlyDisk(disk)
        self._objects = open_objects(where, self._disk)
        self._advance = advance

    def measure(self) -> Workload:
        """How much there is to look at."""
        journal = self._sizes(layout.JOURNAL)
        snapshots = self._sizes(layout.SNAPSHOTS)
        segments = self._object_sizes(layout.SEGMENTS)
        once = sum(snapshots) + sum(self._object_sizes(layout.COMPANIONS))
        twice = sum(journal) + sum(segments)
        return Workload(len(journal), len(snapshots), len(segments), once + 2 * twice)

    def _sizes(self, folder: str) -> list[int]:
        return [self._disk.size(f"{folder}/{name}") for name in self._disk.list(folder)]

    def _object_sizes(self, folder: str) -> list[int]:
        return [listed.size_bytes for listed in self._objects.list(folder)]

    def run(self) -> Iterator[Finding]:
        """Everything there is to say, as it is found."""
        manifest = yield from check_manifests(self._objects)
        reach = yield from check_snapshots(self._disk, manifest, self._advance)
        sealed_to = manifest.sealed_to if manifest else 0
        reach = Reach(min(reach.needed_from, sealed_to), max(reach.synced_to, sealed_to))
        yield from check_journal(self._disk, reach, self._advance)
        agreement = Agreement({}, {})
        try:
            agreement = self._recover()
        except (Corrupt, AssertionError, *UNREADABLE) as error:
            yield Problem(RECOVERY, "", f"a server would not start from this: {_said(error)}")
        yield from self._check_segments(manifest or Manifest(), agreement)
        yield from agreement.close()

    def _check_segments(self, manifest: Manifest, agreement: Agreement) -> Iterator[Finding]:
        for segment in manifest.segments:
            yield from SegmentCheck(self._objects, segment, agreement, self._advance).run()
        yield from check_named(self._objects, manifest)
        yield from check_orphans(self._objects, manifest)

    def _recover(self) -> Agreement:
        """Start as a server would, in memory."""
        journal_bytes = sum(self._disk.size(file.path) for file in journal_files(self._disk))
        done = 0

        def progress(share: float) -> None:
            nonlocal done
            self._advance(int(journal_bytes * share) - done)
            done = int(journal_bytes * share)

        segments = Segments(self._objects, _CACHE_BYTES)
        recovered = Recovery(self._disk, self._objects, segments, progress).run()
        for loss in recovered.losses:
            core_state.apply(recovered.state, loss)
        return Agreement(recovered.state.logs, recovered.blocks)


def _said(error: BaseException) -> str:
    return str(error) if isinstance(error, Corrupt) else f"{type(error).__name__}: {error}"
