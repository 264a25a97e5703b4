"""Searches and aggregates as they are posted: JSON in, requests out, the same on every surface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from headrace.core.digits import parse_digits
from headrace.core.errors import refuse_invalid
from headrace.core.limits import I64_MAX, SEARCH_SIZE_DEFAULT, SEARCH_SIZE_MAX, SEARCH_TIMEOUT_MS
from headrace.search.config import Field, FieldKind, Search
from headrace.search.ordering import OFFSET, SCORE, Sort
from headrace.search.query import has_text, parse_query
from headrace.search.requests import AggregateRequest, SearchRequest
from headrace.search.values import DATE_MS_MAX, parse_date_ms
from headrace.web.calls import decode
from headrace.web.request import split_query

ParseOffset = Callable[[Any], int]
"""The seq of an offset as a surface writes it; refuses what is none."""

Body = dict[str, Any]

_SEARCH = ("q", "size", "search_after", "sort", "timeout_ms")
_AGGREGATE = ("rollup", "from", "to", "interval", "q", "group_by", "measures", "timeout_ms")
_NS = 1_000_000

_bodies = msgspec.json.Decoder(Body)


def decode_body(raw: bytes) -> Body:
    """The JSON object of a request."""
    return decode(_bodies, raw)


def parse_parameters(text: str) -> Body:
    """A search in the query of a URL, as the body of one would have it."""
    asked: Body = {}
    for name, value in split_query(text):
        if name == "sort":
            asked.setdefault("sort", []).extend(part for part in value.split(",") if part)
        elif name in asked:
            refuse_invalid(f"{name} is given twice")
        elif name in ("size", "timeout_ms") and value.isascii() and value.isdigit():
            asked[name] = int(value[:20])
        elif name == "search_after":
            asked[name] = _parse_json(value)
        else:
            asked[name] = value
    return asked


def parse_search_request(raw: Body, parse_offset: ParseOffset, search: Search) -> SearchRequest:
    """A search, by the configuration of a log."""
    if "track_total_hits" in raw:
        refuse_invalid("track_total_hits is not supported")
    _check_known(raw, _SEARCH)
    text = raw.get("q")
    if not isinstance(text, str) or not text.strip():
        refuse_invalid("q must be a non-empty string")
    query = parse_query(text, search)
    sorts = _parse_sorts(raw.get("sort"), search, scored=has_text(query))
    return SearchRequest(
        query,
        _whole(raw.get("size", SEARCH_SIZE_DEFAULT), "size", 1, SEARCH_SIZE_MAX),
        sorts,
        _parse_after(raw.get("search_after"), sorts, search, parse_offset),
        _parse_timeout_ms(raw),
    )


def parse_aggregate_request(raw: Body, search: Search) -> AggregateRequest:
    """An aggregate, by the configuration of a log."""
    _check_known(raw, _AGGREGATE)
    rollup = search.rollups.get(_text(raw, "rollup"))
    if rollup is None:
        refuse_invalid(f"unknown rollup {_text(raw, 'rollup')[:80]}")
    interval = rollup.interval(_text(raw, "interval"))
    if interval is None:
        known = ", ".join(each.text for each in rollup.intervals)
        refuse_invalid(f"interval must be one of {known}")
    start_ms, stop_ms = _time_ms(raw, "from"), _time_ms(raw, "to")
    if start_ms >= stop_ms:
        refuse_invalid("from must be before to")
    query = raw.get("q")
    if query is not None and not isinstance(query, str):
        refuse_invalid("q must be a string")
    measures = [measure.name for measure in rollup.measures]
    return AggregateRequest(
        rollup,
        start_ms,
        stop_ms,
        interval.text,
        interval.ms,
        parse_query(query, search) if query and query.strip() else None,
        _names(raw.get("group_by", []), "group_by", "dimensions", rollup.dimensions),
        _names(raw.get("measures", measures), "measures", "measures", measures, some=True),
        _parse_timeout_ms(raw),
    )


def _check_known(raw: Body, known: Sequence[str]) -> None:
    for key in raw:
        if key not in known:
            refuse_invalid(f"{key[:80]} is not supported")


def _parse_timeout_ms(raw: Body) -> int:
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


_MARKS: dict[FieldKind, Callable[[Any, Field], Any]] = {
    FieldKind.KEYWORD: _string,
    FieldKind.INTEGER: _integer,
    FieldKind.DATE: _integer,
    FieldKind.FLOAT: lambda value, field: _number(value, field.name),
    FieldKind.BOOL: _bool,
}


def _parse_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        refuse_invalid("search_after must be JSON")


def _text(raw: Body, name: str) -> str:
    value = raw.get(name)
    if not isinstance(value, str) or not value:
        refuse_invalid(f"{name} must be a non-empty string")
    return value


def _time_ms(raw: Body, name: str) -> int:
    """A date, milliseconds as a number, or nanoseconds as digits."""
    value, ms = raw.get(name), None
    if isinstance(value, str):
        ns = parse_digits(value, I64_MAX)
        ms = parse_date_ms(value) if ns is None else ns // _NS
    elif isinstance(value, int | float) and not isinstance(value, bool):
        ms = int(value) if abs(value) <= DATE_MS_MAX else None
    if ms is None:
        refuse_invalid(f"{name} must be a time: RFC 3339, or milliseconds since 1970")
    return ms


def _names(
    raw: object, name: str, what: str, known: Sequence[str], *, some: bool = False
) -> tuple[str, ...]:
    if not isinstance(raw, list) or not all(isinstance(item, str) for item in raw):
        refuse_invalid(f"{name} must be an array of strings")
    if some and not raw:
        refuse_invalid(f"{name} must not be empty")
    for item in raw:
        if item not in known:
            refuse_invalid(f"{name} must name {what} of the rollup; {item[:80]} is none")
    if len(set(raw)) < len(raw):
        refuse_invalid(f"{name} must not have duplicates")
    return tuple(raw)
