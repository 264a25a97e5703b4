"""Exports hold what was selected, in the form that was asked for."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.pipeline.errors import CannotRun, JobFailed
from headrace.pipeline.export import Selection, export
from support.segment_store import START_MS, SegmentStore, payloads, search

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AWKWARD = [b'{"text":"a,\\"b\\"\\n\xc3\xa9"}', b'{\n "pretty": 1\n}', b'"x"', b"null"]


def _fill(shelf: SegmentStore) -> None:
    shelf.seal({"a": AWKWARD}, tag="red-1", keys=["k", "l"])
    shelf.seal({"a": payloads(2), "b": payloads(3)}, tag="blue")
    shelf.seal({"c": [b"\x00\xff"]}, media="application/octet-stream")


def test_json_lines_hold_the_payloads_as_json(
    spark: SparkSession, shelf: SegmentStore, tmp_path: Path
) -> None:
    _fill(shelf)
    target = tmp_path / "all.jsonl"
    export(spark, shelf.place, Selection(), target, "jsonl")
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert [(line["log"], line["seq"]) for line in lines] == sorted(shelf.all)
    for line in lines[:-1]:
        assert line["data"] == json.loads(shelf.all[line["log"], line["seq"]])
    assert lines[-1]["data"] == "AP8="
    assert lines[-1]["media"] == "application/octet-stream"
    assert lines[0]["tag"] == "red-1"
    assert [line["key"] for line in lines[:4]] == ["k", "l", "k", "l"]
    assert not list(tmp_path.glob(".*"))


def test_damaged_bytes_are_not_exported(
    spark: SparkSession, shelf: SegmentStore, tmp_path: Path
) -> None:
    """Bytes that Spark can read are not always those that were sealed."""
    whole = shelf.seal({"a": payloads(3)})
    spoilt, other = shelf.seal({"b": payloads(3, "x")}), shelf.seal({"b": payloads(3, "y")})
    shelf.objects.put(spoilt.name, bytes(shelf.objects.get(other.name)))
    target = tmp_path / "b.jsonl"
    with pytest.raises(JobFailed, match=spoilt.name):
        export(spark, shelf.place, Selection(logs=("b",)), target, "jsonl")
    assert not target.exists()
    export(spark, shelf.place, Selection(logs=("a",)), target, "jsonl")
    assert len(target.read_text().splitlines()) == whole.rows


def test_csv_survives_commas_quotes_and_line_ends(
    spark: SparkSession, shelf: SegmentStore, tmp_path: Path
) -> None:
    _fill(shelf)
    target = tmp_path / "a.csv"
    export(spark, shelf.place, Selection(logs=("a",)), target, "csv")
    with target.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [json.loads(row["data"]) for row in rows[:4]] == [json.loads(data) for data in AWKWARD]
    assert rows[0]["ts"].startswith("2025-10-09T")


def test_parquet_in_a_folder(spark: SparkSession, shelf: SegmentStore, tmp_path: Path) -> None:
    _fill(shelf)
    export(spark, shelf.place, Selection(logs=("b",)), tmp_path / "b", "parquet")
    table = pq.read_table(tmp_path / "b")
    assert table.column("data").to_pylist() == [data.decode() for data in payloads(3)]
    # As the data source has them: text, Base64 where it is none, and times with their zone.
    export(spark, shelf.place, Selection(logs=("*",)), tmp_path / "all.parquet", None)
    table = pq.read_table(tmp_path / "all.parquet")
    assert table.column("data").to_pylist()[-1] == "AP8="
    assert table.column("data").to_pylist()[1] == AWKWARD[1].decode()
    assert table.schema.field("data").type == pa.string()
    assert table.schema.field("ts").type == pa.timestamp("us", tz="UTC")
    assert [*zip(*table.select(["log", "seq"]).to_pydict().values(), strict=True)] == sorted(
        shelf.all
    )


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(logs=("a", "b"), from_seq=2, to_seq=3), ["a2", "a3", "b2", "b3"]),
        (Selection(tags=("red-*",)), ["a1", "a2", "a3", "a4"]),
        (Selection(tags=("red", "blue"), logs=("a",)), ["a5", "a6"]),
        (Selection(keys=("l",)), ["a2", "a4"]),
        (Selection(from_ts=START_MS + 2), ["c1"]),
        (Selection(to_ts=START_MS), ["a1", "a2", "a3", "a4"]),
        (Selection(logs=("b*", "c"), to_seq=1), ["b1", "c1"]),
        (Selection(to_seq=0), []),
    ],
)
def test_selections(
    spark: SparkSession,
    shelf: SegmentStore,
    tmp_path: Path,
    selection: Selection,
    expected: list[str],
) -> None:
    _fill(shelf)
    target = tmp_path / "some.jsonl"
    export(spark, shelf.place, selection, target, "jsonl")
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert [f"{line['log']}{line['seq']}" for line in lines] == expected


def test_dead_records_are_left_out(
    spark: SparkSession, shelf: SegmentStore, tmp_path: Path
) -> None:
    _fill(shelf)
    shelf.mark({"b": [2, 2]}, dropped=["a"])
    target = tmp_path / "live.jsonl"
    assert "3 records" in export(spark, shelf.place, Selection(), target, "jsonl").summary
    assert len(target.read_text().splitlines()) == 3


def test_the_server_s_own_logs_stay_in_the_store(
    spark: SparkSession, shelf: SegmentStore, tmp_path: Path
) -> None:
    shelf.seal({"__flags/contents": [b"1", b"2"], "__stream_metrics__": [b"3"]})
    target = tmp_path / "all.jsonl"
    assert "1 record " in export(spark, shelf.place, Selection(), target, "jsonl").summary
    assert json.loads(target.read_text())["log"] == "__stream_metrics__"
    named = Selection(logs=("__flags/contents",))
    with pytest.raises(CannotRun, match="are the server's own"):
        export(spark, shelf.place, named, tmp_path / "named.jsonl", "jsonl")


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        (Selection(logs=("b", "nosuch")), "there is no log nosuch; there are a, b"),
        (Selection(logs=("bb",)), "there is no log bb; did you mean b?"),
        (Selection(logs=("x*",)), "no log begins with x;"),
        (Selection(logs=("gone",)), "there is no log gone"),
    ],
)
def test_what_cannot_be_there_is_refused(
    spark: SparkSession, shelf: SegmentStore, tmp_path: Path, selection: Selection, said: str
) -> None:
    _fill(shelf)
    shelf.seal({"gone": payloads(1)})
    shelf.mark({}, dropped=["gone"])
    with pytest.raises(CannotRun, match=said):
        export(spark, shelf.place, selection, tmp_path / "some.jsonl", None)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_why_there_is_nothing_is_told(
    spark: SparkSession, shelf: SegmentStore, tmp_path: Path
) -> None:
    def told(number: int, **selection: Any) -> str:
        to = tmp_path / f"{number}.parquet"
        summary = export(spark, shelf.place, Selection(**selection), to, None).summary
        assert pq.read_table(to).column_names[:3] == ["log", "seq", "ts"]
        return summary.removeprefix(f"{to}: ")

    shelf.plan({"planned": search("w")})
    nothing = "0 records as parquet; "
    assert told(0, logs=("planned",)) == nothing + "nothing is sealed yet"
    _fill(shelf)
    shelf.mark({"b": [1, 3]})
    none = nothing + "log {} is there, but no record of it is sealed and live"
    assert told(1, logs=("planned",)) == none.format("planned")
    assert told(2, logs=("b",)) == none.format("b")
    assert told(3, logs=("a",), from_seq=7) == none.format("a") + " in that selection"
    assert told(4, logs=("b*", "c")).startswith("1 record as parquet; log b* is there, but no")
    assert told(5, tags=("green",)) == nothing + "no record is sealed and live in that selection"


def test_nothing_is_written_over(spark: SparkSession, shelf: SegmentStore, tmp_path: Path) -> None:
    target = tmp_path / "there.csv"
    target.write_text("mine")
    with pytest.raises(CannotRun):
        export(spark, shelf.place, Selection(), target, "csv")
    assert target.read_text() == "mine"
