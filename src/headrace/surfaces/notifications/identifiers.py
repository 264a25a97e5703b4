"""Identifiers of requests: what notify stores, and what watch and replay ask for."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    IDENTIFIER_FIELDS_MAX,
    IDENTIFIER_NAME_MAX,
    IDENTIFIER_VALUE_BYTES_MAX,
    SUBJECT_BYTES_MAX,
)
from headrace.core.names import has_controls
from headrace.surfaces.notifications.constraints import Constraint, parse_constraint
from headrace.surfaces.notifications.handlers import (
    PolygonHandler,
    ScalarHandler,
    refuse_field,
    show_values,
)
from headrace.surfaces.notifications.schema import POINT, POLYGON, EventType
from headrace.surfaces.notifications.shapes import (
    Box,
    Polygon,
    Sent,
    WantedPolygon,
    WantedShape,
    parse_point,
    parse_polygon,
)
from headrace.surfaces.notifications.subjects import WILDCARD, format_subject, format_topic

_INT_BITS_MAX = 3 * IDENTIFIER_VALUE_BYTES_MAX
"""Of a number whose digits are certain to fit: each of them has more than three bits."""

Identifier = Mapping[str, object]
"""The member `identifier` of a request, as JSON has it."""


class SentPolygon(msgspec.Struct, frozen=True):
    """A polygon as it was written, and what it means."""

    sent: Sent
    polygon: Polygon


class Notified(msgspec.Struct, frozen=True):
    """What a notification says of itself, ready to be stored."""

    values: dict[str, str]
    """Canonical texts by field; without the polygon."""
    polygon: SentPolygon | None
    subject: str
    """As it is stored: tag and key of the record."""

    @property
    def bbox(self) -> Box | None:
        return None if self.polygon is None else self.polygon.polygon.box


class NotificationFilter(msgspec.Struct, frozen=True):
    """What watch and replay ask for. Hashable: equal filters want the same notifications."""

    tokens: tuple[str | None, ...]
    """Of subjects, decoded, the base first; None for any token."""
    constraints: tuple[tuple[int, Constraint], ...] = ()
    """On tokens, by position."""
    shape: WantedShape | None = None

    @property
    def topic(self) -> str:
        """The topic as clients see it."""
        return format_topic(self.tokens)


def parse_notified(
    event_type: EventType | None, name: str, identifier: Identifier, *, needs_polygon: bool = True
) -> Notified:
    """The identifier of a notification; without an event type, whatever it is made of.

    Refuses what the schema does not declare, what is missing of it, and wildcards. A polygon may
    be missing of what comes from elsewhere.
    """
    if POINT in identifier:
        refuse_field(POINT, "is for watch and replay only")
    if event_type is None:
        return _notified_without_schema(name, identifier)
    for key in identifier:
        if key not in event_type.fields:
            known = show_values(tuple(event_type.fields))
            refuse_field(key[:50], f"is not a field of {event_type.name}; there are {known}")
    values: dict[str, str] = {}
    polygon = None
    for key, field in event_type.fields.items():
        if key not in identifier:
            if isinstance(field.handler, PolygonHandler) and not needs_polygon:
                continue
            refuse_field(key, "is missing; a notification has every field of its schema")
        if isinstance(field.handler, PolygonHandler):
            polygon = _parse_sent(key, identifier[key])
        else:
            values[key] = _parse_exact(key, field.handler, identifier[key])
    tokens = (event_type.base, *(values[key] for key in event_type.key_order))
    return Notified(values, polygon, _format_bounded(tokens))


def _notified_without_schema(name: str, identifier: Identifier) -> Notified:
    _check_names(identifier)
    polygon = _parse_sent(POLYGON, identifier[POLYGON]) if POLYGON in identifier else None
    values = {
        key: _parse_exact(key, None, identifier[key])
        for key in sorted(identifier)
        if key != POLYGON
    }
    return Notified(values, polygon, _format_bounded((name, *values.values())))


def parse_wanted(
    event_type: EventType | None, name: str, identifier: Identifier
) -> NotificationFilter:
    """The identifier of a watch or a replay; keys that the schema does not declare are ignored.

    Refuses what is required and missing, and values that no notification can have.
    """
    if POINT in identifier and POLYGON in identifier:
        refuse_field(POINT, f"and {POLYGON} exclude each other")
    shape: WantedShape | None = None
    if POINT in identifier:
        shape = parse_point(POINT, identifier[POINT])
    if event_type is None:
        return _wanted_without_schema(name, identifier, shape)
    tokens: dict[str, str | None] = {}
    constraints: dict[str, Constraint] = {}
    for key, field in event_type.fields.items():
        spatial = isinstance(field.handler, PolygonHandler)
        if key not in identifier:
            if field.required and not (spatial and shape is not None):
                refuse_field(key, "is required")
            continue
        sent = identifier[key]
        if isinstance(field.handler, PolygonHandler):
            if sent != WILDCARD:
                shape = WantedPolygon(parse_polygon(key, sent))
        elif isinstance(sent, dict):
            constraints[key] = parse_constraint(key, field.handler, sent)
        else:
            tokens[key] = _parse_wanted_scalar(key, field.handler, sent)
    order = event_type.key_order
    wanted = (event_type.base, *(tokens.get(key) for key in order))
    _check_size(format_subject(token for token in wanted if token is not None))
    return NotificationFilter(
        wanted,
        tuple((at, constraints[key]) for at, key in enumerate(order, 1) if key in constraints),
        shape,
    )


def _wanted_without_schema(
    name: str, identifier: Identifier, shape: WantedShape | None
) -> NotificationFilter:
    _check_names(identifier)
    if POLYGON in identifier and identifier[POLYGON] != WILDCARD:
        shape = WantedPolygon(parse_polygon(POLYGON, identifier[POLYGON]))
    tokens = [
        _parse_wanted_scalar(key, None, identifier[key])
        for key in sorted(identifier)
        if key not in (POLYGON, POINT)
    ]
    _check_size(format_subject(token for token in tokens if token is not None))
    return NotificationFilter((name, *tokens), (), shape)


def _check_names(identifier: Identifier) -> None:
    """Bound what comes without a schema."""
    if len(identifier) > IDENTIFIER_FIELDS_MAX:
        raise Refused(
            Code.INVALID,
            f"an identifier has at most {IDENTIFIER_FIELDS_MAX} fields",
            field="identifier",
        )
    for key in identifier:
        if not key or len(key) > IDENTIFIER_NAME_MAX:
            refuse_field(key[:50], f"has a name that is not 1 to {IDENTIFIER_NAME_MAX} characters")
        _check_text(key, key)


def _parse_sent(name: str, sent: object) -> SentPolygon:
    if sent == WILDCARD:
        refuse_field(name, "is a wildcard, which is for watch and replay only")
    polygon = parse_polygon(name, sent)
    assert isinstance(sent, str | list)
    return SentPolygon(sent, polygon)


def _parse_exact(name: str, handler: ScalarHandler | None, sent: object) -> str:
    if isinstance(sent, dict):
        refuse_field(name, "is a constraint, which is for watch and replay only")
    text = _parse_scalar(name, sent)
    if text == WILDCARD:
        refuse_field(name, "is a wildcard, which is for watch and replay only")
    return _canonical(name, handler, text)


def _parse_wanted_scalar(name: str, handler: ScalarHandler | None, sent: object) -> str | None:
    if isinstance(sent, dict):
        refuse_field(name, "takes a value: constraints need a schema")
    text = _parse_scalar(name, sent)
    return None if text == WILDCARD else _canonical(name, handler, text)


def _canonical(name: str, handler: ScalarHandler | None, text: str) -> str:
    if handler is not None:
        return handler.canonical(name, text)
    if not text:
        refuse_field(name, "is empty")
    return text


def _parse_scalar(name: str, sent: object) -> str:
    """A string, number or boolean of JSON as a text."""
    match sent:
        case str():
            text = sent
        case bool():
            return "true" if sent else "false"
        case int() if sent.bit_length() <= _INT_BITS_MAX:
            return str(sent)
        case int():
            refuse_field(name, f"has more than {IDENTIFIER_VALUE_BYTES_MAX} bytes")
        case float():
            return repr(sent)
        case _:
            refuse_field(name, "is not a text, a number, true or false")
    if len(text) > IDENTIFIER_VALUE_BYTES_MAX:
        refuse_field(name, f"has more than {IDENTIFIER_VALUE_BYTES_MAX} bytes")
    if _check_text(name, text) > IDENTIFIER_VALUE_BYTES_MAX:
        refuse_field(name, f"has more than {IDENTIFIER_VALUE_BYTES_MAX} bytes")
    return text


def _check_text(name: str, text: str) -> int:
    """Refuse what is not text, or would garble a terminal; how many bytes it has in UTF-8."""
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError:
        refuse_field(name, "is not Unicode text")
    if has_controls(text):
        refuse_field(name, "has control characters")
    return size_bytes


def _format_bounded(tokens: tuple[str, ...]) -> str:
    subject = format_subject(tokens)
    _check_size(subject)
    return subject


def _check_size(subject: str) -> None:
    """Refuse what no subject has room for."""
    if len(subject.encode()) > SUBJECT_BYTES_MAX:
        raise Refused(
            Code.INVALID,
            f"the values of an identifier have at most {SUBJECT_BYTES_MAX} bytes altogether",
            field="identifier",
        )
