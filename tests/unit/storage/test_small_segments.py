"""A log that lies in many small segments."""

from __future__ import annotations

import pytest

from headrace.core.config import LogConfig
from headrace.core.log import Extent, Log
from headrace.core.record import block, draft
from headrace.formats.manifest import Manifest, Segment
from headrace.formats.segment import LogRows
from headrace.storage import segments as reading
from headrace.storage.memory import MemoryDisk
from headrace.storage.object_store_stats import Artifact
from headrace.storage.objects import LocalObjects
from headrace.storage.sealing import SealJob, store
from headrace.storage.segments import Segments

COUNT = 20


class Looked(list[Extent]):
    """Extents that count how often one of them is looked at."""

    looks = 0

    def __getitem__(self, at: int) -> Extent:  # type: ignore[override]
        self.looks += 1
        return super().__getitem__(at)

    def __iter__(self) -> None:  # type: ignore[override]
        raise AssertionError("all of them are looked at")


def sealed() -> tuple[Segments, Log, Manifest]:
    """A log with two records in each of its segments."""
    objects, made = LocalObjects(MemoryDisk()), list[Segment]()
    for number in range(1, COUNT + 1):
        rows = LogRows(1, "one", [block(draft([b"1", b"2"]), 2 * number - 1, number)])
        segment = store(objects, SealJob(number, "a", number, number + 1, {1: "one"}), [rows])
        assert segment is not None
        made.append(segment)
    manifest = Manifest(version=1, segments=tuple(made))
    segments = Segments(objects, 1 << 20)
    segments.use(manifest)
    extents = Looked((number, 2 * number - 1, 2 * number) for number in range(1, COUNT + 1))
    return segments, Log(1, "one", "topics", LogConfig(), extents=extents), manifest


def indexes_read(segments: Segments) -> int:
    asked = segments.requests.of(1).get(Artifact.INDEX)
    return asked.gets if asked else 0


def read_all(segments: Segments, log: Log) -> list[int]:
    found = segments.blocks(log, 1, 2 * COUNT)
    return [seq for each in found for seq in range(each.first, each.last + 1)]


def test_their_indexes_are_kept_while_they_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_INDEXES_MAX", 4)
    segments, log, _ = sealed()
    for _ in range(2):
        assert read_all(segments, log) == [*range(1, 2 * COUNT + 1)]
        assert indexes_read(segments) == COUNT


def test_their_indexes_take_so_much_memory_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_INDEXES_MAX", 4)
    monkeypatch.setattr(reading, "_INDEXES_BYTES", 0)
    segments, log, manifest = sealed()
    for times in (1, 2):
        assert read_all(segments, log) == [*range(1, 2 * COUNT + 1)]
        assert indexes_read(segments) == times * COUNT
    # What the next manifest does not name does not count, either.
    monkeypatch.setattr(segments._indexes, "_bytes_max", 5 * 9000)
    segments.use(Manifest(version=2, segments=manifest.segments[:5]))
    read_all(segments, log)
    before = indexes_read(segments)
    read_all(segments, log)
    assert indexes_read(segments) == before


def test_a_record_is_found_without_looking_at_all_of_them() -> None:
    segments, log, _ = sealed()
    extents = log.extents
    assert isinstance(extents, Looked)
    for seq in (1, 2, COUNT, 2 * COUNT):
        extents.looks = 0
        found = segments.read(log, seq, 10)
        assert found is not None
        assert found.first == seq
        assert extents.looks <= COUNT.bit_length() + 1
    assert segments.read(log, 2 * COUNT + 1, 10) is None
