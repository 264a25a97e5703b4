"""Buckets of an aggregate, put together."""

from __future__ import annotations

from headrace.search.aggregate import Buckets
from headrace.search.config import parse_search

SEARCH = parse_search(
    {
        "primaryTimestampField": "at",
        "fields": {"at": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/at"}]}},
        "rollups": {"all": {"intervals": ["1m"], "measures": {"n": {"kind": "count"}}}},
    }
)


def test_the_cells_of_one_source_are_made_one() -> None:
    buckets = Buckets(SEARCH.rollups["all"], 60_000, ["n"], [])
    buckets.add_documents(SEARCH, [b'{"at":1}'] * 3, 0, 60_000)
    assert buckets.cells == 3
    buckets.compact()
    assert buckets.cells == 1
