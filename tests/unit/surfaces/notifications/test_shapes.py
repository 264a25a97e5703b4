"""Shapes: which polygons and points there are, and which of them have what in common."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.core.errors import Code, Refused
from headrace.core.limits import POLYGON_BYTES_MAX, POLYGON_POINTS_MAX
from headrace.surfaces.notifications.shapes import (
    Box,
    LatLon,
    Polygon,
    WantedPoint,
    WantedPolygon,
    format_polygon,
    parse_point,
    parse_polygon,
    read_polygon,
)

SQUARE = "50,10,50,12,52,12,52,10,50,10"
PAIRS = [[50, 10], [50, 12], [52, 12], [52, 10], [50, 10]]
RING = ((50.0, 10.0), (50.0, 12.0), (52.0, 12.0), (52.0, 10.0), (50.0, 10.0))


def polygon(*numbers: float) -> Polygon:
    return parse_polygon("polygon", ",".join(map(str, numbers)))


@pytest.mark.parametrize(
    "sent",
    [
        SQUARE,
        f"({SQUARE})",
        f"  ( {SQUARE} ) ".replace(",", " , "),
        "5e1,+10,50.0,12,52.,12,52,1e1,50,10",
        PAIRS,
        str(PAIRS),
        f" {PAIRS} ",
    ],
)
def test_the_forms_of_a_polygon(sent: Any) -> None:
    parsed = parse_polygon("polygon", sent)
    assert parsed.ring == RING
    assert parsed.box == Box(50, 10, 52, 12)
    assert read_polygon(sent) == parsed
    assert hash(parsed) == hash(read_polygon(sent))


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        ("", "is not a list of numbers"),
        ("()", "is not a list of numbers"),
        ("(" + SQUARE, "is not a list of numbers"),
        (SQUARE + ")", "is not a list of numbers"),
        (f"(({SQUARE}))", "is not a list of numbers"),
        ("POLYGON((0 0, 1 1))", "is not a list of numbers"),
        ("nan,0,0,1,1,1,nan,0", "is not a list of numbers"),
        ("inf,0,0,1,1,1,inf,0", "is not a list of numbers"),
        ("٣,0,0,1,1,1,٣,0", "is not a list of numbers"),
        ("0;0;0;1;1;1;0;0", "is not a list of numbers"),
        ("0,0,\n0,1,1,1,0,0", "is not a list of numbers"),
        ("0,0,,1,1,1,0,0", "is made of numbers"),
        ("0,0,0,1,1,1,0,0,", "has a latitude without a longitude"),
        ("0,0,0,1,1,1,0", "has a latitude without a longitude"),
        ("0,0,e,1,1,1,0,0", "is made of numbers"),
        ("0,0,1-1,1,1,1,0,0", "is made of numbers"),
        ("1e400,0,0,1,1,1,1e400,0", "is made of numbers"),
        ("0,0,0,1,0,0", "has 3 points; a polygon has at least 4"),
        ("0,0,0,1,1,1,1,0", "is not closed"),
        ("0,0,0,1,1,1,0,0.0000001", "is not closed"),
        ("0,0,1,1,0,1,1,0,0,0", "crosses or touches itself"),
        ("0,0,4,0,4,4,2,0,0,4,0,0", "crosses or touches itself"),
        ("0,0,0,1,0,2,0,0", "crosses or touches itself"),
        ("5,5,5,5,5,5,5,5", "crosses or touches itself"),
        ("90.1,0,0,1,1,1,90.1,0", "a latitude that is not from -90 to 90"),
        ("0,180.5,0,1,1,1,0,180.5", "a longitude that is not from -180 to 180"),
        (None, "is a text lat,lon"),
        (5, "is a text lat,lon"),
        ({"type": "Polygon"}, "is a text lat,lon"),
        ([], "has 0 points"),
        ([0, 0, 0, 1, 1, 1, 0, 0], "is made of pairs"),
        ([[0, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 0]], "is made of pairs"),
        ([[0], [0], [1], [0]], "is made of pairs"),
        ([["0", "0"], ["0", "1"], ["1", "1"], ["0", "0"]], "is made of numbers"),
        ([[True, 0], [0, 1], [1, 1], [True, 0]], "is made of numbers"),
        ([[None, 0], [0, 1], [1, 1], [None, 0]], "is made of numbers"),
        ([[float("nan"), 0], [0, 1], [1, 1], [0, 0]], "a latitude that is not"),
        ([[0, float("inf")], [0, 1], [1, 1], [0, 0]], "a longitude that is not"),
        ([[10**5000, 0], [0, 1], [1, 1], [0, 0]], "a latitude that is not"),
        ([[[0, 0], [0, 1], [1, 1], [0, 0]]], "is made of pairs"),
        ("[[0,0],[0,1],[1,1],[0,0]", "begins with [ and is not JSON"),
        ("[[NaN,0],[0,1],[1,1],[0,0]]", "begins with [ and is not JSON"),
        ("[[1e999,0],[0,1],[1,1],[0,0]]", "begins with [ and is not JSON"),
        ("[" * 60_000, "begins with [ and is not JSON"),
        ('["\ud800"]', "begins with [ and is not JSON"),
        ("1," * POLYGON_BYTES_MAX, f"has more than {POLYGON_BYTES_MAX} bytes"),
        ([[0, 0]] * (POLYGON_POINTS_MAX + 1), f"has more than {POLYGON_POINTS_MAX} points"),
        ("0,0," * POLYGON_POINTS_MAX + "0,0", f"has more than {POLYGON_POINTS_MAX} points"),
    ],
)
def test_what_is_no_polygon(sent: Any, problem: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_polygon("polygon", sent)
    assert refused.value.code is Code.INVALID
    assert refused.value.message.startswith("Field 'polygon' ")
    assert problem in refused.value.message


def test_the_largest_polygon() -> None:
    steps = (POLYGON_POINTS_MAX - 2) // 2
    upper = [[50 + n / 1000, n / 1000] for n in range(steps)]
    lower = [[49 + n / 1000, n / 1000] for n in reversed(range(steps))]
    ring = [*upper, *lower]
    ring.append(ring[0])
    assert len(parse_polygon("polygon", ring).ring) == len(ring) == POLYGON_POINTS_MAX - 1


@pytest.mark.parametrize(
    "sent", ["51,11", "(51,11)", " 51 , 11 ", [51, 11], [51.0, 11.0], "[51,11]", "[[51,11]]"]
)
def test_the_forms_of_a_point(sent: Any) -> None:
    assert parse_point("point", sent) == WantedPoint(51, 11)


@pytest.mark.parametrize(
    "sent",
    ["", "51", "51,11,12", "51,11,52,12", "91,0", "0,181", "nan,0", "*", "x,y", [], [51],
     [51, 11, 5], [[51, 11], [52, 12]], [True, 1], ["51", "11"], None, 5, True, {"eq": "51,11"},
     [None, 0], [{}, {}], "[51,11", "[" * 1000, "[1,[2]]"],
)  # fmt: skip
def test_what_is_no_point(sent: Any) -> None:
    with pytest.raises(Refused, match="Field 'point' "):
        parse_point("point", sent)


@pytest.mark.parametrize(
    ("other", "intersects"),
    [
        ((51, 11, 51, 13, 53, 13, 53, 11, 51, 11), True),
        ((50.5, 10.5, 50.5, 11, 51, 11, 50.5, 10.5), True),
        ((40, 0, 40, 20, 60, 20, 60, 0, 40, 0), True),
        ((52, 12, 52, 14, 54, 14, 54, 12, 52, 12), True),
        ((52, 10, 52, 12, 54, 12, 54, 10, 52, 10), True),
        ((52.1, 10, 52.1, 12, 54, 12, 54, 10, 52.1, 10), False),
        ((52, 12.1, 52, 14, 54, 14, 54, 12.1, 52, 12.1), False),
        # Boxes that intersect, of polygons that do not.
        ((52, 12.5, 52.5, 12.5, 52.5, 11, 52, 12.5), False),
    ],
)
def test_polygons_that_touch_intersect(other: tuple[float, ...], intersects: bool) -> None:
    mine, theirs = parse_polygon("polygon", SQUARE), polygon(*other)
    assert WantedPolygon(mine).matches(theirs) is intersects
    assert WantedPolygon(theirs).matches(mine) is intersects
    assert not intersects or WantedPolygon(mine).may_match(theirs.box)


@pytest.mark.parametrize(
    ("point", "inside"),
    [
        ((51, 11), True),
        ((50.0000001, 10.0000001), True),
        ((50, 11), False),
        ((51, 12), False),
        ((50, 10), False),
        ((49, 11), False),
        ((51, 13), False),
    ],
)
def test_a_point_on_the_edge_is_not_inside(point: LatLon, inside: bool) -> None:
    square = parse_polygon("polygon", SQUARE)
    assert WantedPoint(*point).matches(square) is inside
    assert WantedPoint(*point).may_match(square.box) is inside


def test_a_point_in_the_box_may_be_outside() -> None:
    triangle = polygon(0, 0, 10, 0, 0, 10, 0, 0)
    assert WantedPoint(8, 8).may_match(triangle.box)
    assert not WantedPoint(8, 8).matches(triangle)
    assert not WantedPoint(5, 5).matches(triangle)
    assert WantedPoint(4, 5).matches(triangle)


def test_nothing_wraps_around_the_date_line() -> None:
    east, west = (
        polygon(0, 170, 0, 180, 10, 180, 0, 170),
        polygon(0, -180, 0, -170, 10, -170, 0, -180),
    )
    assert not WantedPolygon(east).matches(west)


@pytest.mark.parametrize("sent", [SQUARE, f"({SQUARE})", PAIRS, str(PAIRS)])
def test_emitted_forms(sent: Any) -> None:
    array, text = format_polygon(sent, "array"), format_polygon(sent, "text")
    assert isinstance(array, list)
    assert isinstance(text, str)
    assert parse_polygon("polygon", array).ring == RING
    assert parse_polygon("polygon", text).ring == RING


def test_what_has_the_emitted_form_stays_as_it_was_sent() -> None:
    assert format_polygon(f"({SQUARE})", "text") == f"({SQUARE})"
    assert format_polygon(PAIRS, "array") is PAIRS
    assert format_polygon(PAIRS, "text") == SQUARE
    assert format_polygon(str(PAIRS), "text") == SQUARE


# The model: whole coordinates, and arithmetic that is exact.


def side(a: LatLon, b: LatLon, point: LatLon) -> float:
    return (b[0] - a[0]) * (point[1] - a[1]) - (b[1] - a[1]) * (point[0] - a[0])


def on_edge(a: LatLon, b: LatLon, point: LatLon) -> bool:
    return (
        side(a, b, point) == 0
        and min(a[0], b[0]) <= point[0] <= max(a[0], b[0])
        and min(a[1], b[1]) <= point[1] <= max(a[1], b[1])
    )


def inside(ring: tuple[LatLon, ...], point: LatLon) -> bool:
    """Strictly: a ray to the right crosses the ring an odd number of times."""
    if any(on_edge(a, b, point) for a, b in pairwise(ring)):
        return False
    crossings = 0
    for a, b in pairwise(ring):
        low, high = sorted((a, b))
        if low[0] <= point[0] < high[0] and side(low, high, point) < 0:
            crossings += 1
    return crossings % 2 == 1


def cross(a: LatLon, b: LatLon, c: LatLon, d: LatLon) -> bool:
    if on_edge(a, b, c) or on_edge(a, b, d) or on_edge(c, d, a) or on_edge(c, d, b):
        return True
    return side(a, b, c) * side(a, b, d) < 0 and side(c, d, a) * side(c, d, b) < 0


def intersect(one: tuple[LatLon, ...], other: tuple[LatLon, ...]) -> bool:
    edges = any(cross(*e, *f) for e in pairwise(one) for f in pairwise(other))
    return edges or inside(one, other[0]) or inside(other, one[0])


CORNERS = st.tuples(st.integers(-6, 6), st.integers(-6, 6))


@st.composite
def boxes(draw: st.DrawFn) -> Polygon:
    """Polygons with sides along the grid, from any corner and in both directions."""
    sides = st.lists(st.integers(-6, 6), min_size=2, max_size=2, unique=True)
    (south, north), (west, east) = draw(sides), draw(sides)
    corners = [(south, west), (south, east), (north, east), (north, west)]
    first = draw(st.integers(0, 3))
    corners = (corners[first:] + corners[:first])[:: draw(st.sampled_from((1, -1)))]
    polygon = parse_polygon("polygon", [list(corner) for corner in [*corners, corners[0]]])
    assert polygon.is_box
    return polygon


@st.composite
def any_rings(draw: st.DrawFn) -> Polygon:
    corners = draw(st.lists(CORNERS, min_size=3, max_size=6, unique=True))
    try:
        return parse_polygon("polygon", [list(corner) for corner in [*corners, corners[0]]])
    except Refused:
        assume(False)
        raise


def rings() -> st.SearchStrategy[Polygon]:
    return any_rings() | boxes()


@given(rings(), rings())
def test_polygons_intersect_as_in_the_model(one: Polygon, other: Polygon) -> None:
    assert WantedPolygon(one).matches(other) == intersect(one.ring, other.ring)


@given(rings(), CORNERS)
def test_points_are_inside_as_in_the_model(area: Polygon, point: LatLon) -> None:
    assert WantedPoint(*point).matches(area) == inside(area.ring, point)


@given(st.lists(CORNERS, min_size=3, max_size=5))
def test_a_ring_is_refused_if_edges_meet(corners: list[LatLon]) -> None:
    ring = [*corners, corners[0]]
    edges = list(pairwise(ring))
    simple = len(set(corners)) == len(corners) and not any(
        cross(*edges[i], *edges[j])
        for i in range(len(edges))
        for j in range(i + 2, len(edges))
        if (i, j) != (0, len(edges) - 1)
    )
    simple = simple and not any(
        on_edge(b, c, a) or on_edge(a, b, c)
        for (a, b), (_, c) in zip(edges, [*edges[1:], edges[0]], strict=True)
    )
    try:
        parse_polygon("polygon", [list(corner) for corner in ring])
    except Refused:
        assert not simple
        return
    # A point may be there twice in a row.
    assert simple or any(a == b for a, b in edges)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=10,
)


@given(JSON | st.text("0123456789,.-+eE ()[]", max_size=40))
def test_whatever_is_sent_is_a_shape_or_refused(sent: object) -> None:
    for parse in (parse_polygon, parse_point):
        try:
            parse("f", sent)
        except Refused:
            continue
