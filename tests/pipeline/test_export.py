"""Exports hold what was selected, in the form that was asked for."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from headrace.pipeline.errors import CannotRun
from headrace.pipeline.export import Selection, export

from .shelf import START_MS, Shelf, payloads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AWKWARD = [b'{"text":"a,\\"b\\"\\n\xc3\xa9"}', b'{\n "pretty": 1\n}', b'"x"', b"null"]


def _fill(shelf: Shelf) -> None:
    shelf.seal({"a": AWKWARD}, tag="red-1", keys=["k", "l"])
    shelf.seal({"a": payloads(2), "b": payloads(3)}, tag="blue")
    shelf.seal({"c": [b"\x00\xff"]}, media="application/octet-stream")


def test_json_lines_hold_the_payloads_as_json(
    spark: SparkSession, shelf: Shelf, tmp_path: Path
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


def test_csv_survives_commas_quotes_and_line_ends(
    spark: SparkSession, shelf: Shelf, tmp_path: Path
) -> None:
    _fill(shelf)
    target = tmp_path / "a.csv"
    export(spark, shelf.place, Selection(logs=("a",)), target, "csv")
    with target.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [json.loads(row["data"]) for row in rows[:4]] == [json.loads(data) for data in AWKWARD]
    assert rows[0]["ts"].startswith("2025-10-09T")


def test_parquet_in_a_folder(spark: SparkSession, shelf: Shelf, tmp_path: Path) -> None:
    _fill(shelf)
    export(spark, shelf.place, Selection(logs=("b",)), tmp_path / "b", "parquet")
    table = pq.read_table(tmp_path / "b")
    assert table.column("data").to_pylist() == payloads(3)


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(logs=("a", "b"), from_seq=2, to_seq=3), ["a2", "a3", "b2", "b3"]),
        (Selection(tags=("red-*",)), ["a1", "a2", "a3", "a4"]),
        (Selection(tags=("red", "blue"), logs=("a",)), ["a5", "a6"]),
        (Selection(keys=("l",)), ["a2", "a4"]),
        (Selection(from_ts=START_MS + 2), ["c1"]),
        (Selection(to_ts=START_MS), ["a1", "a2", "a3", "a4"]),
        (Selection(logs=("nobody",)), []),
    ],
)
def test_selections(
    spark: SparkSession, shelf: Shelf, tmp_path: Path, selection: Selection, expected: list[str]
) -> None:
    _fill(shelf)
    target = tmp_path / "some.jsonl"
    export(spark, shelf.place, selection, target, "jsonl")
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert [f"{line['log']}{line['seq']}" for line in lines] == expected


def test_dead_records_are_left_out(spark: SparkSession, shelf: Shelf, tmp_path: Path) -> None:
    _fill(shelf)
    shelf.mark({"b": [2, 2]}, dropped=["a"])
    target = tmp_path / "live.jsonl"
    assert "3 records" in export(spark, shelf.place, Selection(), target, "jsonl").summary
    assert len(target.read_text().splitlines()) == 3


def test_nothing_is_written_over(spark: SparkSession, shelf: Shelf, tmp_path: Path) -> None:
    target = tmp_path / "there.csv"
    target.write_text("mine")
    with pytest.raises(CannotRun):
        export(spark, shelf.place, Selection(), target, "csv")
    assert target.read_text() == "mine"
