"""WIS2 messages as notifications, and notifications as WIS2 messages."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import Code, Refused
from headrace.core.limits import POLYGON_POINTS_MAX
from headrace.surfaces.notifications.handlers import IntHandler, PolygonHandler, StringHandler
from headrace.surfaces.notifications.identifiers import parse_wanted
from headrace.surfaces.notifications.schema import EventType, IdentifierField
from headrace.surfaces.notifications.shapes import Box, WantedPoint, read_polygon
from headrace.surfaces.notifications.wis2 import (
    CORE,
    Wis2Source,
    check_wis2,
    format_wis2,
    is_wis2,
    parse_geometry,
    parse_wis2,
)

FIELDS = {
    "centre": IdentifierField("centre", StringHandler(), True),
    "size": IdentifierField("size", IntHandler(), False),
    "polygon": IdentifierField("polygon", PolygonHandler(), True),
}
OBSERVED = EventType(
    name="observed",
    base="obs",
    key_order=("centre", "size"),
    fields=FIELDS,
    wis2={"centre": ("properties", "centre"), "size": ("links", "0", "length")},
)
MESSAGE: dict[str, Any] = {
    "id": "0b54b5a0-5f4e-4b0e-9a63-0c0a5b7a1c11",
    "conformsTo": [CORE],
    "type": "Feature",
    "geometry": {
        "type": "Polygon",
        "coordinates": [[[10, 50], [12, 50], [12, 52], [10, 52], [10, 50]]],
    },
    "properties": {
        "pubtime": "2025-01-15T10:00:00Z",
        "data_id": "obs/synop/1",
        "datetime": "2025-01-15T09:00:00Z",
        "centre": "de-dwd",
    },
    "links": [{"href": "https://example.org/1", "rel": "canonical", "length": 457}],
}
MISSING: Any = object()


def changed(path: str, value: Any) -> dict[str, Any]:
    message = deepcopy(MESSAGE)
    *above, last = path.split("/")
    place: Any = message
    for step in above:
        place = place[int(step) if isinstance(place, list) else step]
    if value is MISSING:
        del place[last]
    else:
        place[int(last) if isinstance(place, list) else last] = value
    return message


def test_a_message_is_a_notification() -> None:
    notified = parse_wis2(OBSERVED, MESSAGE)
    assert notified.values == {"centre": "de-dwd", "size": "457"}
    assert notified.subject == "obs.de-dwd.457"
    assert notified.polygon is not None
    assert notified.polygon.sent == [[50, 10], [50, 12], [52, 12], [52, 10], [50, 10]]
    assert notified.bbox == Box(50, 10, 52, 12)


def test_a_station_is_a_small_square() -> None:
    notified = parse_wis2(
        OBSERVED, changed("geometry", {"type": "Point", "coordinates": [6.1, 46.2, 400]})
    )
    assert notified.polygon is not None
    assert WantedPoint(46.2, 6.1).matches(notified.polygon.polygon)
    area = {"centre": "*", "polygon": "46,6,46,7,47,7,47,6,46,6"}
    shape = parse_wanted(OBSERVED, "observed", area).shape
    assert shape is not None
    assert shape.matches(notified.polygon.polygon)


@pytest.mark.parametrize("lat", [-90, 0, 90])
@pytest.mark.parametrize("lon", [-180, 0, 180])
def test_a_station_at_the_end_of_the_earth_has_a_square_too(lat: int, lon: int) -> None:
    message = changed("geometry", {"type": "Point", "coordinates": [lon, lat]})
    box = parse_wis2(OBSERVED, message).bbox
    assert box is not None
    assert box.min_lat <= lat <= box.max_lat
    assert box.min_lon <= lon <= box.max_lon


def test_without_a_geometry_there_is_no_polygon() -> None:
    notified = parse_wis2(OBSERVED, changed("geometry", None))
    assert notified.polygon is None
    assert notified.bbox is None
    assert notified.subject == "obs.de-dwd.457"


def test_holes_are_passed_over() -> None:
    outer = [[10, 50], [12, 50], [12, 52], [10, 52], [10, 50]]
    hole = [[10.5, 50.5], [11, 50.5], [11, 51], [10.5, 50.5]]
    message = changed("geometry", {"type": "Polygon", "coordinates": [outer, hole]})
    assert parse_wis2(OBSERVED, message).polygon == parse_wis2(OBSERVED, MESSAGE).polygon


def test_a_type_without_polygon_takes_none() -> None:
    fields = {name: field for name, field in FIELDS.items() if name != "polygon"}
    plain = msgspec.structs.replace(OBSERVED, fields=fields)
    assert parse_wis2(plain, MESSAGE).polygon is None


def test_a_type_without_a_map_takes_no_messages() -> None:
    with pytest.raises(Refused, match="observed takes no WIS2 messages"):
        parse_wis2(msgspec.structs.replace(OBSERVED, wis2=None), MESSAGE)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("id", MISSING, "the member id "),
        ("id", "x", "the member id "),
        ("id", 5, "the member id "),
        ("conformsTo", MISSING, "the member conformsTo "),
        ("conformsTo", CORE, "the member conformsTo "),
        ("conformsTo", ["http://example.org"], "the member conformsTo "),
        ("type", "FeatureCollection", "the member type "),
        ("geometry", MISSING, "the member geometry of a WIS2 message is missing"),
        ("geometry", {"type": "LineString", "coordinates": [[1, 2], [3, 4]]}, "'geometry' is not"),
        ("geometry", {"type": "Point"}, "'geometry' is not null"),
        ("geometry", {"type": "Point", "coordinates": [1]}, "'geometry' has a position"),
        ("geometry", {"type": "Point", "coordinates": [True, 1]}, "'geometry' has a position"),
        ("geometry", {"type": "Point", "coordinates": [181, 1]}, "'geometry' has a position"),
        ("geometry", {"type": "Point", "coordinates": [1, 91]}, "'geometry' has a position"),
        ("geometry", {"type": "Point", "coordinates": ["1", "1"]}, "'geometry' has a position"),
        ("geometry", {"type": "Polygon", "coordinates": []}, "'geometry' is not null"),
        ("geometry", {"type": "Polygon", "coordinates": [5]}, "'geometry' is not null"),
        ("geometry/coordinates/0/4", [10, 51], "'polygon' is not closed"),
        ("geometry/coordinates/0/2", [13, 49], "'polygon' crosses"),
        ("geometry/coordinates/0", [[0, 0]] * (POLYGON_POINTS_MAX + 1), "has more than"),
        ("properties", MISSING, "the member properties "),
        ("properties", [], "the member properties "),
        ("properties/pubtime", MISSING, "properties/pubtime "),
        ("properties/pubtime", "2025-01-15", "properties/pubtime "),
        ("properties/pubtime", "2025-01-15T10:00:00", "properties/pubtime "),
        ("properties/pubtime", "2025-02-30T10:00:00Z", "properties/pubtime "),
        ("properties/data_id", MISSING, "properties/data_id "),
        ("properties/data_id", "", "properties/data_id "),
        ("properties/datetime", "now", "properties/datetime "),
        ("properties/datetime", MISSING, "properties/start_datetime "),
        ("properties/centre", MISSING, "'centre' is not in the message at /properties/centre"),
        ("properties/centre", None, "'centre' is not in the message"),
        ("properties/centre", {"eq": "x"}, "'centre' is not one value"),
        ("properties/centre", ["x"], "'centre' is not one value"),
        ("properties/centre", "*", "'centre' is a wildcard"),
        ("links/0/length", 4.5, "'size' is not a whole number"),
        ("links", MISSING, "the member links "),
        ("links", [], "the member links "),
        ("links", [5], "the member links/0 "),
        ("links", [{"href": "x"}], "the member links/0 "),
        ("links", [{"rel": "x"}], "the member links/0 "),
    ],
)
def test_what_is_no_message_of_the_type(path: str, value: Any, problem: str) -> None:
    with pytest.raises(Refused, match=problem) as refused:
        parse_wis2(OBSERVED, changed(path, value))
    assert refused.value.code is Code.INVALID


@pytest.mark.parametrize("message", [None, [], "x", 5])
def test_a_message_is_an_object(message: object) -> None:
    with pytest.raises(Refused, match="is a JSON object"):
        parse_wis2(OBSERVED, message)
    assert not is_wis2(message)


def test_a_period_or_null_is_a_time_too() -> None:
    period = changed("properties/datetime", MISSING)
    period["properties"] |= {
        "start_datetime": "2025-01-15T09:00:00.123456789Z",
        "end_datetime": "2025-01-15T10:00:00+00:00",
    }
    assert is_wis2(period)
    assert is_wis2(changed("properties/datetime", None))


def test_a_payload_that_is_a_message_goes_out_as_it_came() -> None:
    source = Wis2Source("observed", 17, 0, {"centre": "de-dwd"}, MESSAGE)
    assert format_wis2(source, "http://localhost") is MESSAGE


def test_any_other_notification_becomes_a_message() -> None:
    identifier = {"centre": "de-dwd", "size": "457", "polygon": "50,10,50,12,52,12,50,10"}
    source = Wis2Source("observed", 17, 1_736_935_200_123, identifier, {"file": "a.grib"})
    message = format_wis2(source, "http://h:8000")
    assert isinstance(message, dict)
    assert check_wis2(message) is message
    assert message == format_wis2(source, "http://h:8000"), "the same each time it is asked for"
    other = format_wis2(msgspec.structs.replace(source, seq=18), "http://h:8000")
    assert isinstance(other, dict)
    assert message["id"] != other["id"]
    assert message["geometry"] == {
        "type": "Polygon",
        "coordinates": [[[10, 50], [12, 50], [12, 52], [10, 50]]],
    }
    assert message["properties"] == {
        "pubtime": "2025-01-15T10:00:00.123Z",
        "data_id": "observed@17",
        "datetime": None,
        "identifier": {"centre": "de-dwd", "size": "457"},
        "payload": {"file": "a.grib"},
    }
    assert message["links"] == [
        {
            "href": "http://h:8000/api/v1/watch?event_type=observed&identifier=%7B%22centre%22%3A"
            "%22de-dwd%22%2C%22size%22%3A%22457%22%2C%22polygon%22%3A%22%2A%22%7D&from_id=17",
            "rel": "canonical",
            "type": "text/event-stream",
        }
    ]


def test_a_notification_without_a_polygon_becomes_a_message_without_a_geometry() -> None:
    message = format_wis2(Wis2Source("free", 1, 0, {"a": "ü&b"}, None), "http://h")
    assert isinstance(message, dict)
    assert is_wis2(message)
    assert message["geometry"] is None
    assert message["links"][0]["href"].isascii()


@given(st.lists(st.tuples(st.integers(-180, 180), st.integers(-90, 90)), min_size=4, max_size=8))
def test_a_geometry_goes_there_and_back(positions: list[tuple[int, int]]) -> None:
    geometry = {"type": "Polygon", "coordinates": [[list(position) for position in positions]]}
    sent = parse_geometry(geometry)
    assert sent is not None
    message = format_wis2(Wis2Source("free", 1, 0, {"polygon": sent}, None), "http://h")
    assert isinstance(message, dict)
    assert message["geometry"] == geometry
    assert read_polygon(sent).ring == tuple((lat, lon) for lon, lat in positions)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
PATHS = st.sampled_from(
    ["id", "conformsTo", "type", "geometry", "geometry/type", "geometry/coordinates",
     "geometry/coordinates/0", "geometry/coordinates/0/1", "properties", "properties/pubtime",
     "properties/datetime", "properties/centre", "links", "links/0", "links/0/length"]
)  # fmt: skip


@given(PATHS, JSON)
def test_a_message_is_understood_or_refused(path: str, value: object) -> None:
    try:
        parse_wis2(OBSERVED, changed(path, value))
    except Refused:
        return
