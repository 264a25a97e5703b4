"""What a search asks for, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from headrace.core.errors import refuse_invalid
from headrace.core.limits import (
    SEARCH_SIZE_DEFAULT,
    SEARCH_SIZE_MAX,
    SEARCH_TIMEOUT_MS,
)
from headrace.search.config import Field, Kind, Search
from headrace.search.ordering import OFFSET, SCORE, Sort
from headrace.search.query import Query, has_text, parse_query

ParseOffset = Callable[[Any], int]
"""The seq of an offset as a surface writes it; refuses what is none."""

_KNOWN = ("q", "size", "search_after", "sort", "timeout_ms")


class Request(msgspec.Struct, frozen=True):
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


def parse_request(raw: object, search: Search, parse_offset: ParseOffset) -> Request:
    """A search as it was posted."""
    if not isinstance(raw, dict):
        refuse_invalid("a search is a JSON object")
    if "track_total_hits" in raw:
        refuse_invalid("track_total_hits is not supported")
    for key in raw:
        if key not in _KNOWN:
            refuse_invalid(f"{str(key)[:80]} is not supported")
    text = raw.get("q")
    if not isinstance(text, str) or not text.strip():
        refuse_invalid("q must be a non-empty string")
    query = parse_query(text, search)
    sorts = _parse_sorts(raw.get("sort"), search, scored=has_text(query))
    return Request(
        query,
        _whole(raw.get("size", SEARCH_SIZE_DEFAULT), "size", 1, SEARCH_SIZE_MAX),
        sorts,
        _parse_after(raw.get("search_after"), sorts, search, parse_offset),
        parse_timeout_ms(raw),
    )


def parse_timeout_ms(raw: Mapping[str, Any]) -> int:
    """How long a request may take: as long as it says, but no longer than any."""
    asked = _whole(raw.get("timeout_ms", SEARCH_TIMEOUT_MS), "timeout_ms", 0)
    return min(asked, SEARCH_TIMEOUT_MS)


def _whole(value: object, name: str, least: int, most: int | None = None) -> int:
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    if type(number) is not int or number < least or (most is not None and number > most):
        upto = "" if most is None else f" to {most}"
        refuse_invalid(f"{name} must be a whole number from {least}{upto or ' on'}")
    return number


def _parse_sorts(raw: object, search: Search, *, scored: bool) -> tuple[Sort, ...]:
    items = [raw] if isinstance(raw, str) else raw
    if items is None or items == []:
        names = [search.primary, OFFSET]
        return tuple(Sort(name, True) for name in ([SCORE, *names] if scored else names))
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        refuse_invalid("sort must be an array of strings")
    sorts: list[Sort] = []
    for item in items:
        sort = _parse_sort(item, search)
        if sort.name in (other.name for other in sorts):
            refuse_invalid(f"sort names {sort.name} more than once")
        sorts.append(sort)
        if sort.name == OFFSET:
            break  # no two records have the same
    if sorts[-1].name != OFFSET:
        sorts.append(Sort(OFFSET, True))
    return tuple(sorts)


def _parse_sort(item: str, search: Search) -> Sort:
    name, _, direction = item.strip().rpartition(":") if ":" in item else (item.strip(), "", "")
    if direction not in ("", "asc", "desc"):
        refuse_invalid(f"the direction of sort {name[:80]} must be asc or desc")
    descending = direction != "asc"
    if name in (OFFSET, SCORE):
        return Sort(name, descending)
    field = search.find(name)
    if field is None:
        refuse_invalid(f"unknown sort field {name[:80]}")
    if not field.sortable and field.name != search.primary:
        refuse_invalid(f"field {name} is not sortable")
    return Sort(field.name, descending)


def _parse_after(
    raw: object, sorts: Sequence[Sort], search: Search, parse_offset: ParseOffset
) -> tuple[Any, ...] | None:
    if raw is None:
        return None
    if not isinstance(raw, list) or len(raw) != len(sorts):
        refuse_invalid(f"search_after must be an array of {len(sorts)}, as sort is")
    return tuple(
        _parse_mark(value, sort, search, parse_offset)
        for value, sort in zip(raw, sorts, strict=True)
    )


def _parse_mark(value: Any, sort: Sort, search: Search, parse_offset: ParseOffset) -> Any:
    if sort.name == OFFSET:
        return parse_offset(value)
    if sort.name == SCORE:
        return _number(value, SCORE)
    field = search.fields[sort.name]
    return None if value is None else _MARKS[field.kind](value, field)


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        refuse_invalid(f"search_after needs a number for {name}")
    try:
        return float(value)
    except OverflowError:  # JSON has whole numbers beyond all floats
        refuse_invalid(f"search_after needs a number for {name}")


def _integer(value: Any, field: Field) -> int:
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    if type(whole) is not int or not -(1 << 63) <= whole < 1 << 63:
        refuse_invalid(f"search_after needs a whole number for {field.name}")
    return whole


def _bool(value: Any, field: Field) -> int:
    if not isinstance(value, bool):
        refuse_invalid(f"search_after needs true or false for {field.name}")
    return int(value)


def _string(value: Any, field: Field) -> str:
    if not isinstance(value, str):
        refuse_invalid(f"search_after needs a string for {field.name}")
    return value


_MARKS: dict[Kind, Callable[[Any, Field], Any]] = {
    Kind.KEYWORD: _string,
    Kind.INTEGER: _integer,
    Kind.DATE: _integer,
    Kind.FLOAT: lambda value, field: _number(value, field.name),
    Kind.BOOL: _bool,
}
