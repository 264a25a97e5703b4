"""An audit finds what is wrong, and says where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from xxhash import xxh3_64_hexdigest

from headrace.formats import layout
from headrace.formats.companion import (
    Descriptor,
    Family,
    decode_descriptor,
    encode_descriptor,
)
from headrace.formats.manifest import Manifest
from headrace.pipeline import audit as audit_module
from headrace.pipeline.audit import audit
from headrace.pipeline.audit_rows import AuditView
from headrace.pipeline.backfill import backfill
from headrace.pipeline.commit import drop_segments
from headrace.pipeline.limits import PROBLEMS_MAX
from headrace.pipeline.store_location import StoreLocation
from headrace.storage import manifests
from support.segment_store import SegmentStore, payloads, search

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _problems(spark: SparkSession, shelf: SegmentStore) -> list[str]:
    """With their places, without the kinds."""
    lines = audit(spark, shelf.place, examples_max=PROBLEMS_MAX).problems
    return [line.removeprefix("  ") for line in lines if line.startswith("  ")]


def _edit(shelf: SegmentStore, at: int = 0, **changes: Any) -> None:
    def change(manifest: Manifest) -> Manifest:
        segments = list(manifest.segments)
        segments[at] = msgspec.structs.replace(segments[at], **changes)
        return msgspec.structs.replace(manifest, segments=tuple(segments))

    manifests.update(shelf.objects, change)


def test_a_store_in_order_has_no_problems(spark: SparkSession, shelf: SegmentStore) -> None:
    shelf.plan({"a": _rolled()})
    for n in range(2):
        shelf.seal({"a": _timed(n), "b": payloads(3)}, keys=["k", "l"], tag="t")
    backfill(spark, shelf.place)
    _describe_fewer_values(shelf)
    report = audit(spark, shelf.place)
    assert report.problems == []
    assert [row[2] for row in report.rows] == ["ok"] * 6


def test_holes_that_nobody_marked_are_found(spark: SparkSession, shelf: SegmentStore) -> None:
    shelf.seal({"a": payloads(3)})
    shelf.seal({"a": payloads(3)}, skip=2)
    assert _problems(spark, shelf) == [
        'log "a", seqs 4 to 5: missing before segment 2, and not marked as dead'
    ]
    shelf.mark({"a": [4, 4]})
    assert len(_problems(spark, shelf)) == 1
    shelf.mark({"a": [4, 5]})
    assert _problems(spark, shelf) == []


def test_records_that_are_there_twice_are_found(spark: SparkSession, shelf: SegmentStore) -> None:
    shelf.seal({"a": payloads(3)})
    shelf.heads["a"] = 2
    shelf.seal({"a": payloads(1)})
    assert _problems(spark, shelf) == ['log "a", seq 3: in segment 2, and in 1 as well or after it']


def test_counts_that_do_not_fit_are_found(spark: SparkSession, shelf: SegmentStore) -> None:
    segment = shelf.seal({"a": payloads(3)})
    _edit(shelf, rows=4, logs=2)
    assert _problems(spark, shelf) == [
        f"objects/{segment.name}: 3 rows; the manifest says 4",
        f"objects/{segment.name}: 1 logs; the manifest says 2",
        "objects/manifests/0000000002.json: segment 1 is not what it was in version 1",
    ]


def test_damaged_files_are_found(spark: SparkSession, shelf: SegmentStore) -> None:
    segment = shelf.seal({"a": payloads(3)})
    _edit(shelf, checksum="0" * 16)
    assert any(segment.name in p and "checksum" in p for p in _problems(spark, shelf))


def test_indexes_that_records_do_not_bear_out_are_found(
    spark: SparkSession, shelf: SegmentStore
) -> None:
    shelf.plan({"a": _rolled()})
    shelf.seal({"a": _timed(0)}, keys=["k"])
    backfill(spark, shelf.place)

    def drop_first(table: pa.Table) -> pa.Table:
        return table.slice(1)

    def move_words(table: pa.Table) -> pa.Table:
        """The same words in the same records, each one place further on."""
        moved = [bytes([pos[0] + 2, *pos[1:]]) for pos in table.column("pos").to_pylist()]
        return _with(table, "pos", moved)

    def swap_values(table: pa.Table) -> pa.Table:
        """The same values, of other records."""
        return _with(table, "i64", [*reversed(table.column("i64").to_pylist())])

    _tamper(shelf, Family.EXACT, drop_first)
    _tamper(shelf, Family.LEX, drop_first)
    _tamper(shelf, Family.TEXT, move_words)
    _tamper(shelf, Family.TYPED, swap_values)
    found = [problem.partition(", ")[2] for problem in _problems(spark, shelf)]
    assert "exact of log 1 '': 0 postings for 10 in records" in found
    assert "lex of log 1 'k': 0 postings for 10 in records" in found
    assert "text of log 1 'say\\x00hello': 20 postings, but not those of the 20 in records" in found
    assert "typed of log 1 'ms': 10 postings, but not those of the 10 in records" in found


def test_windows_that_records_do_not_bear_out_are_found(
    spark: SparkSession, shelf: SegmentStore
) -> None:
    shelf.plan({"a": _rolled()})
    shelf.seal({"a": _timed(0)})
    backfill(spark, shelf.place)
    said = {
        "count": "the count is",
        "sum": "the sum is",
        "hist": "the histogram is not",
        "start": "not in the records",
    }

    def change(table: pa.Table) -> pa.Table:
        """Something else in each of four windows."""
        rows = [at for at, sum in enumerate(table.column("sum").to_pylist()) if sum is not None]
        for at, column in zip(rows, said, strict=False):
            values = table.column(column).to_pylist()
            values[at] = b"\x02\x01" if column == "hist" else values[at] + 60_000
            table = _with(table, column, values)
        return table

    _tamper(shelf, Family.ROLL, change)
    problems = _problems(spark, shelf)
    assert len(problems) == 5  # what is elsewhere is missing where it was
    for what in (*said.values(), "missing"):
        (place,) = [problem for problem in problems if what in problem]
        assert "log 1, rollup r, latency of the " in place
        assert " ms from 2025-10-09T08:5" in place


def test_what_left_the_manifest_meanwhile_is_not_missed(
    spark: SparkSession, shelf: SegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.seal({"a": payloads(3)})
    shelf.seal({"b": payloads(3)})
    backfill(spark, shelf.place)
    gone, build = shelf.manifest.segments[0], shelf.manifest.builds[0]
    files = audit_module.CHECKS["files"]

    def dropped_before(spark: SparkSession, place: StoreLocation, view: AuditView) -> None:
        shelf.mark({}, dropped=["a"])
        drop_segments(shelf.objects, [gone])
        for name in (*gone.names, build.name):
            shelf.remove(name)
        files(spark, place, view)

    monkeypatch.setitem(audit_module.CHECKS, "files", dropped_before)
    assert _problems(spark, shelf) == []


def _describe_fewer_values(shelf: SegmentStore) -> None:
    """As earlier versions did: values of a field in the file of which the descriptor is silent."""
    build = shelf.manifest.builds[0]
    descriptor = decode_descriptor(shelf.objects.get(build.name), build.name)
    (part,) = descriptor.parts
    assert part.exact == ("w",)
    part = msgspec.structs.replace(part, exact=())
    _describe(shelf, msgspec.structs.replace(descriptor, parts=(part,)))


def _describe(shelf: SegmentStore, descriptor: Descriptor) -> None:
    """Let the first build be described so, and everything that vouches for it."""
    build, *others = shelf.manifest.builds
    raw = encode_descriptor(descriptor)
    shelf.objects.put(build.name, raw)
    changed = msgspec.structs.replace(build, checksum=xxh3_64_hexdigest(raw))
    builds = (changed, *others)
    manifests.update(shelf.objects, lambda m: msgspec.structs.replace(m, builds=builds))


def test_damage_is_named_and_everything_else_is_looked_at(
    spark: SparkSession, shelf: SegmentStore
) -> None:
    """One of everything is spoilt; what is wrong elsewhere is found as well."""
    shelf.plan({"a": _rolled()})
    segments = [shelf.seal({"a": _timed(n), "b": payloads(3)}, tag="t") for n in range(5)]
    shelf.seal({"b": payloads(1)}, skip=1)
    backfill(spark, shelf.place)
    shelf.mark({"b": [1, 1]})
    descriptors = [
        decode_descriptor(shelf.objects.get(build.name), build.name)
        for build in shelf.manifest.builds
    ]
    spoilt = [
        segments[0].name,
        segments[2].index,
        descriptors[1].files[2].name,
        shelf.manifest.builds[2].name,
        layout.manifest(shelf.manifest.version - 1),
    ]
    for seed, name in enumerate(spoilt):
        shelf.damage(name, seed=seed)
    gone = [segments[1].name, segments[3].tags or "", descriptors[3].files[0].name]
    for name in gone:
        shelf.remove(name)
    cut = descriptors[4].files[1].name
    shelf.objects.put(cut, shelf.objects.get(cut)[:-7])
    report = audit(spark, shelf.place)
    found = [line for line in report.problems if line.startswith("  ")]
    for name in (*spoilt, *gone, cut):
        assert len([line for line in found if name in line]) == 1, (name, found)
    missing = '  log "b", seqs 16 to 16: missing before segment 6, and not marked as dead'
    assert missing in found
    assert len(found) == len(spoilt) + len(gone) + 2
    kinds = [line for line in report.problems if not line.startswith("  ")]
    assert kinds == [
        "segments that are missing or damaged: 2",
        "seqs that are missing and not marked as dead: 1",
        "manifests, marks and plans that are missing, damaged or wrong: 1",
        "indexes and tags of segments that are missing, damaged or wrong: 2",
        "builds of which something is missing, damaged or wrong: 4",
    ]
    assert report.lines()[-1].endswith("10 problems in 66 records of 6 segments and 6 builds")


def _with(table: pa.Table, column: str, values: list[Any]) -> pa.Table:
    at = table.schema.get_field_index(column)
    field = table.schema.field(at)
    return table.set_column(at, field, pa.array(values, field.type))


def _tamper(shelf: SegmentStore, family: Family, edit: Any) -> None:
    """Change a companion, and everything that vouches for it."""
    build = shelf.manifest.builds[0]
    descriptor = decode_descriptor(shelf.objects.get(build.name), build.name)
    files = []
    for file in descriptor.files:
        if file.family == family:
            sink = pa.BufferOutputStream()
            pq.write_table(edit(pq.read_table(shelf.objects.open(file.name))), sink)
            raw = sink.getvalue().to_pybytes()
            shelf.objects.put(file.name, raw)
            file = msgspec.structs.replace(file, checksum=xxh3_64_hexdigest(raw))
        files.append(file)
    _describe(shelf, msgspec.structs.replace(descriptor, files=tuple(files)))


def _timed(start: int) -> list[bytes]:
    stamp = 1_760_000_000_000
    return [
        b'{"at":%d,"w":"x","ms":%d,"say":"Hello, %d times hello"}'
        % (stamp + (start * 10 + n) * 400, 10 + n, n)
        for n in range(10)
    ]


def _rolled() -> dict[str, Any]:
    config = search("w")
    config["fields"]["ms"] = {
        "kind": "integer",
        "bindings": [{"version": 1, "jsonPointer": "/ms"}],
        "column": True,
        "aggregatable": True,
    }
    config["fields"]["say"] = {
        "kind": "text",
        "bindings": [{"version": 1, "jsonPointer": "/say"}],
        "analyzer": "unicode_word_v1",
        "positions": True,
    }
    config["rollups"] = {
        "r": {
            "intervals": ["1s", "1m"],
            "dimensions": ["w"],
            "measures": {
                "requests": {"kind": "count"},
                "latency": {"kind": "summary", "field": "ms", "histogram": "log2_v1"},
            },
        }
    }
    return config
