"""A build says the same however many chunks, segments and merges it was made in."""

from __future__ import annotations

from typing import Any
from unittest import mock

import msgspec
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.formats import segment
from headrace.formats.companion import NUL, Descriptor, Family
from headrace.pipeline.audit_rows import log_of
from headrace.pipeline.kernels import build as building
from headrace.pipeline.kernels import builds as merging
from headrace.search.config import parse_search
from headrace.search.lookup import IndexLookup
from headrace.search.query import Equals
from support.searching import Rows, Store, index, merged

FIELDS: dict[str, dict[str, Any]] = {
    "at": {"kind": "date", "column": True, "exact": True},
    "flag": {"kind": "bool", "exact": True, "column": True},
    "ms": {"kind": "integer", "exact": True, "column": True, "aggregatable": True},
    "rate": {"kind": "float", "exact": True, "column": True},
    "user": {"kind": "keyword", "exact": True, "prefix": True},
}
CONFIG: dict[str, Any] = {
    "primaryTimestampField": "at",
    "fields": {
        name: {"bindings": [{"version": 1, "jsonPointer": f"/{name}"}], **field}
        for name, field in FIELDS.items()
    },
    "rollups": {
        "r": {
            "intervals": ["1s"],
            "dimensions": ["user"],
            "measures": {"latency": {"kind": "summary", "field": "ms", "histogram": "log2_v1"}},
        }
    },
}


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """Fields with few values, or many, or several in one record; some have none."""
    wide = draw(st.sampled_from([1, 2, 300]))
    number = st.integers(0, wide)
    found: dict[str, Any] = {"at": draw(number), "ms": draw(number), "flag": draw(st.booleans())}
    if draw(st.booleans()):
        found["rate"] = draw(number) / 4
    if draw(st.booleans()):
        found["user"] = f"u{draw(number)}"
    if draw(st.sampled_from([False] * 9 + [True])):
        found["ms"] = [draw(number), draw(number)]
    return msgspec.json.encode(found)


@st.composite
def logs(draw: st.DrawFn, first: int) -> Rows:
    found: Rows = {}
    for log in draw(st.sets(st.integers(1, 4), min_size=1, max_size=3)):
        raws = draw(st.lists(documents(), min_size=1, max_size=12))
        found[log] = [(first + at, raw, None) for at, raw in enumerate(raws)]
    return found


def _tables(build: Descriptor, store: Store) -> dict[str, pa.Table]:
    return {f.family: store.open(f).read() for f in build.files if f.family in list(Family)}


def _require_agreement(build: Descriptor, store: Store) -> None:
    """Values are in the file if the descriptor says so, and no others."""
    exact = {part.log: set(part.exact) for part in build.parts}
    table = _tables(build, store)[Family.EXACT]
    keys = table.column("k").to_pylist()
    assert keys == sorted(set(keys))
    for key in keys:
        name, valued, _ = key[8:].partition(NUL)
        assert not valued or name.decode() in exact[log_of(key)], key


def _values(rows: Rows) -> set[tuple[str, Any]]:
    found: set[tuple[str, Any]] = set()
    for _, raw, _ in (row for held in rows.values() for row in held):
        assert raw is not None
        for name, value in msgspec.json.decode(raw).items():
            for one in value if isinstance(value, list) else [value]:
                found.add((name, int(one) if name == "flag" else one))
    return found


def _answers(build: Descriptor, store: Store, rows: Rows) -> dict[Any, list[int]]:
    search = parse_search(CONFIG)
    return {
        (log, name, value): IndexLookup(store.companions(build), log, search)
        .find(Equals(name, value))
        .tolist()
        for log in rows
        for name, value in _values(rows)
    }


def _expected(rows: Rows) -> dict[Any, list[int]]:
    return {
        (log, name, value): [
            row[0] for row in held if (name, value) in _values({log: [row]})
        ]
        for log, held in rows.items()
        for name, value in _values(rows)
    }  # fmt: skip


@settings(max_examples=25)
@given(logs(first=1), logs(first=1000), st.integers(1, 9), st.integers(1, 30), st.integers(4, 40))
def test_rows_and_descriptors_agree_in_any_number_of_chunks(
    first: Rows, second: Rows, group_rows: int, chunk_rows: int, range_rows: int
) -> None:
    store = Store()
    with (
        mock.patch.object(segment, "ROW_GROUP_ROWS", group_rows),
        mock.patch.object(merging, "RANGE_ROWS", range_rows),
    ):
        whole = index(first, CONFIG, store)
        with mock.patch.object(building, "CHUNK_ROWS", chunk_rows):
            cut = index(first, CONFIG, store)
            other = index(second, CONFIG, store, 2)
        both = merged([cut, other], store)
    assert cut.parts == whole.parts
    assert _tables(cut, store) == _tables(whole, store)
    rows = {log: first.get(log, []) + second.get(log, []) for log in first | second}
    for build, held in ((cut, first), (other, second), (both, rows)):
        _require_agreement(build, store)
        assert _answers(build, store, held) == _expected(held)
