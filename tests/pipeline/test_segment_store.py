"""Stores that seeds decide are what they say."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from headrace.core.errors import Corrupt
from headrace.formats.segment import derive
from headrace.pipeline.store_location import check_object, load
from support.segment_store import Layout, SegmentStore, layouts


@settings(max_examples=20)
@given(layouts())
def test_a_store_is_what_its_shelf_tells(shape: Layout) -> None:
    with TemporaryDirectory() as folder:
        shelf = SegmentStore(Path(folder)).fill(shape)
        manifest, marks = load(shelf.objects)
        assert len(manifest.segments) == shape.segments
        found = {}
        for segment in manifest.segments:
            file = pq.ParquetFile(shelf.objects.open(segment.name))
            index = pq.read_table(shelf.objects.open(segment.index))
            assert index.equals(pq.read_table(pa.BufferReader(derive(file).index)))
            assert max(index.column("rows").to_pylist()) <= shape.group_rows
            for row in file.read().to_pylist():
                if not marks.is_dead(row["log_id"], row["seq"]):
                    assert (row["log"], row["seq"]) not in found
                    found[row["log"], row["seq"]] = row["data"]
        assert found == shelf.live()
        again = SegmentStore(Path(folder) / "again").fill(shape)
        assert again.live() == found
        assert [s.checksum for s in again.manifest.segments] == [
            s.checksum for s in manifest.segments
        ]


def test_logs_lie_in_several_row_groups_and_came_anew(shelf: SegmentStore) -> None:
    """The shape that the defaults have is one that shows mistakes."""
    shelf.fill(Layout(seed=1, logs=4, recreated=2, dropped=1, dead=0.3))
    segment = shelf.manifest.segments[0]
    index = pq.read_table(shelf.objects.open(segment.index))
    groups = index.group_by("log_id").aggregate([("row_group", "count_distinct")])
    assert max(groups.column("row_group_count_distinct").to_pylist()) > 2
    assert max(shelf.ids.values()) > 4, "no log was made anew"
    assert 0 < len(shelf.live()) < len(shelf.all)
    assert "log-3" not in {name for name, _ in shelf.live()}
    heads = [seq for name, seq in shelf.all if name == "log-1"]
    assert len(heads) < max(heads), "no seq was lost"


def test_damage_is_there_and_nowhere_else(shelf: SegmentStore) -> None:
    shelf.fill(Layout(seed=2, segments=3))
    spoilt, gone, whole = shelf.manifest.segments
    before = bytes(shelf.objects.get(spoilt.name))
    shelf.damage(spoilt.name, 5, seed=7)
    shelf.remove(gone.name)
    after = shelf.objects.get(spoilt.name)
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 5
    with pytest.raises(Corrupt, match=spoilt.name):
        check_object(shelf.objects, spoilt.name, spoilt.checksum)
    with pytest.raises(FileNotFoundError):
        shelf.objects.get(gone.name)
    check_object(shelf.objects, whole.name, whole.checksum)
