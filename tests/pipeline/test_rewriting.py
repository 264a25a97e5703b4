"""Compaction, erasure and retention keep exactly what is live, and the format of segments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from headrace.core.config import LogConfig
from headrace.core.log import Log
from headrace.formats.manifest import Segment
from headrace.pipeline import compact as compacting
from headrace.pipeline import erase as erasing
from headrace.pipeline import groups
from headrace.pipeline.audit import audit
from headrace.pipeline.commit import drop_segments
from headrace.pipeline.compact import Sizes, compact
from headrace.pipeline.erase import erase
from headrace.pipeline.errors import CannotRun
from headrace.pipeline.janitor import clean
from headrace.pipeline.retain import retain
from headrace.pipeline.store_location import StoreLocation
from headrace.storage.segments import Segments
from support.segment_store import SegmentStore, payloads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = Sizes(output_bytes=4000, run_min=2, run_bytes=1 << 20)


def _fill(shelf: SegmentStore, segments: int = 4) -> None:
    for number in range(segments):
        shelf.seal(
            {"b": payloads(20, "b"), "a": payloads(7, "a")}, tag=f"t{number}", keys=["k", "l"]
        )


def _wellformed(spark: SparkSession, shelf: SegmentStore) -> None:
    report = audit(spark, shelf.place)
    assert report.problems == []


def test_compaction_keeps_every_record_and_clusters_by_log(
    spark: SparkSession, shelf: SegmentStore
) -> None:
    _fill(shelf)
    shelf.seal({"c": [b"\x00\xff", b""]}, media="application/octet-stream")
    report = compact(spark, shelf.place, SMALL)
    manifest = shelf.manifest
    assert shelf.rows() == shelf.all
    assert len(manifest.segments) > 1
    assert all(segment.sources == (1, 2, 3, 4, 5) for segment in manifest.segments)
    assert [segment.number for segment in manifest.segments] == list(
        range(6, 6 + len(manifest.segments))
    )
    assert {segment.journal_start for segment in manifest.segments} == {0}
    assert {segment.journal_stop for segment in manifest.segments} == {5000}
    assert report.rows[0][0] == "1–5"
    _wellformed(spark, shelf)


def test_rewriting_does_not_depend_on_how_spark_shuffles(
    spark: SparkSession, shelf: SegmentStore
) -> None:
    """As on a cluster: as many partitions as it likes, joined and split as it goes."""
    settings = {"spark.sql.adaptive.enabled": "true", "spark.sql.shuffle.partitions": "7"}
    before = {name: spark.conf.get(name) for name in settings}
    _fill(shelf)
    shelf.mark({"b": [1, 3]})
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        compact(spark, shelf.place, SMALL)
        erase(spark, shelf.place)
        assert audit(spark, shelf.place).problems == []
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    live = {at: data for at, data in shelf.all.items() if at[0] != "b" or at[1] > 3}
    assert shelf.rows() == live
    assert len(shelf.manifest.segments) > 1


def test_a_server_reads_compacted_segments_like_its_own(
    spark: SparkSession, shelf: SegmentStore
) -> None:
    _fill(shelf)
    compact(spark, shelf.place, SMALL)
    segments = Segments(shelf.objects, 1 << 20)
    segments.use(shelf.manifest)
    for name, log_id in shelf.ids.items():
        extents = [
            (segment.number, first, last)
            for segment in shelf.manifest.segments
            for log, first, last in segments.extents(segment)
            if log == log_id
        ]
        assert extents == sorted(extents, key=lambda extent: extent[1])
        log = Log(log_id, name, "topics", LogConfig(), extents=extents)
        found = {
            block.seq_at(at): block.data_at(at)
            for block in segments.blocks(log, 1, shelf.heads[name])
            for at in range(block.count)
        }
        assert found == {seq: data for (log, seq), data in shelf.all.items() if log == name}


def test_compaction_leaves_large_segments_and_short_runs_alone(
    spark: SparkSession, shelf: SegmentStore
) -> None:
    shelf.seal({"a": payloads(10)})
    before = shelf.seal({"a": payloads(400)})
    assert "nothing to compact" in compact(spark, shelf.place, SMALL).summary
    assert shelf.manifest.segments[-1] == before


def test_erased_records_leave_the_bytes(spark: SparkSession, shelf: SegmentStore) -> None:
    secret = b'{"secret":"7bb1c5e0"}'
    shelf.seal({"a": payloads(5), "b": [secret, *payloads(3)]}, tag="t")
    shelf.seal({"a": payloads(5)})
    shelf.seal({"b": [secret]})
    shelf.mark({"b": [1, 1, 5, 5]})
    old = shelf.named()
    report = erase(spark, shelf.place, now=True)
    assert [row[:4] for row in report.rows] == [(1, "4", 1, 8), (3, "nothing", 1, 0)]
    assert secret not in shelf.rows().values()
    live = {place: data for place, data in shelf.all.items() if data != secret}
    assert shelf.rows() == live
    assert [segment.number for segment in shelf.manifest.segments] == [4, 2]
    left = {name for name in shelf.objects_there() if "retired" not in name}
    assert left == shelf.named()
    assert len(old & left) == 2  # the segment in which nothing was dead, and its index
    _wellformed(spark, shelf)


def test_logs_that_are_gone_are_erased(spark: SparkSession, shelf: SegmentStore) -> None:
    _fill(shelf, 2)
    shelf.mark({}, dropped=["a"])
    erase(spark, shelf.place)
    assert {log for log, _ in shelf.rows()} == {"b"}


def test_only_the_named_logs_are_looked_for(spark: SparkSession, shelf: SegmentStore) -> None:
    shelf.seal({"a": payloads(5)})
    shelf.seal({"b": payloads(5), "c": payloads(1)})
    shelf.mark({"a": [1, 2], "b": [1, 2]})
    with pytest.raises(CannotRun, match="there is no log bb; did you mean b"):
        erase(spark, shelf.place, logs=("b", "bb"))
    assert "of c* is dead" in erase(spark, shelf.place, logs=("c*",)).summary
    erase(spark, shelf.place, logs=("b*",))
    assert len([place for place in shelf.rows() if place[0] == "a"]) == 5
    assert len([place for place in shelf.rows() if place[0] == "b"]) == 3


def test_nothing_is_erased_without_marks(spark: SparkSession, shelf: SegmentStore) -> None:
    _fill(shelf, 1)
    before = shelf.manifest
    erase(spark, shelf.place)
    shelf.mark({})
    erase(spark, shelf.place)
    assert shelf.manifest.segments == before.segments


def test_retention_drops_whole_segments(spark: SparkSession, shelf: SegmentStore) -> None:
    shelf.seal({"a": payloads(5), "b": payloads(2)})
    shelf.seal({"a": payloads(5)})
    shelf.mark({"a": [1, 7]}, dropped=["b"])
    report = retain(spark, shelf.place)
    assert [row[0] for row in report.rows] == [1]
    assert [segment.number for segment in shelf.manifest.segments] == [2]


def test_the_janitor_waits_for_readers_of_older_manifests(
    spark: SparkSession, shelf: SegmentStore
) -> None:
    _fill(shelf)
    old = shelf.named()
    compact(spark, shelf.place, SMALL)
    shelf.objects.put("segments/p-stray.parquet", b"left by a task that was killed")
    waiting = clean(shelf.place, grace_s=3600)
    assert (waiting.objects, waiting.waiting) == (0, len(old) + 1)
    removed = clean(shelf.place, grace_s=0)
    assert removed.objects == len(old) + 1
    assert shelf.objects_there() == shelf.named()
    assert shelf.rows() == shelf.all


def test_the_janitor_leaves_what_the_server_may_be_about_to_publish(shelf: SegmentStore) -> None:
    shelf.objects.put("segments/0000000009-x.parquet", b"sealed and not yet published")
    clean(shelf.place, grace_s=0)
    assert "segments/0000000009-x.parquet" in shelf.objects_there()


def test_a_source_that_goes_meanwhile_stops_the_commit_only(
    spark: SparkSession, shelf: SegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(shelf)

    def prove(*_: object) -> None:
        drop_segments(shelf.objects, shelf.manifest.segments[:1])

    monkeypatch.setattr(compacting, "prove", prove)
    assert compact(spark, shelf.place, SMALL).rows == []
    assert [segment.number for segment in shelf.manifest.segments] == [2, 3, 4]
    clean(shelf.place, grace_s=0)
    assert shelf.objects_there() == shelf.named()


def test_damage_is_named_and_nothing_is_made_of_it(
    spark: SparkSession, shelf: SegmentStore
) -> None:
    segments = [shelf.seal({"a": payloads(3)}) for _ in range(7)]
    spoilt, unknown = segments[0].name, segments[3].index
    shelf.damage(spoilt)
    shelf.damage(unknown)
    shelf.mark({"a": [1, 1, 5, 5, 19, 21]})
    report = retain(spark, shelf.place)
    assert [row[0] for row in report.rows] == [7]
    assert len(report.problems) == 1
    assert unknown in report.problems[0]
    report = erase(spark, shelf.place)
    assert [row[0] for row in report.rows] == [2]
    assert len(report.problems) == 2
    assert unknown in report.problems[0]
    assert spoilt in report.problems[1]
    report = compact(spark, shelf.place, msgspec.structs.replace(SMALL, run_max=2))
    assert [row[0] for row in report.rows] == ["5–6"]
    assert len(report.problems) == 2
    assert spoilt in report.problems[0]
    assert unknown in report.problems[1]
    assert {1, 3, 4} < shelf.manifest.numbers


def test_one_log_is_the_work_of_several_tasks(spark: SparkSession, shelf: SegmentStore) -> None:
    """A log that is larger than an output lies in several, cut where its row groups were."""
    rows = {"a": payloads(50), "b": payloads(2)}
    sealed = [shelf.seal(rows, group_rows=5) for _ in range(8)]
    output_bytes = 2 * sealed[0].record_bytes + 1
    compact(spark, shelf.place, msgspec.structs.replace(SMALL, output_bytes=output_bytes))
    made = shelf.manifest.segments
    assert shelf.rows() == shelf.all
    assert len(made) == 4
    assert max(segment.record_bytes for segment in made) < 1.5 * output_bytes
    _wellformed(spark, shelf)
    shelf.mark({"a": [1, 1, 200, 200, 400, 400]})
    report = erase(spark, shelf.place)
    assert len(report.rows) == 3
    assert shelf.rows() == shelf.live()
    _wellformed(spark, shelf)


def test_a_large_segment_becomes_several_when_it_is_rewritten(
    spark: SparkSession, shelf: SegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = shelf.seal({"a": payloads(100), "b": payloads(20)}, group_rows=10)
    shelf.seal({"b": payloads(5)})
    shelf.mark({"a": [5, 5], "b": [25, 25]})
    monkeypatch.setattr(erasing, "SEGMENT_BYTES", segment.record_bytes // 2 + 1)
    report = erase(spark, shelf.place)
    assert [row[:4] for row in report.rows] == [(1, "3, 4", 1, 119), (2, "5", 1, 4)]
    assert [segment.number for segment in shelf.manifest.segments] == [3, 4, 5]
    assert shelf.rows() == shelf.live()
    _wellformed(spark, shelf)


def test_groups_go_on_whatever_befalls_others(
    spark: SparkSession, shelf: SegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = [shelf.seal({"a": payloads(3), "b": payloads(1)}) for _ in range(8)]
    shelf.damage(segments[6].name)
    prove = compacting.prove

    def overtaken(spark: SparkSession, place: StoreLocation, run: list[Segment], *rest: Any) -> Any:
        if run[0].number == 3:
            drop_segments(shelf.objects, run[:1])
        return prove(spark, place, run, *rest)

    monkeypatch.setattr(compacting, "prove", overtaken)
    monkeypatch.setattr(groups, "count_slots", lambda _: 4)
    report = compact(spark, shelf.place, msgspec.structs.replace(SMALL, run_max=2))
    assert [row[0] for row in report.rows] == ["1–2", "5–6"]
    assert len(report.problems) == 1
    assert segments[6].name in report.problems[0]
    assert {4, 7, 8} < shelf.manifest.numbers
    assert [s.sources for s in shelf.manifest.segments] == [(1, 2), (), (5, 6), (), ()]
    assert len(shelf.manifest.segments) == 5


def test_an_erasure_with_groups_side_by_side_leaves_what_one_after_the_other_does(
    spark: SparkSession, shelf: SegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(shelf, 6)
    shelf.mark({"b": [1, 3, 30, 70, 120, 120], "a": [8, 8]})
    monkeypatch.setattr(groups, "count_slots", lambda _: 3)
    monkeypatch.setattr(erasing, "GROUP_OUTPUTS_MAX", 1)
    before = shelf.manifest.version
    report = erase(spark, shelf.place, now=True)
    assert [row[0] for row in report.rows] == [1, 2, 3, 4, 6]
    assert shelf.manifest.version >= before + 5  # a commit for each
    assert shelf.rows() == shelf.live()
    left = {name for name in shelf.objects_there() if "retired" not in name}
    assert left == shelf.named()
    _wellformed(spark, shelf)
