"""How a notification is stored: one record, whose parts are found again without parsing it.

    {"identifier":{"region":"north","polygon":[[…]]},"bbox":[…],"payload":…}

Values of an identifier are texts, its polygon is a text or an array. So the first `},"bbox":[` or
`},"payload":` ends the identifier: inside a text its quotes would be escaped.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from headrace.core.record import Drafts, draft
from headrace.surfaces.notifications.identifiers import Notified
from headrace.surfaces.notifications.schema import POLYGON
from headrace.surfaces.notifications.shapes import Sent

_OPENING = b'{"identifier":'
_BBOX, _PAYLOAD = b'},"bbox":[', b'},"payload":'
_BBOX_END = b'],"payload":'
_identifier = msgspec.json.Decoder(dict[str, Sent])


class RecordOpening(NamedTuple):
    """All of a record but its payload: the same for every notification with an identifier."""

    subject: str
    data: bytes


def open_record(notified: Notified) -> RecordOpening:
    """What stands before the payload in the record of a notification."""
    identifier: dict[str, object] = dict(notified.values)
    polygon = notified.polygon
    if polygon is None:
        members = [_OPENING, msgspec.json.encode(identifier)]
    else:
        identifier[POLYGON] = polygon.sent
        box = msgspec.json.encode(polygon.polygon.box)
        members = [_OPENING, msgspec.json.encode(identifier), b',"bbox":', box]
    return RecordOpening(notified.subject, b"".join((*members, b',"payload":')))


def close_record(opening: RecordOpening, payload: Raw | bytes | UnsetType) -> Drafts:
    """The record of a notification, with its subject as tag and key."""
    subject, opened = opening
    sent = b"null" if payload is UNSET else payload
    return draft([b"%b%b}" % (opened, sent)], tags=[subject], keys=[subject])


def make_drafts(notified: Notified, payload: Raw | bytes | UnsetType) -> Drafts:
    """The same at once."""
    return close_record(open_record(notified), payload)


class StoredParts(NamedTuple):
    """The parts of a stored notification, as JSON."""

    identifier: bytes
    box: bytes | None
    payload: bytes


def split(data: bytes) -> StoredParts:
    """Take a stored notification apart; the payload is not looked at."""
    start, boxed = data.find(_PAYLOAD), data.find(_BBOX)
    if boxed < 0 or 0 <= start < boxed:
        identifier = data[len(_OPENING) : start + 1]
        return StoredParts(identifier, None, data[start + len(_PAYLOAD) : -1])
    end = data.index(_BBOX_END, boxed)
    box = data[boxed + len(_BBOX) - 1 : end + 1]
    return StoredParts(data[len(_OPENING) : boxed + 1], box, data[end + len(_BBOX_END) : -1])


def read_identifier(parts: StoredParts) -> dict[str, Sent]:
    """The values by field."""
    return _identifier.decode(parts.identifier)
