"""Row groups of segments that a filter by text excludes are not read."""

from __future__ import annotations

from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.options import RecordSelection
from headrace.spark.rows import may_hold

texts = st.text("abz", max_size=3)


def group_of(tags: list[str | None]) -> pq.RowGroupMetaData:
    table = pa.table({"tag": pa.array(tags, pa.string()), "data": pa.array(tags, pa.string())})
    file = BytesIO()
    pq.write_table(table, file, write_statistics=["tag"])
    return pq.ParquetFile(file).metadata.row_group(0)


def select(**more: object) -> RecordSelection:
    return RecordSelection(**more)  # type: ignore[arg-type]


@given(st.lists(st.none() | texts, min_size=1, max_size=5), st.sets(texts, min_size=1), texts)
def test_no_row_that_is_wanted_is_left_out(
    tags: list[str | None], values: set[str], prefix: str
) -> None:
    group = group_of(tags)
    if any(tag in values for tag in tags):
        assert may_hold(group, select(sets=(("tag", frozenset(values)),)))
    if any(tag is not None and tag.startswith(prefix) for tag in tags):
        assert may_hold(group, select(starts=(("tag", prefix),)))


def test_what_lies_outside_is_not_read() -> None:
    group = group_of(["storm.north.2", "storm.north.5"])
    for value in ("storm.east.3", "storm.south.1"):
        assert not may_hold(group, select(sets=(("tag", frozenset((value,))),)))
        assert not may_hold(group, select(starts=(("tag", value),)))
    assert may_hold(group, select(starts=(("tag", "storm.north"),)))
    assert may_hold(group, select(sets=(("data", frozenset(("storm.east.3",))),)))  # nothing known
