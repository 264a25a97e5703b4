"""Inspection: what a data directory holds, as rows. Reads only, also while a server is at work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import msgspec
import pyarrow.parquet as pq

from headrace.core import state as core_state
from headrace.core.entry import Create
from headrace.core.errors import Corrupt
from headrace.core.log import Log
from headrace.formats import layout
from headrace.formats.frame import Frame, blank_from
from headrace.formats.manifest import Segment
from headrace.storage import manifests, snapshots
from headrace.storage.disk import Disk
from headrace.storage.readonly import ReadOnlyDisk
from headrace.storage.recovery import Recovered, Recovery
from headrace.storage.replay import JournalFile, frames_of, journal_files
from headrace.storage.segments import Segments
from headrace.storage.stores import open_objects

_CACHE_BYTES = 16 << 20
_ATTEMPTS_MAX = 3
"""A server at work removes files between two looks; then we look again, this many times."""


class Folder(msgspec.Struct, frozen=True):
    files: int
    size_bytes: int


class DirectorySummary(msgspec.Struct, frozen=True, kw_only=True):
    """The whole directory in a few numbers; logs are what a server would start with."""

    journal: Folder
    journal_first: int
    """Where the oldest journal file starts."""
    journal_end: int
    """Where a server would go on writing."""
    snapshots: Folder
    snapshot_position: int | None
    segments: Folder
    companions: Folder
    manifest_version: int
    sealed_to: int
    builds: int
    """How many builds of index companions the manifest names."""
    plans: int
    marks: int
    """Generation of the plans and marks that the manifest names; 0 for none."""
    clean: bool
    """Whether the last server stopped in good order."""
    logs: int
    records: int
    record_bytes: int


class LogRow(msgspec.Struct, frozen=True):
    name: str
    id: int
    owner: str
    durability: str
    head: int
    earliest: int
    count: int
    size_bytes: int
    extents: int


class SegmentRow(msgspec.Struct, frozen=True):
    number: int
    rows: int
    logs: int
    row_groups: int
    record_bytes: int
    file_bytes: int
    journal_start: int
    journal_stop: int
    sources: str
    """The segments it was made from, if it replaced others."""


class FrameRow(msgspec.Struct, frozen=True):
    position: int
    kind: str
    log: str
    size_bytes: int
    meaning: str


class NoSuchLog(Exception):
    """The directory holds no log of this name."""


class DirectoryReport:
    """One look at a data directory."""

    def __init__(
        self,
        disk: Disk,
        progress: Callable[[float], None] = lambda share: None,
        where: str | None = None,
    ) -> None:
        self._disk = ReadOnlyDisk(disk)
        self._objects = open_objects(where, self._disk)
        self._progress = progress
        self._held: Recovered | None = None

    def summary(self) -> DirectorySummary:
        recovered = self._recovered()
        manifest = recovered.manifest
        files = journal_files(self._disk)
        loaded = snapshots.load(self._disk)
        return DirectorySummary(
            journal=self._folder(layout.JOURNAL),
            journal_first=files[0].start if files else recovered.position,
            journal_end=recovered.position,
            snapshots=self._folder(layout.SNAPSHOTS),
            snapshot_position=loaded[0].position if loaded else None,
            segments=self._objects_in(layout.SEGMENTS),
            companions=self._objects_in(layout.COMPANIONS),
            manifest_version=manifest.version,
            sealed_to=manifest.sealed_to,
            builds=len(manifest.builds),
            plans=manifest.plans.generation if manifest.plans else 0,
            marks=manifest.marks.generation if manifest.marks else 0,
            clean=recovered.clean,
            logs=len(recovered.state.logs),
            records=recovered.state.count,
            record_bytes=recovered.state.size_bytes,
        )

    def logs(self, name: str | None = None) -> list[LogRow]:
        """Every log by name, or the one of this name."""
        state = self._recovered().state
        if name is not None:
            return [_log_row(self._log(name))]
        return [_log_row(state.by_name[name]) for name in state.names("", "")]

    def segments(self, name: str | None = None) -> list[SegmentRow]:
        """The segments of the newest manifest, or those in which this log has records."""
        segments = manifests.load(self._objects).segments
        if name is not None:
            held = {number for number, _, _ in self._log(name).extents}
            segments = tuple(segment for segment in segments if segment.number in held)
        return [self._segment_row(segment) for segment in segments]

    def journal(self, name: str | None, count_max: int | None) -> tuple[list[FrameRow], int]:
        """The newest frames, of this log alone if it is named, and how many there are in all."""
        names = self._names()
        rows: deque[FrameRow] = deque(maxlen=count_max)
        count = 0
        for row in self._frame_rows(names):
            if name is None or row.log == name:
                rows.append(row)
                count += 1
        if name is not None and not count and name not in names.values():
            raise NoSuchLog(name)
        return list(rows), count

    # --- looking ---

    def _recovered(self) -> Recovered:
        """What a server would start from, were it to start now."""
        attempts = 0
        while self._held is None:
            try:
                segments = Segments(self._objects, _CACHE_BYTES)
                recovery = Recovery(self._disk, self._objects, segments, self._progress)
                self._held = recovery.run()
            except (FileNotFoundError, Corrupt):
                attempts += 1
                if attempts == _ATTEMPTS_MAX:
                    raise
        for loss in self._held.losses:
            core_state.apply(self._held.state, loss)
        self._held.losses = []
        return self._held

    def _log(self, name: str) -> Log:
        log = self._recovered().state.by_name.get(name)
        if log is None:
            raise NoSuchLog(name)
        return log

    def _folder(self, folder: str) -> Folder:
        sizes = [self._size(f"{folder}/{name}") for name in self._disk.list(folder)]
        return Folder(len(sizes), sum(sizes))

    def _objects_in(self, folder: str) -> Folder:
        sizes = [listed.size_bytes for listed in self._objects.list(folder)]
        return Folder(len(sizes), sum(sizes))

    def _size(self, path: str) -> int:
        try:
            return self._disk.size(path)
        except FileNotFoundError:
            return 0  # removed by the server since it was listed

    def _segment_row(self, segment: Segment) -> SegmentRow:
        with self._objects.open(segment.name) as file:
            row_groups = pq.ParquetFile(file).num_row_groups
        return SegmentRow(
            segment.number,
            segment.rows,
            segment.logs,
            row_groups,
            segment.record_bytes,
            segment.file_bytes,
            segment.journal_start,
            segment.journal_stop,
            " ".join(map(str, segment.sources)),
        )

    def _names(self) -> dict[int, str]:
        """The logs of the newest snapshot; the journal names the others."""
        loaded = snapshots.load(self._disk)
        return {item.id: item.log.name for item in loaded[1] if item.log} if loaded else {}

    def _frame_rows(self, names: dict[int, str]) -> Iterator[FrameRow]:
        for file in journal_files(self._disk):
            end = file.start
            try:
                for frame in frames_of(self._disk, file):
                    yield from _frame_rows(frame, names)
                    end = frame.position + frame.size
                torn = self._bytes_behind(file, end)
            except FileNotFoundError:
                continue  # gone since it was listed: a server is at work
            except Corrupt as damage:
                if self._disk.exists(file.path):
                    yield FrameRow(end, "damaged", "", 0, str(damage))
                continue
            if torn:
                yield FrameRow(end, "torn", "", torn, "bytes behind the last whole frame")

    def _bytes_behind(self, file: JournalFile, end: int) -> int:
        raw = memoryview(self._disk.read(file.path))
        behind = (file.stop or end) - file.start
        return blank_from(raw, behind) - behind


def _log_row(log: Log) -> LogRow:
    return LogRow(
        log.name,
        log.id,
        log.owner,
        log.config.durability.value,
        log.head,
        log.earliest,
        log.count,
        log.size_bytes,
        len(log.extents),
    )


def _frame_rows(frame: Frame, names: dict[int, str]) -> Iterator[FrameRow]:
    """One row for each entry; the first of a group stands for the bytes of all."""
    size = frame.size
    for entry in frame.entries:
        if isinstance(entry, Create):
            names[entry.log] = entry.name
        name = names.get(entry.log, f"#{entry.log}") if entry.log else ""
        yield FrameRow(frame.position, entry.title(), name, size, entry.describe())
        size = 0
