"""Event types: what notifications say of themselves, who may see them, how long they are kept."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from headrace.core.errors import Code, Refused
from headrace.search.pointers import Path
from headrace.surfaces.notifications.access import AccessRules
from headrace.surfaces.notifications.handlers import FieldHandler

POLYGON = "polygon"
POINT = "point"
"""The names of spatial keys: what a notification covers, and what a watcher asks about."""

_EVENT_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def parse_event_type(text: str) -> str:
    """The name of an event type, which is part of the name of its log; refuses all others."""
    if _EVENT_TYPE.fullmatch(text) is None:
        raise Refused(
            Code.INVALID,
            "an event type has 1 to 200 characters of A-Z a-z 0-9 . _ - "
            "and starts with a letter or digit",
            field="event_type",
        )
    return text


class IdentifierField(msgspec.Struct, frozen=True):
    """A field of the identifiers of an event type."""

    name: str
    handler: FieldHandler
    required: bool
    """Whether watch and replay must name it; notify must name every field."""
    description: str | None = None


class StoragePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long notifications of a type are kept; without a bound, for ever."""

    ttl_ms: int | None = None
    records_max: int | None = None
    bytes_max: int | None = None
    newest_only: bool = False
    """Keeps only the newest notification of each subject."""


class EventType(msgspec.Struct, frozen=True, kw_only=True):
    """A type of notifications, as the schema of the configuration describes it."""

    name: str
    base: str
    """The first token of its subjects."""
    key_order: tuple[str, ...]
    """The fields whose values are the other tokens."""
    fields: Mapping[str, IdentifierField]
    payload_required: bool = False
    access: AccessRules | None = None
    """None: everybody may read and write."""
    storage: StoragePolicy | None = None
    history_max: int | None = None
    """Notifications that one replay delivers at most; None: as many as for other types."""
    wis2: Mapping[str, Path] | None = None
    """Where in a WIS2 message the value of each field is; None: such messages are not taken."""
