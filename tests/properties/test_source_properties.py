"""The data source over stores of every shape: every record that is wanted comes once, from where it
lies, in batches and in streams, with a server, without a store, without a server.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.spark import streaming
from headrace.spark.rows import DataLost
from support.segment_store import Layout, SegmentStore, layouts
from support.source_world import Found, SourceWorld

EVERY_WAY = ("url path", "url", "path")
bounds = st.fixed_dictionaries(
    {}, optional={"from_seq": st.integers(1, 60), "to_seq": st.integers(1, 60)}
).filter(lambda given: given.get("from_seq", 1) <= given.get("to_seq", 60))
paces = st.sampled_from(
    [
        {},
        {"maxRowsPerTrigger": 2},
        {"maxRowsPerTrigger": 13},
        {"maxBytesPerTrigger": 30},
        {"maxBytesPerTrigger": 400},
        {"maxFilesPerTrigger": 1},
        {"maxFilesPerTrigger": 3, "maxRowsPerTrigger": 20},
    ]
)
appends = st.lists(st.tuples(st.sampled_from(("log-0", "log-1")), st.integers(1, 9)), max_size=2)


def within(found: Found, given: dict[str, Any]) -> Found:
    return [
        (name, seq)
        for name, seq in found
        if given.get("from_seq", 1) <= seq <= given.get("to_seq", 1 << 62)
    ]


@settings(max_examples=20)
@given(layouts(), appends, bounds)
def test_a_batch_is_what_is_there(
    shape: Layout, more: list[tuple[str, int]], given: dict[str, Any]
) -> None:
    with TemporaryDirectory() as folder:
        world = SourceWorld(SegmentStore(Path(folder)).fill(shape))
        for name, count in more:
            if name in world.names:
                world.append(name, count)
        if not world.names:
            return
        for how in EVERY_WAY:
            expected = world.live() if "url" in how else world.sealed()
            found = world.batch(how, log="log-*", **given)
            assert found == within(expected, given), how
            if how == "url path":
                assert not world.asked & {*world.shelf.live()}, "not asked where they lie"


@settings(max_examples=20)
@given(layouts(), st.integers(1, 12), bounds, st.booleans())
def test_segments_that_are_replaced_between_plan_and_task(
    shape: Layout, group_rows: int, given: dict[str, Any], clean: bool
) -> None:
    """Their live rows lie elsewhere by then: each is read once all the same."""
    with TemporaryDirectory() as folder:
        shelf = SegmentStore(Path(folder, "data")).fill(shape)
        for how in ("url path", "path"):
            world = SourceWorld(shelf.copy(Path(folder, how)))
            if not world.names:
                return
            for name in world.names:
                world.append(name, 2)
            rewrite = partial(world.shelf.rewrite, group_rows=group_rows, clean=clean)
            expected = world.live() if "url" in how else world.sealed()
            found = world.batch(how, rewrite, log="log-*", **given)
            assert found == within(expected, given), how
            if expected:
                assert world.batch("url path", log="log-*") == world.live()


small = layouts(logs=2, rows_max=15, recreated=0, dropped=0)


@settings(max_examples=20)
@given(small, appends, bounds, paces, st.booleans(), appends)
def test_a_stream_brings_everything_once(
    shape: Layout,
    more: list[tuple[str, int]],
    given: dict[str, Any],
    pace: dict[str, Any],
    sealed: bool,
    later: list[tuple[str, int]],
) -> None:
    """In steps that are not too large, to the very end; a second run goes on behind the first."""
    with TemporaryDirectory() as folder:
        shelf = SegmentStore(Path(folder, "data")).fill(shape)
        for how in EVERY_WAY:
            world = SourceWorld(shelf.copy(Path(folder, how)))
            known = set[tuple[str, int]]()
            offset = None
            for records in (more, later, []):
                for name, count in records:
                    world.append(name, count)
                if sealed:
                    world.seal(shape.group_rows)
                batches, offset = world.available_now(how, offset, log="log-*", **given, **pace)
                there = world.live() if "url" in how else world.sealed()
                expected = [at for at in within(there, given) if at not in known]
                found = [at for batch in batches for at in batch]
                assert len(found) == len({*found})
                assert sorted(found) == expected, how
                if rows := pace.get("maxRowsPerTrigger"):
                    assert all(len(batch) <= rows for batch in batches)
                known.update(found)
            heads = {name: at["seq"] for name, at in offset["logs"].items()} if offset else {}
            for name, head in heads.items():
                last = world.head(name) if "url" in how else world.shelf.heads[name]
                assert head == max(
                    min(last, given.get("to_seq", last)), given.get("from_seq", 1) - 1
                )
            assert not batches, "what is at its end stays there"


@pytest.mark.parametrize("how", ["path", "url path"])
def test_files_are_segments_however_many_row_groups_they_have(tmp_path: Path, how: str) -> None:
    world = SourceWorld(
        SegmentStore(tmp_path).fill(Layout(logs=1, segments=3, rows_max=40, group_rows=3, dead=0))
    )
    batches, _ = world.available_now(how, None, log="log-0", maxFilesPerTrigger=1)
    assert len(batches) == 3


def test_what_is_lost_after_a_query_met_the_log_fails_it(tmp_path: Path) -> None:
    """However it is cut into batches; what was lost before that never does."""
    world = SourceWorld(
        SegmentStore(tmp_path).fill(Layout(logs=1, segments=3, rows_max=9, dead=0, skip_max=4))
    )
    assert world.shelf.heads["log-0"] > len(world.shelf.all)
    how: dict[str, Any] = {"log": "log-0", "maxRowsPerTrigger": 2}
    _, offset = world.available_now("url path", None, **how)
    last = world.head("log-0")
    world.shelf.seal({"log-0": [b"1", b"2"]}, skip=3)
    with pytest.raises(DataLost, match=f"^records {last + 1} to {last + 2} of "):
        world.available_now("url path", offset, **how)
    batches, _ = world.available_now("url path", offset, failOnDataLoss=False, **how)
    assert [seq for batch in batches for _, seq in batch] == [last + 4, last + 5]


def test_offsets_stay_small_whatever_was_lost(tmp_path: Path) -> None:
    """Many ranges are told as fewer, and none behind which a query is."""
    world = SourceWorld(
        SegmentStore(tmp_path).fill(Layout(logs=1, segments=9, rows_max=3, dead=0, skip_max=9))
    )
    with world.served(), patch.object(streaming, "LOST_RANGES_MAX", 3):
        reader = world.stream("url", log="log-0", maxRowsPerTrigger=1)
        offset, limit, held = reader.initialOffset(), reader.getDefaultReadLimit(), []
        while (end := reader.latestOffset(offset, limit)) != offset:
            reader.partitions(offset, end)
            offset = end
            held.append(offset["logs"]["log-0"].get("lost", []))
    assert len(held[0]) == 3
    assert held[-1] == []
    assert all(seq[1] > n for n, lost in enumerate(held, 1) for seq in lost)
