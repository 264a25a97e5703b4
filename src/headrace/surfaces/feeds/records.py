"""How an event is stored: its envelope as JSON, whole, with the id first.

    {"id":"…","type":"…","tenantId":"…","timestamp":"…","sequenceNumber":7,"resourceRef":{…},…}

An event is parsed and written down before it has a number; number and time go into the gap that is
left for them when they are decided. So what is stored is what is sent, to every reader.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple
from uuid import UUID, uuid4

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    EVENT_TYPE_LENGTH_MAX,
    EVENTS_PER_POST_MAX,
    NESTING_MAX,
    STREAM_KEY_BYTES_MAX,
)
from headrace.core.record import Drafts, draft
from headrace.core.record_ids import OPENING
from headrace.formats.nesting import is_too_deep
from headrace.search.values import format_date
from headrace.surfaces.feeds import wire
from headrace.surfaces.feeds.errors import invalid_field
from headrace.surfaces.feeds.names import EventResource, format_key
from headrace.web.calls import decode

_TYPE = re.compile(wire.TYPE_PATTERN.removesuffix("$") + r"\Z")
_ID = re.compile(wire.ID_PATTERN.removesuffix("$") + r"\Z")


class _Incoming(msgspec.Struct, rename="camel"):
    """An event as it is sent; its data are kept as they came, and patterns are not looked at yet:
    those of JSON Schema let a line break follow, and a refusal would show nothing but the pattern.
    """

    type: Annotated[str, Meta(max_length=EVENT_TYPE_LENGTH_MAX)]
    resource_ref: wire.ResourceRef
    id: str | UnsetType = UNSET
    tenant_id: str | UnsetType = UNSET
    actor: wire.Actor | UnsetType = UNSET
    data: Raw | UnsetType = UNSET


class _IncomingBatch(msgspec.Struct):
    events: Annotated[list[_Incoming], Meta(min_length=1, max_length=EVENTS_PER_POST_MAX)]


class _Shape(msgspec.Struct):
    events: Raw | UnsetType = UNSET


_shape = msgspec.json.Decoder(_Shape)
_single = msgspec.json.Decoder(_Incoming)
_batch = msgspec.json.Decoder(_IncomingBatch)


class ParsedEvent(NamedTuple):
    """An event that can be stored: all of it but its number and its time."""

    id: UUID
    type: str
    key: str
    opening: bytes
    closing: bytes


def parse_events(body: bytes, tenant: str, event_bytes_max: int) -> list[ParsedEvent]:
    """The events of a body: one envelope, or a batch."""
    if decode(_shape, body).events is UNSET:
        return [_parse(decode(_single, body), tenant, event_bytes_max, "")]
    events = decode(_batch, body).events
    return [
        _parse(event, tenant, event_bytes_max, f"events[{at}].") for at, event in enumerate(events)
    ]


def _parse(event: _Incoming, tenant: str, bytes_max: int, where: str) -> ParsedEvent:
    if _TYPE.match(event.type) is None:
        problem = "is made of two words or more, joined by dots: version.published"
        raise invalid_field(f"{where}type", problem, event.type)
    if event.tenant_id is not UNSET and event.tenant_id != tenant:
        raise invalid_field(f"{where}tenantId", f"is not {tenant}, as in the path", event.tenant_id)
    if event.id is UNSET:
        id = uuid4()
    elif _ID.match(event.id) is None:
        raise invalid_field(f"{where}id", "is not a UUID", event.id)
    else:
        id = UUID(event.id)
    ref = event.resource_ref
    parents = {} if ref.parent_refs is UNSET else ref.parent_refs
    key = format_key(EventResource(ref.resource_type, ref.resource_id, parents))
    if len(key) > STREAM_KEY_BYTES_MAX:
        raise invalid_field(f"{where}resourceRef", "names too much: ids and ancestors are too long")
    opening = b'%b%b","type":"%b","tenantId":"%b","timestamp":"' % (
        OPENING,
        str(id).encode(),
        event.type.encode(),
        tenant.encode(),
    )
    parts = [b',"resourceRef":', msgspec.json.encode(ref)]
    if event.actor is not UNSET:
        parts += [b',"actor":', msgspec.json.encode(event.actor)]
    if event.data is not UNSET:
        parts += [b',"data":', _check_data(bytes(event.data), where)]
    closing = b"".join((*parts, b"}"))
    if len(opening) + len(closing) + _GAP_BYTES > bytes_max:
        raise Refused(Code.RECORD_TOO_LARGE, f"an event has at most {bytes_max} bytes")
    return ParsedEvent(id, event.type, key, opening, closing)


_GAP_BYTES = 64
"""More than number and time take."""


def _check_data(data: bytes, where: str) -> bytes:
    if not data.startswith(b"{"):
        raise invalid_field(f"{where}data", "is not a JSON object")
    if is_too_deep(data):
        raise invalid_field(f"{where}data", f"nests deeper than {NESTING_MAX} levels")
    return data


def writer(events: Sequence[ParsedEvent]) -> Callable[[Sequence[int], int, int], Drafts]:
    """Writes the records of some of the events: the first gets this number, all of them this time,
    tags are types and keys resources.
    """

    def write(places: Sequence[int], first: int, at_ms: int) -> Drafts:
        taken = [events[at] for at in places]
        time = format_date(at_ms).encode()
        return draft(
            [
                b'%b%b","sequenceNumber":%d%b' % (event.opening, time, seq, event.closing)
                for seq, event in enumerate(taken, first)
            ],
            tags=[event.type for event in taken],
            keys=[event.key for event in taken],
        )

    return write
