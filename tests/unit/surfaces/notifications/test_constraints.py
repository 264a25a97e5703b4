"""Constraints: every operator, every refusal, and the same answers as a naive model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import Code, Refused
from headrace.core.limits import CONSTRAINT_VALUES_MAX, I64_MAX
from headrace.surfaces.notifications.constraints import (
    Between,
    Bounds,
    Compare,
    Constraint,
    Eq,
    OneOf,
    parse_constraint,
)
from headrace.surfaces.notifications.handlers import (
    DateHandler,
    EnumHandler,
    ExpverHandler,
    FieldHandler,
    FloatHandler,
    IntHandler,
    PolygonHandler,
    StringHandler,
    TimeHandler,
    format_float,
)

INT, FLOAT, ENUM = IntHandler(), FloatHandler(), EnumHandler(("North", "south"))
SEVERITY = IntHandler((1, 7))


@pytest.mark.parametrize(
    ("handler", "asked", "constraint"),
    [
        (INT, {"eq": 5}, Eq(5)),
        (INT, {"eq": -I64_MAX - 1}, Eq(-I64_MAX - 1)),
        (INT, {"in": [5, 3, 5]}, OneOf((3, 5))),
        (INT, {"gt": 5}, Compare("gt", 5)),
        (INT, {"gte": 5}, Compare("gte", 5)),
        (INT, {"lt": 5}, Compare("lt", 5)),
        (INT, {"lte": 5}, Compare("lte", 5)),
        (INT, {"between": [3, 7]}, Between(3, 7)),
        (INT, {"between": [3, 3]}, Between(3, 3)),
        (SEVERITY, {"gte": 7}, Compare("gte", 7)),
        (FLOAT, {"eq": 5}, Eq(5.0)),
        (FLOAT, {"eq": -0.0}, Eq(0.0)),
        (FLOAT, {"in": [0.5, 2]}, OneOf((0.5, 2.0))),
        (FLOAT, {"lt": 50.0}, Compare("lt", 50.0)),
        (FLOAT, {"between": [-1, 1.5]}, Between(-1.0, 1.5)),
        (ENUM, {"eq": "NORTH"}, Eq("north")),
        (ENUM, {"in": ["South", "north", "south"]}, OneOf(("north", "south"))),
    ],
)
def test_constraints(
    handler: FieldHandler, asked: dict[str, object], constraint: Constraint
) -> None:
    parsed = parse_constraint("f", handler, asked)
    assert parsed == constraint
    assert hash(parsed) == hash(constraint)


@pytest.mark.parametrize("handler", [INT, FLOAT, ENUM])
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"eq": 5, "gt": 3},
        {"ne": 5},
        {"EQ": 5},
        {"": 5},
        {"$" * 10_000: 5},
        {"eq": None},
        {"eq": True},
        {"eq": [5]},
        {"eq": {"eq": 5}},
        {"in": []},
        {"in": 5},
        {"in": "north"},
        {"in": {"a": 1}},
        {"in": [5, True]},
        {"in": [None]},
        {"in": [[5]]},
        {"gt": True},
        {"gt": "5"},
        {"gt": [5]},
        {"gt": None},
        {"between": [3]},
        {"between": [3, 5, 7]},
        {"between": 3},
        {"between": [7, 3]},
        {"between": [3, True]},
        {"between": [3, "7"]},
        {"between": {"min": 3, "max": 7}},
    ],
)
def test_refused_on_every_handler(handler: FieldHandler, asked: dict[str, object]) -> None:
    with pytest.raises(Refused, match=r"^Field 'f' ") as refused:
        parse_constraint("f", handler, asked)
    assert refused.value.code is Code.INVALID
    assert len(refused.value.message) < 300


@pytest.mark.parametrize(
    ("handler", "asked"),
    [
        (INT, {"eq": "5"}),
        (INT, {"eq": 5.0}),
        (INT, {"gte": 5.5}),
        (INT, {"eq": I64_MAX + 1}),
        (INT, {"eq": -I64_MAX - 2}),
        (INT, {"eq": 10**5000}),
        (INT, {"in": list(range(CONSTRAINT_VALUES_MAX + 1))}),
        (SEVERITY, {"gte": 9}),
        (SEVERITY, {"eq": 0}),
        (SEVERITY, {"in": [1, 8]}),
        (SEVERITY, {"between": [0, 5]}),
        (SEVERITY, {"between": [5, 8]}),
        (FLOAT, {"eq": "5"}),
        (FLOAT, {"eq": float("nan")}),
        (FLOAT, {"gt": float("inf")}),
        (FLOAT, {"in": [1.0, float("-inf")]}),
        (FLOAT, {"eq": 10**5000}),
        (FloatHandler((0.0, 1.0)), {"lt": 1.5}),
        (ENUM, {"eq": "west"}),
        (ENUM, {"eq": 1}),
        (ENUM, {"in": ["north", "west"]}),
        (ENUM, {"gt": "north"}),
        (ENUM, {"gte": "north"}),
        (ENUM, {"lt": "north"}),
        (ENUM, {"lte": "north"}),
        (ENUM, {"between": ["north", "south"]}),
        (StringHandler(), {"eq": "x"}),
        (DateHandler(), {"eq": "20250101"}),
        (TimeHandler(), {"eq": "0600"}),
        (ExpverHandler(), {"eq": "0001"}),
        (PolygonHandler(), {"eq": "0,0"}),
    ],
)
def test_refused_on_some(handler: FieldHandler, asked: dict[str, object]) -> None:
    with pytest.raises(Refused, match=r"^Field 'f' "):
        parse_constraint("f", handler, asked)


def test_an_unknown_operator_is_told_which_there_are() -> None:
    with pytest.raises(Refused, match="'ne'; there are eq, in, gt, gte, lt, lte, between"):
        parse_constraint("f", INT, {"ne": 5})
    with pytest.raises(Refused, match=r"'gt'; there are eq, in$"):
        parse_constraint("f", ENUM, {"gt": "north"})


@pytest.mark.parametrize(
    ("constraint", "bounds"),
    [
        (Eq(5), Bounds(5, 5)),
        (Eq("north"), None),
        (OneOf((3, 5, 9)), Bounds(3, 9)),
        (OneOf(("a", "b")), None),
        (Compare("gt", 5), Bounds(low=5, low_open=True)),
        (Compare("gte", 5), Bounds(low=5)),
        (Compare("lt", 5), Bounds(high=5, high_open=True)),
        (Compare("lte", 5), Bounds(high=5)),
        (Between(3, 7), Bounds(3, 7)),
    ],
)
def test_bounds(constraint: Constraint, bounds: Bounds | None) -> None:
    assert constraint.bounds == bounds


@pytest.mark.parametrize(
    "constraint",
    [Compare("gte", -5), Compare("lt", 5.0), Between(-5, 5), Between(-5.0, 5.0), Eq(5)],
)
@pytest.mark.parametrize("token", ["", "x", "nan", "inf", "٣", "1_0", "9" * 5000, " 1", "*"])
def test_what_is_no_number_does_not_match(constraint: Constraint, token: str) -> None:
    """A field may have had another handler when the record was written."""
    assert not constraint.matches(token)


def naive(op: str, operand: Any, value: Any) -> bool:
    match op:
        case "eq":
            return bool(value == operand)
        case "in":
            return value in operand
        case "gt":
            return bool(value > operand)
        case "gte":
            return bool(value >= operand)
        case "lt":
            return bool(value < operand)
        case "lte":
            return bool(value <= operand)
        case _:
            return bool(operand[0] <= value <= operand[1])


SMALL = st.integers(-4, 4)
WIDE = SMALL | st.integers(-I64_MAX - 1, I64_MAX)
NUMBERS = (
    SMALL.map(lambda n: n / 2)
    | SMALL
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([-0.0, 5e-324, 1e308, 0.1 + 0.2, 0.3])
)


@st.composite
def questions(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> tuple[str, Any]:
    op = draw(st.sampled_from(["eq", "in", "gt", "gte", "lt", "lte", "between"]))
    if op == "in":
        return op, draw(st.lists(values, min_size=1, max_size=4))
    if op == "between":
        return op, sorted([draw(values), draw(values)])
    return op, draw(values)


def within(bounds: Bounds, value: float) -> bool:
    above = value > bounds.low if bounds.low_open else value >= bounds.low
    below = value < bounds.high if bounds.high_open else value <= bounds.high
    return above and below


@given(questions(WIDE), WIDE)
def test_whole_numbers_match_as_in_the_model(asked: tuple[str, Any], value: int) -> None:
    constraint = parse_constraint("f", INT, {asked[0]: asked[1]})
    matches = constraint.matches(INT.canonical("f", str(value)))
    assert matches == naive(*asked, value)
    assert constraint.bounds is not None
    assert not matches or within(constraint.bounds, value)
    assert matches or asked[0] == "in" or not within(constraint.bounds, value)


@given(questions(NUMBERS), NUMBERS)
def test_numbers_match_as_in_the_model(asked: tuple[str, Any], value: float) -> None:
    constraint = parse_constraint("f", FLOAT, {asked[0]: asked[1]})
    matches = constraint.matches(format_float(float(value)))
    assert matches == naive(*asked, value)
    assert constraint.bounds is not None
    assert not matches or within(constraint.bounds, value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
OPS = st.sampled_from(["eq", "in", "gt", "gte", "lt", "lte", "between"]) | st.text(max_size=3)


@given(
    st.sampled_from([INT, FLOAT, ENUM, SEVERITY, StringHandler()]),
    st.dictionaries(OPS, JSON, max_size=2),
)
def test_an_object_is_a_constraint_or_refused(
    handler: FieldHandler, asked: dict[str, object]
) -> None:
    try:
        constraint = parse_constraint("f", handler, asked)
    except Refused:
        return
    constraint.matches("3")
    hash(constraint)
