"""Searches and aggregates that are asked for, by the names of one configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headrace.search.config import Rollup, Search
from headrace.search.ordering import Sort
from headrace.search.query import Query, has_text


class SearchRequest(msgspec.Struct, frozen=True):
    """A search."""

    query: Query
    size: int
    sorts: tuple[Sort, ...]
    after: tuple[Any, ...] | None
    """The sort values of the last hit of the page before."""
    timeout_ms: int

    @property
    def scored(self) -> bool:
        return has_text(self.query)


class AggregateRequest(msgspec.Struct, frozen=True):
    """An aggregate."""

    rollup: Rollup
    start_ms: int
    stop_ms: int
    interval: str
    interval_ms: int
    query: Query | None
    group_by: tuple[str, ...]
    measures: tuple[str, ...]
    timeout_ms: int


ReadSearch = Callable[[Search], SearchRequest]
ReadAggregate = Callable[[Search], AggregateRequest]
"""What is asked, by a log's configuration; read again when that changed before the answer."""
