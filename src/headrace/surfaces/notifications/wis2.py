"""WIS2 notification messages (WNM 1.1): messages as notifications, and notifications as messages.

A message is a GeoJSON feature: its coordinates are longitude first, ours latitude first. The outer
ring of a polygon is the polygon of the notification. A point, as of a station, becomes a square of
some twenty metres around it, so that whoever watches an area finds it. Without a geometry there is
no polygon, and no watcher of an area finds the notification.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

import msgspec

from headrace.core.errors import Code, Refused
from headrace.core.limits import POLYGON_POINTS_MAX
from headrace.search.pointers import Path, resolve
from headrace.search.values import format_date, parse_date_ms
from headrace.surfaces.notifications.handlers import invalid_field, refuse_field
from headrace.surfaces.notifications.identifiers import Notified, parse_notified
from headrace.surfaces.notifications.names import format_id
from headrace.surfaces.notifications.schema import POLYGON, EventType
from headrace.surfaces.notifications.shapes import Sent, read_polygon
from headrace.surfaces.notifications.subjects import WILDCARD

CORE = "http://wis.wmo.int/spec/wnm/1/conf/core"
"""What messages of version 1 say that they conform to."""

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TIMED = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9:]{8}(?:\.[0-9]{1,9})?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_HALF_SIDE = 0.0001
"""Of the square around a point, in degrees."""


def parse_wis2(event_type: EventType, message: object) -> Notified:
    """What a message says as a notification of this type; refuses what is no such message."""
    if event_type.wis2 is None:
        raise Refused(Code.INVALID, f"{event_type.name} takes no WIS2 messages: it has no wis2 map")
    document = check_wis2(message)
    identifier = {name: _find(name, document, path) for name, path in event_type.wis2.items()}
    polygon = parse_geometry(document["geometry"])
    if polygon is not None and POLYGON in event_type.fields:
        identifier[POLYGON] = polygon
    return parse_notified(event_type, event_type.name, identifier, needs_polygon=False)


def is_wis2(payload: object) -> bool:
    """Whether a payload is such a message."""
    try:
        check_wis2(payload)
    except Refused:
        return False
    return True


def check_wis2(message: object) -> dict[str, Any]:
    """The message, if it has all that every message must have; else a refusal that names it."""
    if not isinstance(message, dict):
        raise Refused(Code.INVALID, "a WIS2 message is a JSON object")
    if not _is_text(message.get("id"), _UUID):
        _refuse("id", "is not a UUID")
    conforms = message.get("conformsTo")
    if not isinstance(conforms, list) or CORE not in conforms:
        _refuse("conformsTo", f"is not a list with {CORE}")
    if message.get("type") != "Feature":
        _refuse("type", "is not Feature")
    if "geometry" not in message:
        _refuse("geometry", "is missing; it is null, a Point or a Polygon")
    properties = message.get("properties")
    if not isinstance(properties, dict):
        _refuse("properties", "is not an object")
    _check_properties(properties)
    links = message.get("links")
    if not isinstance(links, list) or not links:
        _refuse("links", "is not a list of at least one link")
    for at, link in enumerate(links):
        if not isinstance(link, dict) or not (
            isinstance(link.get("href"), str) and isinstance(link.get("rel"), str)
        ):
            _refuse(f"links/{at}", "is not an object with href and rel")
    return message


def _check_properties(properties: dict[str, Any]) -> None:
    if not _is_time(properties.get("pubtime")):
        _refuse("properties/pubtime", "is not a time as 2025-01-15T10:00:00Z")
    data_id = properties.get("data_id")
    if not isinstance(data_id, str) or not data_id:
        _refuse("properties/data_id", "is not a text")
    if "datetime" in properties:
        if properties["datetime"] is not None and not _is_time(properties["datetime"]):
            _refuse("properties/datetime", "is not null or a time as 2025-01-15T10:00:00Z")
        return
    for name in ("start_datetime", "end_datetime"):
        if not _is_time(properties.get(name)):
            _refuse(f"properties/{name}", "is not a time as 2025-01-15T10:00:00Z; nor is datetime")


def _is_text(value: object, pattern: re.Pattern[str]) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_time(value: object) -> bool:
    return isinstance(value, str) and _is_text(value, _TIMED) and parse_date_ms(value) is not None


def _refuse(member: str, problem: str) -> NoReturn:
    raise Refused(Code.INVALID, f"the member {member} of a WIS2 message {problem}", field=member)


def _find(name: str, document: dict[str, Any], path: Path) -> object:
    found = resolve(document, path)
    if found is None:
        refuse_field(name, f"is not in the message at /{'/'.join(path)}")
    if isinstance(found, dict | list):
        refuse_field(name, f"is not one value in the message at /{'/'.join(path)}")
    return found


def parse_geometry(geometry: object) -> list[list[float]] | None:
    """The polygon of a GeoJSON geometry, latitude first; None if it is null."""
    match geometry:
        case None:
            return None
        case {"type": "Point", "coordinates": list() as position}:
            return _square(*_parse_position(position))
        case {"type": "Polygon", "coordinates": [list() as ring, *_]}:
            if len(ring) > POLYGON_POINTS_MAX:
                refuse_field("geometry", f"has more than {POLYGON_POINTS_MAX} points")
            return [list(_parse_position(position)) for position in ring]
        case _:
            raise invalid_field("geometry", "is not null, a Point or a Polygon of GeoJSON")


def _parse_position(position: object) -> tuple[float, float]:
    """Latitude and longitude; a height is passed over."""
    match position:
        case [bool(), *_] | [_, bool(), *_]:
            pass
        case [int() | float() as lon, int() | float() as lat, *_]:
            if -90 <= lat <= 90 and -180 <= lon <= 180:
                return lat + 0.0, lon + 0.0
    raise invalid_field("geometry", "has a position that is not a longitude and a latitude")


def _square(lat: float, lon: float) -> list[list[float]]:
    """A small square around a point, or beside it at the ends of the earth."""
    south, west = max(lat - _HALF_SIDE, -90.0), max(lon - _HALF_SIDE, -180.0)
    north, east = min(lat + _HALF_SIDE, 90.0), min(lon + _HALF_SIDE, 180.0)
    return [[south, west], [south, east], [north, east], [north, west], [south, west]]


class Wis2Source(msgspec.Struct, frozen=True):
    """A notification that was stored, and where it came from."""

    event_type: str
    seq: int
    ts_ms: int
    identifier: Mapping[str, Any]
    """As it was stored: canonical texts, and the polygon as it was sent."""
    payload: object


def format_wis2(source: Wis2Source, base_url: str) -> object:
    """A notification as a WIS2 message: its payload, if that is one; else a feature made of it."""
    if is_wis2(source.payload):
        return source.payload
    name = format_id(source.event_type, source.seq)
    polygon: Sent | None = source.identifier.get(POLYGON)
    values = {key: value for key, value in source.identifier.items() if key != POLYGON}
    asked = values if polygon is None else {**values, POLYGON: WILDCARD}
    query = f"event_type={source.event_type}&identifier={quote(_encode(asked), safe='')}"
    return {
        "id": str(uuid5(NAMESPACE_URL, f"{base_url}/{name}")),
        "conformsTo": [CORE],
        "type": "Feature",
        "geometry": None if polygon is None else _format_geometry(polygon),
        "properties": {
            "pubtime": format_date(source.ts_ms),
            "data_id": name,
            "datetime": None,
            "identifier": values,
            "payload": source.payload,
        },
        "links": [
            {
                "href": f"{base_url}/api/v1/watch?{query}&from_id={source.seq}",
                "rel": "canonical",
                "type": "text/event-stream",
            }
        ],
    }


def _encode(values: Mapping[str, Any]) -> str:
    return msgspec.json.encode(values).decode()


def _format_geometry(sent: Sent) -> dict[str, Any]:
    ring = [[lon, lat] for lat, lon in read_polygon(sent).ring]
    return {"type": "Polygon", "coordinates": [ring]}
