"""What a store is asked for one log among many, and while it changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest

from headrace.client.store import Missing, Store
from headrace.core.errors import Corrupt
from headrace.formats.manifest import Manifest
from headrace.formats.segment import Piece
from headrace.spark import catalog
from support.segment_store import SegmentStore, payloads
from support.source_world import SourceWorld


@pytest.mark.parametrize("how", ["path", "url path"])
def test_one_log_among_many_costs_what_it_has(tmp_path: Path, how: str) -> None:
    """Not what all of them have: segments may hold 100,000 logs."""
    world = SourceWorld(SegmentStore(tmp_path))
    for _ in range(3):
        rows = {f"log-{n:03}": payloads(3) for n in range(200)}
        world.shelf.seal(rows, group_rows=30)
    made: list[Piece] = []
    read: list[int] = []

    def piece(*row: Any) -> Piece:
        made.append(Piece(*row))
        return made[-1]

    def read_row_group(file: pq.ParquetFile, group: int, **more: Any) -> Any:
        read.append(group)
        return whole(file, group, **more)

    whole = pq.ParquetFile.read_row_group
    with (
        patch.object(catalog, "Piece", piece),
        patch.object(pq.ParquetFile, "read_row_group", read_row_group),
    ):
        assert len(world.batch(how, log="log-123")) == 9
    groups = 3 * 2 if how == "path" else 3
    assert len(read) <= groups, "names and rows of the row groups that it is in"
    assert len(made) <= 3 * (10 + 1)


def test_the_server_s_own_logs_are_not_read_from_the_store(tmp_path: Path) -> None:
    """From the store alone; a server does not tell of them."""
    world = SourceWorld(SegmentStore(tmp_path))
    world.shelf.seal({"__flags/contents": payloads(3), "flags:acme:a": payloads(2)})
    assert world.batch("path", log="*") == [("flags:acme:a", 1), ("flags:acme:a", 2)]
    for named in ("__flags/contents", "__flags/*", "__*"):
        with pytest.raises(LookupError):
            world.batch("path", log=named)


def test_marks_that_were_replaced_while_somebody_read(tmp_path: Path) -> None:
    """The server removes the old ones at once."""
    world = SourceWorld(SegmentStore(tmp_path))
    world.shelf.seal({"a": payloads(5)})
    world.shelf.mark({"a": [1, 1]})
    before = world.shelf.manifest
    world.shelf.mark({"a": [1, 2]})
    assert before.marks is not None
    world.shelf.remove(before.marks.name)
    manifests: list[Manifest] = [before, world.shelf.manifest]
    with patch.object(
        Store, "manifest", lambda _: manifests[0] if len(manifests) == 1 else manifests.pop(0)
    ):
        assert world.batch("path", log="a") == [("a", 3), ("a", 4), ("a", 5)]
    with patch.object(Store, "manifest", lambda _: before), pytest.raises(Missing, match="marks"):
        world.batch("path", log="a")


@pytest.mark.parametrize("which", ["marks", "companions"])
def test_marks_and_indexes_that_are_not_what_was_published(tmp_path: Path, which: str) -> None:
    """They would be read without a word: others of the same form."""
    world = SourceWorld(SegmentStore(tmp_path))
    segments = [world.shelf.seal({"a": payloads(5)}) for _ in range(2)]
    world.shelf.mark({"a": [1, 1]})
    old = world.shelf.manifest.marks
    assert old is not None
    others = bytes(world.shelf.objects.get(old.name))
    world.shelf.mark({"a": [1, 2]})
    new = world.shelf.manifest.marks
    assert new is not None
    if which == "marks":
        world.shelf.objects.put(new.name, others)
    else:
        index = bytes(world.shelf.objects.get(segments[1].index))
        world.shelf.objects.put(segments[0].index, index)
    with pytest.raises(Corrupt, match=f"{which}/.*checksum"):
        world.batch("path", log="a")
