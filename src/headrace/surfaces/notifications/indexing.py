"""How notifications are indexed: by their identifiers, and by the box around their polygon.

The schema of an event type is the search configuration of its log, so the companions that serve
`_search` serve replay, too. What they name is verified by the selector: a query may find more than
a filter wants, never less.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isfinite

import msgspec

from headrace.core.limits import SEARCH_BYTES_MAX
from headrace.search.config import Field, FieldKind, Search
from headrace.search.query import All, Any, Compares, Equals, Query
from headrace.surfaces.notifications.constraints import Bounds, Constraint, Eq, OneOf
from headrace.surfaces.notifications.handlers import (
    FieldHandler,
    FloatHandler,
    IntHandler,
    parse_float,
    parse_int,
)
from headrace.surfaces.notifications.identifiers import NotificationFilter
from headrace.surfaces.notifications.schema import EventType
from headrace.surfaces.notifications.shapes import WantedShape

PUBLISHED = "published"
"""The primary timestamp: when a WIS2 message was published. Other notifications have none."""
_PUBLISHED_AT = "/payload/properties/pubtime"
_IDENTIFIER = "identifier"
_POSITION = "identifier."
"""What fields are called, with their position, whose names cannot be asked for."""
_BOX = ("bbox.min_lat", "bbox.min_lon", "bbox.max_lat", "bbox.max_lon")
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}")
_RESERVED = frozenset((PUBLISHED, *_BOX, "has", "contains"))
_NUMBERS_ASKED_MAX = 16
"""Of more numbers, builds are asked for all between the least and the greatest."""


def format_search(event_type: EventType) -> bytes | None:
    """The search configuration of the log of an event type; None if it would be too large.

    Its fields for identifiers are in the order of the subject's tokens.
    """
    fields: dict[str, object] = {}
    for position, name in enumerate(event_type.key_order, 1):
        place = f"/{_IDENTIFIER}/{name.replace('~', '~0').replace('/', '~1')}"
        is_plain = (
            _NAME.fullmatch(name) and name not in _RESERVED and not name.startswith(_POSITION)
        )
        known = name if is_plain else f"{_POSITION}{position}"
        fields[known] = _field(_kind(event_type.fields[name].handler), place)
    for at, known in enumerate(_BOX):
        fields[known] = _field(FieldKind.FLOAT, f"/bbox/{at}")
    fields[PUBLISHED] = _field(FieldKind.DATE, _PUBLISHED_AT)
    search = {"primaryTimestampField": PUBLISHED, "fields": fields}
    raw = msgspec.json.encode(search)
    return raw if len(raw) <= SEARCH_BYTES_MAX else None


def _kind(handler: FieldHandler) -> FieldKind:
    match handler:
        case IntHandler():
            return FieldKind.INTEGER
        case FloatHandler():
            return FieldKind.FLOAT
        case _:
            return FieldKind.KEYWORD


def _field(kind: FieldKind, pointer: str) -> dict[str, object]:
    flags = dict.fromkeys(_FLAGS.get(kind, ("column", "exists", "sortable")), True)
    return {"kind": kind, "bindings": [{"version": 1, "jsonPointer": pointer}], **flags}


_FLAGS = {
    FieldKind.KEYWORD: ("exact", "prefix", "exists", "sortable", "aggregatable"),
    FieldKind.INTEGER: ("exact", "column", "exists", "sortable", "aggregatable"),
    FieldKind.FLOAT: ("column", "exists", "sortable", "aggregatable"),
}


def make_query(wanted: NotificationFilter, search: Search) -> Query | None:
    """A filter as a query, by the search configuration of its log; None if there is none for it."""
    fields = [f for f in search.fields.values() if f.path()[:1] == (_IDENTIFIER,)]
    if len(fields) != len(wanted.tokens) - 1:
        return None  # it was made for other subjects
    items: list[Query | None] = [
        _equals(field, token)
        for field, token in zip(fields, wanted.tokens[1:], strict=True)
        if token is not None
    ]
    for position, constraint in wanted.constraints:
        items += _constrained(fields[position - 1], constraint)
    if wanted.shape is not None:
        items += _overlaps(wanted.shape)
    known = [item for item in items if item is not None]
    return All(tuple(known)) if known else None


def _equals(field: Field, token: str) -> Query | None:
    """That the field has the value with this canonical text; None if that is none of its kind."""
    match field.kind:
        case FieldKind.INTEGER:
            number: int | float | None = parse_int(token)
        case FieldKind.FLOAT:
            number = parse_float(token)
        case _:
            return Equals(field.name, token)
    return None if number is None else Equals(field.name, number)


def _constrained(field: Field, constraint: Constraint) -> list[Query]:
    match constraint:
        case Eq() | OneOf() if not field.typed:
            tokens = sorted(
                constraint.tokens if isinstance(constraint, OneOf) else [constraint.token]
            )
            return [Any(tuple(Equals(field.name, token) for token in tokens))]
        case OneOf(values=values) if field.typed and len(values) <= _NUMBERS_ASKED_MAX:
            return [Any(tuple(Equals(field.name, value) for value in values))]
    bounds = constraint.bounds
    return [] if bounds is None or not field.typed else list(_between(field, bounds))


def _between(field: Field, bounds: Bounds) -> Iterator[Query]:
    if isfinite(bounds.low):
        yield Compares(field.name, ">" if bounds.low_open else ">=", bounds.low)
    if isfinite(bounds.high):
        yield Compares(field.name, "<" if bounds.high_open else "<=", bounds.high)


def _overlaps(shape: WantedShape) -> Iterator[Query]:
    """That the boxes have a point in common."""
    box = shape.box
    min_lat, min_lon, max_lat, max_lon = _BOX
    yield Compares(min_lat, "<=", box.max_lat)
    yield Compares(min_lon, "<=", box.max_lon)
    yield Compares(max_lat, ">=", box.min_lat)
    yield Compares(max_lon, ">=", box.min_lon)
