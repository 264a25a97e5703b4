"""Notifications and filters at random, and a naive answer to which of them match."""

from __future__ import annotations

import operator
from typing import Any

import msgspec
import shapely
from hypothesis import strategies as st

from headrace.core.record import Block, block, draft
from headrace.surfaces.notifications.handlers import (
    EnumHandler,
    FloatHandler,
    IntHandler,
    PolygonHandler,
    StringHandler,
)
from headrace.surfaces.notifications.identifiers import Notified, parse_notified
from headrace.surfaces.notifications.schema import EventType, IdentifierField

HANDLERS = {
    "region": EnumHandler(("north", "south", "west")),
    "severity": IntHandler((-4, 9)),
    "anomaly": FloatHandler(),
    "station": StringHandler(),
    "polygon": PolygonHandler(),
}
STORM = EventType(
    name="storm",
    base="storm",
    key_order=("region", "severity", "anomaly", "station"),
    fields={
        name: IdentifierField(name, handler, required=False) for name, handler in HANDLERS.items()
    },
)
PAYLOADS = (b"null", b'"text"', b'{"identifier":{"polygon":"x"},"bbox":[9,9,9,9]}', b"[[],1e5]")


def ring(lat: float, lon: float, height: float, width: float, slant: float) -> list[list[float]]:
    """A parallelogram."""
    points = [
        [lat, lon],
        [lat, lon + width],
        [lat + height, lon + width + slant],
        [lat + height, lon + slant],
    ]
    return [*points, points[0]]


whole = st.integers(-6, 6).map(float)
sizes = st.sampled_from([0.5, 1.0, 2.0, 5.0, 40.0])
rings = st.builds(ring, whole, whole, sizes, sizes, st.sampled_from([0.0, 0.0, 3.0]))
polygons = rings | rings.map(lambda points: ",".join(f"{a},{b}" for a, b in points))
points = st.tuples(whole, whole)

regions = st.sampled_from(["north", "south", "west", "NORTH"])
severities = st.integers(-4, 9)
anomalies = st.sampled_from([-0.0, 0.0, 1.45, -2.5, 1e-7, 1e21, 50.0])
stations = st.sampled_from(["a", "a.b", "50%", "x>y", "%2E", "*x"])

notified = st.fixed_dictionaries(
    {
        "region": regions,
        "severity": severities | severities.map(str),
        "anomaly": anomalies,
        "station": stations,
        "polygon": polygons,
    }
)


def _constrained(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(of, min_size=1, max_size=4)
    return of | lists.map(lambda some: {"in": some}) | of.map(lambda one: {"eq": one})


def _ordered(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    pairs = st.lists(of, min_size=2, max_size=2).map(lambda some: {"between": sorted(some)})
    compared = st.builds(lambda op, one: {op: one}, st.sampled_from(["gt", "gte", "lt", "lte"]), of)
    return _constrained(of) | pairs | compared


shapes = st.one_of(
    st.just({}),
    polygons.map(lambda sent: {"polygon": sent}),
    points.map(lambda point: {"point": f"{point[0]},{point[1]}"}),
)
wanted = st.builds(
    lambda fields, shape: fields | shape,
    st.fixed_dictionaries(
        {},
        optional={
            "region": _constrained(regions),
            "severity": _ordered(severities),
            "anomaly": _ordered(anomalies),
            "station": stations | st.just("*"),
        },
    ),
    shapes,
)
"""Identifiers of watches."""

_COMPARE = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}


def matches(asked: dict[str, Any], sent: dict[str, Any]) -> bool:
    """Whether a notification is wanted, by what both say."""
    return all(_field_matches(name, test, sent) for name, test in asked.items())


def _field_matches(name: str, test: Any, sent: dict[str, Any]) -> bool:
    if name == "polygon":
        return bool(shapely.intersects(_geometry(test), _geometry(sent["polygon"])))
    if name == "point":
        lat, lon = map(float, test.split(","))
        return bool(shapely.contains(_geometry(sent["polygon"]), shapely.Point(lon, lat)))
    if test == "*":
        return True
    value = _value(name, sent[name])
    if not isinstance(test, dict):
        return value == _value(name, test)
    op, operand = next(iter(test.items()))
    match op:
        case "eq":
            return value == _value(name, operand)
        case "in":
            return value in [_value(name, each) for each in operand]
        case "between":
            return operand[0] <= value <= operand[1]
        case _:
            return bool(_COMPARE[op](value, operand))


def _value(name: str, sent: Any) -> Any:
    match name:
        case "region":
            return sent.lower()
        case "severity":
            return int(sent)
        case "anomaly":
            return float(sent)
        case _:
            return sent


def _geometry(sent: Any) -> shapely.Polygon:
    if isinstance(sent, str):
        numbers = list(map(float, sent.split(",")))
        sent = list(zip(numbers[::2], numbers[1::2], strict=True))
    return shapely.Polygon([(lon, lat) for lat, lon in sent])


def store(notified: Notified, payload: bytes = b"null") -> bytes:
    """A notification as it is kept."""
    identifier: dict[str, Any] = dict(notified.values)
    kept: dict[str, Any] = {"identifier": identifier}
    if notified.polygon is not None:
        identifier["polygon"] = notified.polygon.sent
        kept["bbox"] = notified.bbox
    return msgspec.json.encode(kept | {"payload": msgspec.Raw(payload)})


def block_of(sent: list[dict[str, Any]], first: int = 1) -> Block:
    """A block with these notifications."""
    parsed = [parse_notified(STORM, STORM.name, one) for one in sent]
    subjects = [one.subject for one in parsed]
    datas = [store(one, PAYLOADS[at % len(PAYLOADS)]) for at, one in enumerate(parsed)]
    return block(draft(datas, tags=[*subjects], keys=[*subjects]), first, 0)
