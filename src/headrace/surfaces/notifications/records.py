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


def make_drafts(notified: Notified, payload: Raw | bytes | UnsetType) -> Drafts:
    """The record of a notification, with its subject as tag and key."""
    sent = b"null" if payload is UNSET else bytes(payload)
    identifier: dict[str, object] = dict(notified.values)
    polygon = notified.polygon
    if polygon is None:
        parts = [_OPENING, msgspec.json.encode(identifier), b',"payload":', sent, b"}"]
    else:
        identifier[POLYGON] = polygon.sent
        box = msgspec.json.encode(list(polygon.polygon.box))
        members = [_OPENING, msgspec.json.encode(identifier), b',"bbox":', box]
        parts = [*members, b',"payload":', sent, b"}"]
    return draft([b"".join(parts)], tags=[notified.subject], keys=[notified.subject])


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
