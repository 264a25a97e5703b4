"""Identifiers of requests: what notify stores, what watch and replay ask for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    IDENTIFIER_FIELDS_MAX,
    IDENTIFIER_NAME_MAX,
    IDENTIFIER_VALUE_BYTES_MAX,
)
from headrace.core.record import Drafts, draft
from headrace.core.record import block as make_block
from headrace.surfaces.notifications.constraints import Compare, OneOf
from headrace.surfaces.notifications.identifiers import (
    NotificationFilter,
    Notified,
    parse_notified,
    parse_wanted,
)
from headrace.surfaces.notifications.records import make_drafts
from headrace.surfaces.notifications.selector import NotificationSelector
from headrace.surfaces.notifications.shapes import Box, WantedPoint, WantedPolygon
from headrace.surfaces.notifications.subjects import format_subject
from support.storms import SQUARE, STORM

WHOLE: dict[str, Any] = {
    "region": "NORTH",
    "severity": 4,
    "anomaly": 1.5,
    "name": "a.b",
    "polygon": SQUARE,
}


def test_notify_stores_canonical_texts_and_the_polygon_as_it_was_sent() -> None:
    notified = parse_notified(STORM, "storm", WHOLE)
    assert notified.values == {
        "region": "north",
        "severity": "4",
        "anomaly": "1.5",
        "name": "a.b",
    }
    assert notified.subject == "storms.north.4.1%2E5.a%2Eb"
    assert notified.polygon is not None
    assert notified.polygon.sent == SQUARE
    assert notified.bbox == Box(50, 10, 52, 12)


@pytest.mark.parametrize("key", list(WHOLE))
def test_notify_needs_every_field_whether_required_or_not(key: str) -> None:
    with pytest.raises(Refused, match=f"Field '{key}' is missing"):
        parse_notified(STORM, "storm", {k: v for k, v in WHOLE.items() if k != key})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"other": "x"}, "'other' is not a field of storm; there are region, "),
        ({"point": "51,11"}, "'point' is for watch and replay only"),
        ({"region": "*"}, "'region' is a wildcard"),
        ({"severity": "*"}, "'severity' is a wildcard"),
        ({"name": "*"}, "'name' is a wildcard"),
        ({"polygon": "*"}, "'polygon' is a wildcard"),
        ({"severity": {"eq": 4}}, "'severity' is a constraint"),
        ({"polygon": {"eq": SQUARE}}, "'polygon' is a text"),
        ({"region": None}, "'region' is not a text"),
        ({"region": ["north"]}, "'region' is not a text"),
        ({"severity": 10**30}, "'severity' is not a whole number of 64 bits"),
        ({"name": 10**IDENTIFIER_VALUE_BYTES_MAX}, "'name' has more than"),
        ({"severity": 4.0}, "'severity' is not a whole number"),
        ({"severity": True}, "'severity' is not a whole number"),
        ({"name": ""}, "'name' is empty"),
        ({"name": "a\nb"}, "'name' has control characters"),
        ({"name": "a\u2028b"}, "'name' has control characters"),
        ({"name": "\ud800"}, "'name' is not Unicode text"),
        ({"name": "x" * (IDENTIFIER_VALUE_BYTES_MAX + 1)}, "'name' has more than"),
        ({"name": "ü" * IDENTIFIER_VALUE_BYTES_MAX}, "'name' has more than"),
    ],
)
def test_notify_refuses(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(Refused, match=problem) as refused:
        parse_notified(STORM, "storm", WHOLE | change)
    assert refused.value.code is Code.INVALID


def test_numbers_and_booleans_are_texts() -> None:
    values = {"a": True, "b": 5, "c": 1.5, "d": "x", "e": 10**30}
    notified = parse_notified(None, "free", values)
    assert notified.values == {"a": "true", "b": "5", "c": "1.5", "d": "x", "e": "1" + "0" * 30}
    assert notified.subject == "free.true.5.1%2E5.x.1" + "0" * 30


def test_without_a_schema_the_sorted_keys_make_the_subject() -> None:
    notified = parse_notified(None, "free.type", {"z": "1", "a": "2", "polygon": SQUARE})
    assert notified.subject == "free%2Etype.2.1"
    assert notified.bbox == Box(50, 10, 52, 12)
    assert parse_notified(None, "free", {}).subject == "free"


@pytest.mark.parametrize(
    "identifier",
    [
        {f"k{n}": "x" for n in range(IDENTIFIER_FIELDS_MAX + 1)},
        {"k" * (IDENTIFIER_NAME_MAX + 1): "x"},
        {"": "x"},
        {"k": ""},
        {"a\0b": "x"},
        {"\ud800": "x"},
        {f"k{n}": "x" * 1000 for n in range(5)},
    ],
)
def test_without_a_schema_there_are_bounds(identifier: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        parse_notified(None, "free", identifier)


def test_watch_leaves_out_what_is_optional() -> None:
    wanted = parse_wanted(STORM, "storm", {"region": "North", "polygon": SQUARE})
    assert wanted.tokens == ("storms", "north", None, None, None)
    assert wanted.topic == "storms.north.*.*.*"
    assert isinstance(wanted.shape, WantedPolygon)


def test_watch_ignores_what_the_schema_does_not_declare() -> None:
    wanted = parse_wanted(STORM, "storm", {"region": "north", "point": "51,11", "other": None})
    assert wanted == NotificationFilter(
        ("storms", "north", None, None, None), (), WantedPoint(51, 11)
    )


def test_a_constraint_stands_at_the_position_of_its_token() -> None:
    wanted = parse_wanted(
        STORM,
        "storm",
        {"region": {"in": ["south", "NORTH"]}, "severity": {"gt": 3}, "point": [51, 11]},
    )
    assert wanted.tokens == ("storms", None, None, None, None)
    assert wanted.constraints == ((1, OneOf(("north", "south"))), (2, Compare("gt", 3)))


def test_equal_requests_make_equal_filters() -> None:
    first = {"region": {"in": ["south", "north"]}, "severity": "04", "polygon": f"({SQUARE})"}
    second = {"region": {"in": ["NORTH", "south", "north"]}, "severity": 4, "polygon": SQUARE}
    a, b = (parse_wanted(STORM, "storm", identifier) for identifier in (first, second))
    assert a == b
    assert hash(a) == hash(b)


@pytest.mark.parametrize("key", ["region", "severity", "name"])
def test_a_star_is_any_value(key: str) -> None:
    identifier = {"region": "north", "polygon": "*"} | {key: "*"}
    wanted = parse_wanted(STORM, "storm", identifier)
    assert wanted.tokens[1 + STORM.key_order.index(key)] is None
    assert wanted.shape is None


@pytest.mark.parametrize(
    ("identifier", "problem"),
    [
        ({"polygon": SQUARE}, "'region' is required"),
        ({"region": "north"}, "'polygon' is required"),
        ({"region": "north", "polygon": SQUARE, "point": "51,11"}, "exclude each other"),
        ({"region": None, "polygon": SQUARE}, "'region' is not a text"),
        ({"region": "west", "polygon": SQUARE}, "'region' is not one of North, south: 'west'"),
        ({"region": "north", "point": {"eq": "51,11"}}, "'point'"),
        ({"region": "north", "point": "*"}, "'point'"),
        ({"region": "north", "polygon": SQUARE, "name": {"eq": "x"}}, "'name' takes a value"),
        ({"region": "north", "polygon": {"eq": SQUARE}}, "'polygon'"),
        ({"region": "north", "polygon": None}, "'polygon'"),
    ],
)
def test_watch_refuses(identifier: dict[str, Any], problem: str) -> None:
    with pytest.raises(Refused, match=problem):
        parse_wanted(STORM, "storm", identifier)


@pytest.mark.parametrize("key", ["\ud800", "a\nb", "x" * 1_000_000, "ü"])
def test_a_refusal_can_be_written_down_whatever_the_key(key: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_notified(STORM, "storm", WHOLE | {key: "x"})
    assert refused.value.message.isprintable()
    assert len(refused.value.message.encode()) < 200


def test_watch_refuses_more_than_a_subject_has_room_for() -> None:
    long = {f"n{number}": "." * 1024 for number in range(2)}  # three bytes each, as it is stored
    for identifier in (long, long | {"n3": "*"}):
        with pytest.raises(Refused, match="altogether"):
            parse_wanted(None, "plain", identifier)
    parse_wanted(None, "plain", {"n0": "." * 1024, "n1": "*"})


def test_without_a_schema_constraints_are_refused() -> None:
    with pytest.raises(Refused, match="constraints need a schema"):
        parse_wanted(None, "free", {"a": {"eq": 1}})


@pytest.mark.parametrize(
    ("tokens", "wanted"),
    [
        (("storms", "north", "4", "1", "x"), True),
        (("storms", "north", "3", "1", "x"), False),
        (("storms", "south", "4", "1", "x"), False),
        (("storms", "north", "4", "1"), False),
        (("other", "north", "4", "1", "x"), False),
        (("storms", "north", "x", "1", "x"), False),
    ],
)
def test_tokens_are_compared_by_position(tokens: tuple[str, ...], wanted: bool) -> None:
    asked = {"region": "north", "severity": {"gte": 4}, "polygon": "*"}
    stored = draft([b"{}"], tags=[format_subject(tokens)])
    assert _finds(asked, stored) is wanted


def _finds(asked: dict[str, Any], stored: Drafts) -> bool:
    selector = NotificationSelector(parse_wanted(STORM, "storm", asked))
    return list(selector.pick(make_block(stored, 1, 0), range(1))) == [0]


def test_what_notify_stores_is_found_by_the_same_values() -> None:
    notified = parse_notified(STORM, "storm", WHOLE)
    assert _finds(WHOLE, make_drafts(notified, UNSET))
    wanted = parse_wanted(STORM, "storm", WHOLE)
    assert wanted.topic == "storms.north.4.1.5.a.b"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
VALUES = JSON | st.sampled_from(["north", "SOUTH", 4, "4", 1.5, "*", SQUARE, "51,11", {"gte": 4}])
KEYS = st.sampled_from([*WHOLE, "point", "other"]) | st.text(max_size=3)


@given(
    st.dictionaries(KEYS, VALUES, max_size=6) | st.fixed_dictionaries(dict.fromkeys(WHOLE, VALUES))
)
def test_an_identifier_is_understood_or_refused(identifier: dict[str, Any]) -> None:
    for event_type in (STORM, None):
        try:
            notified = parse_notified(event_type, "storm", identifier)
        except Refused:
            pass
        else:
            assert all(isinstance(value, str) for value in notified.values.values())
            again = parse_notified(event_type, "storm", _sent_again(notified))
            assert again == notified, "what was stored is its own canonical form"
        try:
            wanted = parse_wanted(event_type, "storm", identifier)
        except Refused:
            continue
        assert wanted == parse_wanted(event_type, "storm", identifier)
        hash(wanted)


def _sent_again(notified: Notified) -> dict[str, Any]:
    polygon = {} if notified.polygon is None else {"polygon": notified.polygon.sent}
    return {**notified.values, **polygon}
