"""Shapes: polygons of notifications, and what watchers ask of them.

Coordinates are (latitude, longitude) in degrees, on a plane: nothing wraps around the date line.
Polygons that touch intersect; a point on the edge of a polygon is not in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from struct import pack
from typing import Any, Literal, NamedTuple

import msgspec

from headrace.core.bounded_cache import BoundedCache
from headrace.core.limits import (
    POLYGON_BYTES_MAX,
    POLYGON_KEPT_BYTES,
    POLYGON_POINTS_MAX,
    POLYGONS_KEPT,
)
from headrace.surfaces.notifications.handlers import (
    format_float,
    parse_float,
    refuse_field,
)

LatLon = tuple[float, float]
PolygonForm = Literal["text", "array"]
Sent = str | Sequence[Sequence[float]]
"""A polygon as a client wrote it: `lat,lon,lat,lon,…` or `[[lat,lon],…]`."""

_POINTS_MIN = 4
_NUMBERS = re.compile(r"[-+0-9.eE, ]*")


class Box(NamedTuple):
    """The smallest rectangle around a shape; its edges belong to it."""

    min_lat: float
    min_lon: float
    max_lat: float
    max_lon: float

    def intersects(self, other: Box) -> bool:
        """Whether they have a point in common."""
        return (
            self.min_lat <= other.max_lat
            and other.min_lat <= self.max_lat
            and self.min_lon <= other.max_lon
            and other.min_lon <= self.max_lon
        )


class Polygon(msgspec.Struct, frozen=True, dict=True):
    """An area within one closed ring that neither crosses nor touches itself."""

    ring: tuple[LatLon, ...]

    @cached_property
    def box(self) -> Box:
        lats, lons = zip(*self.ring, strict=True)
        return Box(min(lats), min(lons), max(lats), max(lons))

    @cached_property
    def is_box(self) -> bool:
        """Whether it is its own box: then no geometry is needed to say what it has in common with
        a point or with another box.
        """
        if len(self.ring) != 5:
            return False
        (lat, lon), (lat_1, lon_1), (lat_2, lon_2), (lat_3, lon_3), _ = self.ring
        if lat == lat_2 or lon == lon_2:
            return False
        return (lat_1, lon_1, lat_3, lon_3) in ((lat, lon_2, lat_2, lon), (lat_2, lon, lat, lon_2))

    @cached_property
    def geometry(self) -> Any:
        """For Shapely, with longitude as x."""
        import shapely  # takes a tenth of a second, and nobody may ever send a polygon

        # Three times as fast as by a list of points: every notification with a polygon pays it.
        points = [number for lat, lon in self.ring for number in (lon, lat)]
        little_endian, polygon, rings = 1, 3, 1
        return shapely.from_wkb(
            pack(f"<BIII{len(points)}d", little_endian, polygon, rings, len(self.ring), *points)
        )

    @cached_property
    def prepared(self) -> Any:
        """The same, ready to be asked about many others."""
        import shapely

        shapely.prepare(self.geometry)
        return self.geometry


class WantedPolygon(msgspec.Struct, frozen=True):
    """Wants polygons that have at least a point in common with this one."""

    polygon: Polygon

    @property
    def box(self) -> Box:
        """The box around it."""
        return self.polygon.box

    def may_match(self, box: Box) -> bool:
        """Whether a polygon within this box can match; the cheap question that comes first."""
        return self.polygon.box.intersects(box)

    def matches(self, polygon: Polygon) -> bool:
        """Whether this polygon is wanted, whatever its box says."""
        if polygon.is_box and self.polygon.is_box:
            return self.polygon.box.intersects(polygon.box)
        import shapely

        return bool(shapely.intersects(self.polygon.prepared, polygon.geometry))


class WantedPoint(msgspec.Struct, frozen=True):
    """Wants polygons that have this point inside, not on their edge."""

    lat: float
    lon: float

    @property
    def box(self) -> Box:
        """The box that is this point."""
        return Box(self.lat, self.lon, self.lat, self.lon)

    def may_match(self, box: Box) -> bool:
        """Whether a polygon within this box can match; the cheap question that comes first."""
        return box.min_lat < self.lat < box.max_lat and box.min_lon < self.lon < box.max_lon

    def matches(self, polygon: Polygon) -> bool:
        """Whether this polygon is wanted, whatever its box says."""
        if polygon.is_box:
            return self.may_match(polygon.box)
        import shapely

        return bool(shapely.contains_xy(polygon.geometry, self.lon, self.lat))


WantedShape = WantedPolygon | WantedPoint


def parse_polygon(name: str, sent: object) -> Polygon:
    """A polygon in any of its forms; refuses what is none, naming the field."""
    if isinstance(sent, str) and (known := _parsed.get(sent)) is not None:
        return known
    ring = tuple(_parse_points(name, sent))
    if len(ring) < _POINTS_MIN:
        problem = f"has {len(ring)} points; a polygon has at least {_POINTS_MIN}"
        refuse_field(name, f"{problem}, of which the last is the first again")
    if ring[0] != ring[-1]:
        refuse_field(name, "is not closed: the last point of a polygon is its first")
    polygon = Polygon(ring)
    if not polygon.is_box:
        import shapely

        if not shapely.is_valid(polygon.geometry):
            refuse_field(name, "crosses or touches itself")
    if isinstance(sent, str) and len(sent) <= POLYGON_KEPT_BYTES:
        _parsed.keep(sent, polygon)
    return polygon


_parsed: BoundedCache[str, Polygon] = BoundedCache(POLYGONS_KEPT)
"""Polygons that came last, by their text: regions come again and again, and who looks for watchers
of a notification asks for its polygon right behind it.
"""


def read_polygon(sent: Sent) -> Polygon:
    """A polygon that was stored: it was looked at when it came, and is good."""
    if isinstance(sent, str) and (known := _parsed.get(sent)) is not None:
        return known
    if not isinstance(sent, str):
        return Polygon(tuple((lat + 0.0, lon + 0.0) for lat, lon in sent))
    if sent.lstrip(" ").startswith("["):
        return read_polygon(msgspec.json.decode(sent))
    numbers = map(float, sent.strip(" ").removeprefix("(").removesuffix(")").split(","))
    return read_polygon(list(zip(numbers, numbers, strict=True)))


def parse_point(name: str, sent: object) -> WantedPoint:
    """A point: `lat,lon` or `[lat,lon]`; refuses what is none, naming the field."""
    if isinstance(sent, str):
        sent = _parse_text(name, sent)
    if isinstance(sent, list) and sent and not isinstance(sent[0], list):
        sent = [sent]
    points = _parse_points(name, sent)
    if len(points) != 1:
        refuse_field(name, "is one latitude and one longitude")
    return WantedPoint(*points[0])


def format_polygon(sent: Sent, form: PolygonForm) -> Sent:
    """A stored polygon in the form that is emitted; as it was sent, if that is the one."""
    if isinstance(sent, str) and form == "array":
        return [list(point) for point in read_polygon(sent).ring]
    if form == "text" and not (isinstance(sent, str) and "[" not in sent):
        ring = read_polygon(sent).ring  # an array, which may have come in a text
        return ",".join(f"{format_float(lat)},{format_float(lon)}" for lat, lon in ring)
    return sent


def _parse_points(name: str, sent: object) -> list[LatLon]:
    if isinstance(sent, str):
        if (plain := _read_plain(sent)) is not None:
            return plain
        sent = _parse_text(name, sent)
    if not isinstance(sent, list):
        refuse_field(name, "is a text lat,lon,lat,lon,… or an array [[lat,lon],…]")
    if len(sent) > POLYGON_POINTS_MAX:
        refuse_field(name, f"has more than {POLYGON_POINTS_MAX} points")
    return [_parse_pair(name, pair) for pair in sent]


def _read_plain(text: str) -> list[LatLon] | None:
    """The points of a text as nearly all are written; None for what needs a closer look."""
    if len(text) > POLYGON_BYTES_MAX or not _NUMBERS.fullmatch(text):
        return None
    try:
        numbers = [float(part) + 0.0 for part in text.split(",")]
    except ValueError:
        return None
    lats, lons = numbers[::2], numbers[1::2]
    if len(lats) != len(lons) or len(lats) > POLYGON_POINTS_MAX:
        return None
    if min(lats) < -90 or max(lats) > 90 or min(lons) < -180 or max(lons) > 180:
        return None
    return list(zip(lats, lons, strict=True))


def _parse_text(name: str, text: str) -> object:
    if len(text) > POLYGON_BYTES_MAX:
        refuse_field(name, f"has more than {POLYGON_BYTES_MAX} bytes")
    text = text.strip(" ")
    if text.startswith("["):
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            refuse_field(name, "begins with [ and is not JSON")
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    if not text or not _NUMBERS.fullmatch(text):
        refuse_field(name, "is not a list of numbers, joined by commas")
    numbers = [parse_float(part.strip(" ")) for part in text.split(",")]
    if len(numbers) % 2:
        refuse_field(name, "has a latitude without a longitude")
    pairs = iter(numbers)
    return [[lat, lon] for lat, lon in zip(pairs, pairs, strict=True)]


def _parse_pair(name: str, pair: object) -> LatLon:
    if not isinstance(pair, list) or len(pair) != 2:
        refuse_field(name, "is made of pairs of a latitude and a longitude")
    lat, lon = pair
    for number in pair:
        if isinstance(number, bool) or not isinstance(number, int | float):
            refuse_field(name, "is made of numbers")
    if not -90 <= lat <= 90:  # NaN is not either
        refuse_field(name, "has a latitude that is not from -90 to 90")
    if not -180 <= lon <= 180:
        refuse_field(name, "has a longitude that is not from -180 to 180")
    return lat + 0.0, lon + 0.0
