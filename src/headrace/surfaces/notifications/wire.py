"""The JSON of notifications: one shape of requests for notify, watch and replay; replies."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from headrace.core.errors import Refused
from headrace.core.limits import NESTING_MAX
from headrace.formats.nesting import is_too_deep
from headrace.surfaces.notifications.errors import (
    INVALID_JSON,
    INVALID_SHAPE,
    UNKNOWN_FIELD,
    invalid,
)

_SHOWN = 100
"""Characters of an unknown key that a message repeats."""


class NotificationRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A notification, or which ones to deliver; watch and replay pass over a payload."""

    event_type: str
    identifier: dict[str, Any]
    from_id: str | None = None
    from_date: str | None = None
    to_id: str | None = None
    to_date: str | None = None
    payload: Raw | UnsetType = UNSET


class PlainNotification(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A notification and nothing else, as nearly all come; its identifier is not looked at yet."""

    event_type: str
    identifier: Raw
    payload: Raw | UnsetType = UNSET


_request = msgspec.json.Decoder(NotificationRequest)
_plain = msgspec.json.Decoder(PlainNotification)
_identifier = msgspec.json.Decoder(dict[str, Any])
_KEYS = frozenset(NotificationRequest.__struct_fields__)


def parse_request(body: bytes) -> NotificationRequest:
    """The body of a request. The payload stays as it came."""
    try:
        request = _request.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _explain(body, error) from None
    if is_too_deep(body):
        raise _too_deep()
    return request


def parse_plain(body: bytes) -> PlainNotification | None:
    """The same of a plain notification; None for what is another request, or none."""
    try:
        plain = _plain.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return None if is_too_deep(body) else plain


def open_plain(plain: PlainNotification) -> NotificationRequest | None:
    """A plain notification with its identifier; None if that is not an object of JSON."""
    try:
        identifier = _identifier.decode(plain.identifier)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return NotificationRequest(plain.event_type, identifier, payload=plain.payload)


def parse_json(text: bytes, called: str = "the body") -> Any:
    """Any JSON; refuses what is none, by what it is called."""
    if not text:
        raise invalid(INVALID_JSON, f"{called} is empty")
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise invalid(INVALID_JSON, f"{called} is not JSON: {problem}") from None
    except RecursionError:
        raise _too_deep() from None
    if is_too_deep(text):
        raise _too_deep()
    return found


def _too_deep() -> Refused:
    return invalid(INVALID_JSON, f"JSON nests at most {NESTING_MAX} levels")


def _explain(body: bytes, error: Exception) -> Refused:
    """What is wrong, in the order in which that is told: the syntax, the keys, their values."""
    try:
        found = parse_json(body)
    except Refused as refused:
        return refused
    if not isinstance(found, dict):
        return invalid(INVALID_SHAPE, "the body is not a JSON object")
    for key in found:
        if key not in _KEYS:
            return invalid(UNKNOWN_FIELD, f"unknown field {key[:_SHOWN]!r}")
    wrong, _, where = str(error).partition(" - at `$")
    field = where.rstrip("`").lstrip(".")
    return invalid(INVALID_SHAPE, f"{wrong} at {field}" if field else wrong)


class NotifyReply(msgspec.Struct):
    """The notification is stored."""

    status: str
    request_id: str
    processed_at: str


class SchemaListReply(msgspec.Struct, omit_defaults=True):
    """All event types of the configuration."""

    status: str
    schema: dict[str, Any]
    event_types: list[str]
    total_schemas: int
    message: str | None = None
    request_id: str = ""


class SchemaReply(msgspec.Struct):
    """One event type."""

    status: str
    event_type: str
    schema: dict[str, Any]
    request_id: str


class UnknownSchemaReply(msgspec.Struct):
    """There is no such event type."""

    status: str
    message: str
    available_types: list[str]
    request_id: str


class WipeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which event type to empty: by its base, in any case."""

    stream_name: str


class HealthReply(msgspec.Struct):
    status: str
