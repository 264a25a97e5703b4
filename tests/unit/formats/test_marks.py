"""Marks as bytes and back."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.core.errors import Corrupt
from headrace.formats.marks import ID_MAX, SCHEMA, Marks, decode_marks, encode_marks

MARKS = Marks((1, 3, 5, ID_MAX), {2: (1, 9, 12, 12), 5: (4, 4)})


def plain(marks: Marks) -> tuple[list[int], dict[int, list[int]]]:
    return list(marks.live), {log: list(dead) for log, dead in marks.dead.items()}


@pytest.mark.parametrize("marks", [MARKS, Marks(), Marks((), {}), Marks((7, ID_MAX))])
def test_marks_come_back(marks: Marks) -> None:
    assert plain(decode_marks(encode_marks(marks), "m")) == plain(marks)


def test_a_foreign_writer_is_understood() -> None:
    """Rows as documented, written by nobody of ours."""
    table = pa.table(
        {
            "kind": ["live", "live", "dead", "dead", "dead"],
            "log_id": [None, None, 2, 2, 5],
            "first": [1, 5, 1, 12, 4],
            "last": [3, ID_MAX, 9, 12, 4],
        }
    )
    sink = io.BytesIO()
    pq.write_table(
        table.cast(SCHEMA.remove_metadata()).replace_schema_metadata(SCHEMA.metadata), sink
    )
    assert plain(decode_marks(sink.getvalue(), "m")) == plain(MARKS)
    assert pq.read_table(pa.BufferReader(encode_marks(MARKS))).to_pylist() == table.to_pylist()


def test_equal_marks_are_equal_bytes() -> None:
    again = Marks(list(MARKS.live), {5: [4, 4], 2: [1, 9, 12, 12]})
    assert encode_marks(again) == encode_marks(MARKS)


def test_what_is_dead() -> None:
    assert MARKS.is_dead(4, 1)
    assert MARKS.is_dead(2, 9)
    assert not MARKS.is_dead(2, 10)
    assert not MARKS.is_dead(3, 1)
    assert not MARKS.is_dead(1 << 40, 1)  # not created yet


@pytest.mark.parametrize(
    "rows",
    [
        [("live", None, 3, 1)],
        [("live", None, 1, 5), ("live", None, 5, 6)],
        [("dead", 1, 4, 6), ("dead", 1, 2, 3)],
        [("undead", 1, 1, 1)],
    ],
)
def test_what_is_no_mark_is_corrupt(rows: list[tuple[object, ...]]) -> None:
    columns = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), SCHEMA, strict=True)]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(columns, schema=SCHEMA), sink)
    with pytest.raises(Corrupt, match="not a mark"):
        decode_marks(sink.getvalue(), "m")


def test_other_bytes_are_corrupt() -> None:
    raw = encode_marks(MARKS)
    for bad in (b"", b"{}", raw[:-1], raw[4:]):
        with pytest.raises(Corrupt):
            decode_marks(bad, "m")
    sink = io.BytesIO()
    pq.write_table(pa.table({"kind": ["live"]}), sink)
    with pytest.raises(Corrupt, match="columns"):
        decode_marks(sink.getvalue(), "m")
