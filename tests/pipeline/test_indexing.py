"""Every published record is indexed exactly once, by the plan that holds, whatever happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.formats.companion import decode_descriptor
from headrace.formats.manifest import Build
from headrace.pipeline.backfill import backfill
from headrace.pipeline.commit import add_builds
from headrace.pipeline.compact import Sizes, compact
from headrace.pipeline.erase import erase
from headrace.pipeline.follow import follow
from headrace.pipeline.index import build_segment
from headrace.pipeline.index_backlog import IndexBacklogFinder
from headrace.pipeline.janitor import clean
from headrace.pipeline.merge import merge, merge_group
from headrace.pipeline.retain import retain
from headrace.storage.leases import hold_lease
from support.segment_store import SegmentStore, payloads, search

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _indexed_once(shelf: SegmentStore, log: str, field: str = "w") -> None:
    """All records of the log that are in segments are indexed, each in one build."""
    seqs = sorted(seq for name, seq in shelf.rows() if name == log)
    found = shelf.indexed(log)
    assert found[""] == seqs
    assert found[field] == seqs
    builds = [number for build in shelf.manifest.builds for number in build.segments]
    assert len(builds) == len(set(builds))
    assert set(builds) >= shelf.manifest.numbers


def test_following_indexes_what_is_there(spark: SparkSession, shelf: SegmentStore) -> None:
    for _ in range(3):
        shelf.seal({"a": payloads(20), "b": payloads(5)}, keys=["k1", "k2"])
    shelf.plan({"a": search("w")})
    statuses = []
    report = follow(spark, shelf.place, once=True, tell=lambda status: statuses.append(status))
    assert report.problems == []
    _indexed_once(shelf, "a")
    assert shelf.indexed("b") == {}
    assert {build.plans for build in shelf.manifest.builds} == {1}
    last = statuses[-1]
    assert (last.segments, last.records, last.waiting_segments) == (3, 75, 0)
    assert last.committed_at_ms


def test_following_again_finds_nothing_to_do(spark: SparkSession, shelf: SegmentStore) -> None:
    shelf.seal({"a": payloads(20)})
    follow(spark, shelf.place, once=True)
    before = shelf.manifest
    follow(spark, shelf.place, once=True)
    assert shelf.manifest == before
    assert clean(shelf.place, grace_s=0).objects == 0


def test_only_segments_of_changed_plans_are_indexed_again(
    spark: SparkSession, shelf: SegmentStore
) -> None:
    shelf.seal({"a": payloads(4)})
    shelf.seal({"b": payloads(4)})
    shelf.plan({"a": search("w")})
    backfill(spark, shelf.place)
    before = {build.segments: build.name for build in shelf.manifest.builds}
    shelf.plan({"a": search("w"), "b": search("v")})
    backfill(spark, shelf.place)
    after = {build.segments: build.name for build in shelf.manifest.builds}
    assert after[1,] == before[1,]
    assert after[2,] != before[2,]
    _indexed_once(shelf, "a")
    shelf.plan({"a": search("v"), "b": search("v")})
    backfill(spark, shelf.place)
    assert "w" not in shelf.indexed("a")


def test_merged_builds_say_the_same(spark: SparkSession, shelf: SegmentStore) -> None:
    shelf.plan({"a": search("w")})
    for _ in range(9):
        shelf.seal({"a": payloads(3)})
    backfill(spark, shelf.place)
    before = shelf.indexed("a")
    assert len(shelf.manifest.builds) == 9
    merge(spark, shelf.place)
    assert [(len(b.segments), b.level) for b in shelf.manifest.builds] == [(8, 1), (1, 0)]
    assert shelf.indexed("a") == before
    assert merge(spark, shelf.place).rows == []
    clean(shelf.place, grace_s=0)
    assert shelf.objects_there() == shelf.named()
    # A new plan for one log takes the merged build apart, whole.
    shelf.plan({"a": search("w", "v")})
    follow(spark, shelf.place, once=True)
    _indexed_once(shelf, "a", "v")
    assert [(len(b.segments), b.level) for b in shelf.manifest.builds] == [(8, 1), (1, 0)]


def test_backfill_goes_on_where_it_ended(spark: SparkSession, shelf: SegmentStore) -> None:
    shelf.plan({"a": search("w")})
    for _ in range(5):
        shelf.seal({"a": payloads(3)})
    assert "3 segments left" in backfill(spark, shelf.place, 2).summary
    assert [build.segments for build in shelf.manifest.builds] == [(1,), (2,)]
    assert "0 segments left" in backfill(spark, shelf.place).summary
    _indexed_once(shelf, "a")


def test_rewritten_segments_are_indexed_anew(spark: SparkSession, shelf: SegmentStore) -> None:
    shelf.plan({"a": search("w")})
    for word in ("x", "y", "z"):
        shelf.seal({"a": payloads(6, word)})
    backfill(spark, shelf.place)
    shelf.mark({"a": [1, 6, 8, 8]})
    erase(spark, shelf.place, now=True)
    backfill(spark, shelf.place)
    _indexed_once(shelf, "a")
    assert not any("xx" in value for value in shelf.indexed("a"))
    compact(spark, shelf.place, Sizes(run_min=2))
    backfill(spark, shelf.place)
    _indexed_once(shelf, "a")
    shelf.mark({}, dropped=["a"])
    retain(spark, shelf.place)
    assert (shelf.manifest.segments, shelf.manifest.builds) == ((), ())
    clean(shelf.place, grace_s=0)
    assert shelf.objects_there() == set()


def test_a_damaged_segment_does_not_keep_others_waiting(
    spark: SparkSession, shelf: SegmentStore
) -> None:
    for _ in range(2):
        shelf.seal({"a": payloads(3)})
    damaged = shelf.manifest.segments[0]
    shelf.objects.put(damaged.name, b"not what was sealed")
    report = follow(spark, shelf.place, once=True)
    assert [build.segments for build in shelf.manifest.builds] == [(2,)]
    assert len(report.problems) == 1
    assert damaged.name in report.problems[0]


def test_builds_of_a_newer_plan_are_not_replaced(spark: SparkSession, shelf: SegmentStore) -> None:
    shelf.plan({"a": search("w")})
    shelf.seal({"a": payloads(3)})
    backfill(spark, shelf.place)
    old = shelf.manifest.builds
    shelf.plan({"a": search("v")})
    backfill(spark, shelf.place)
    new = shelf.manifest
    with hold_lease(shelf.objects, "test") as lease:
        add_builds(shelf.objects, old, lease)
    assert shelf.manifest == new


def test_segments_that_are_gone_are_not_listed(spark: SparkSession, shelf: SegmentStore) -> None:
    shelf.seal({"a": payloads(3)})
    backfill(spark, shelf.place)
    builds = shelf.manifest.builds
    shelf.mark({}, dropped=["a"])
    retain(spark, shelf.place)
    with hold_lease(shelf.objects, "test") as lease:
        assert add_builds(shelf.objects, builds, lease).manifest.builds == ()
    assert shelf.objects.list(layout.BUILDS) != []


def test_damaged_builds_are_made_again(shelf: SegmentStore) -> None:
    """Without Spark: what the tasks and the driver say of them."""
    shelf.plan({"a": search("w")})
    segment = shelf.seal({"a": payloads(3)})
    objects, place = shelf.objects, shelf.place
    with hold_lease(objects, "test") as lease:
        build = build_segment(place, shelf.manifest.plans, 1, lease.token, (segment, None))
        assert isinstance(build, Build)
        add_builds(objects, [build], lease)
    assert isinstance(merge_group(place, "job", [build]), Build)
    described = decode_descriptor(objects.get(build.name), "")
    for name in (
        # Hashes are made anew from what they are of, and not read.
        *(file.name for file in described.files if not file.family.endswith(".hash")),
        build.name,
    ):
        whole = bytes(objects.get(name))
        shelf.damage(name)
        assert merge_group(place, "job", [build]) == build.name
        if name != build.name:
            objects.put(name, whole)
    shelf.plan({"a": search("w", "v")})
    assert [unit.segments for unit in IndexBacklogFinder(place).look().units] == [(segment,)]
    assert shelf.manifest.builds == ()
    shelf.damage(shelf.manifest.plans.name if shelf.manifest.plans else "")
    with pytest.raises(Corrupt, match="plans/"):
        IndexBacklogFinder(place).look()
