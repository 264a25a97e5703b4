"""Operators of predicates: which operands each takes, and when an attribute passes it.

An attribute passes only if it is set and of a kind that can be compared with the operand: a
mismatch passes no operator, whether it asks for likeness or for difference, and fails nothing. So
`neq`, `not_in` and `not_contains` say something of attributes that are there; who wants those
without one too writes `not`. The one exception is `is_set` with `value = false`.

Kinds are texts, numbers (whole or not: 1 is 1.0) and truth values. Texts are ordered by their code
points. `contains` looks for a part of a text, or for an element of a list.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from math import isfinite
from operator import eq, ge, gt, le, lt
from typing import Any

from headrace.core.limits import I64_MAX
from headrace.flags.model import AttributeTest, Scalar
from headrace.flags.semver import parse_semver

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {"gt": gt, "gte": ge, "lt": lt, "lte": le}
_SEMVERS: dict[str, Callable[[Any, Any], bool]] = {
    "semver_eq": eq, "semver_gt": gt, "semver_gte": ge, "semver_lt": lt, "semver_lte": le,
}  # fmt: skip

OPERATORS = frozenset(
    {
        "eq", "neq", "in", "not_in", "contains", "not_contains", "starts_with", "ends_with",
        "is_set", *_ORDERS, *_SEMVERS,
    }
)  # fmt: skip
LISTING = frozenset({"in", "not_in"})
"""Operators that take `values`; the others take `value`."""


def kind_of_scalar(value: object) -> str | None:
    """What a value can be compared with; None if it is no scalar, or a number that is none."""
    match value:
        case bool():
            return "truth"
        case str():
            return "text"
        case int():
            return "number"
        case float() if isfinite(value):
            return "number"
        case _:
            return None


def sort_values(values: Iterable[Scalar]) -> tuple[Scalar, ...]:
    """Values of a list, each once, in the order in which they are looked up."""
    ordered: list[Scalar] = []
    for value in sorted(values, key=_order):
        if not ordered or _order(ordered[-1]) != _order(value):
            ordered.append(value)
    return tuple(ordered)


def operand_problem(op: str, value: object) -> str | None:
    """Why an operator does not take this operand (each one of `values`); None if it does."""
    kind = kind_of_scalar(value)
    if isinstance(value, int) and not -I64_MAX - 1 <= value <= I64_MAX:
        return f"{op} takes whole numbers of 64 bits"
    if op in _SEMVERS:
        if not isinstance(value, str) or parse_semver(value) is None:
            return f"{op} takes a semantic version"
    elif op in ("starts_with", "ends_with"):
        if kind != "text":
            return f"{op} takes a string"
    elif op in _ORDERS:
        if kind not in ("text", "number"):
            return f"{op} takes a number or a string"
    elif op == "is_set":
        if kind != "truth":
            return f"{op} takes true or false, or nothing"
    elif kind is None:
        return f"{op} takes a string, a finite number, true or false"
    return None


def prepare(given: object) -> object:
    """An attribute as tests take it: a list becomes the set of the scalars in it, so that asking
    for one of them takes the same time however long it is.
    """
    if not isinstance(given, list | tuple):
        return given
    return frozenset(_order(each) for each in given if kind_of_scalar(each) is not None)


def passes(test: AttributeTest, given: object) -> bool:
    """Whether an attribute that was prepared passes a test; None: it is not set."""
    op = test.op
    if op == "is_set":
        return (given is not None) is (test.value is not False)
    if op == "contains":
        return _contains(given, test.value) is True
    if op == "not_contains":
        return _contains(given, test.value) is False
    kind = kind_of_scalar(given)
    if kind is None:
        return False
    if op in LISTING:
        return _among(test.values, kind, given) is (op == "in")
    return _compares(op, given, kind, test.value)


def _compares(op: str, given: Any, kind: str, value: Any) -> bool:
    """Whether a scalar passes an operator with one operand."""
    if kind != kind_of_scalar(value):
        return False
    match op:
        case "eq":
            return bool(given == value)
        case "neq":
            return bool(given != value)
        case "starts_with":
            return kind == "text" and given.startswith(value)
        case "ends_with":
            return kind == "text" and given.endswith(value)
    if op in _ORDERS:
        return kind != "truth" and _ORDERS[op](given, value)
    if kind != "text":
        return False
    ours, theirs = parse_semver(given), parse_semver(value)
    return ours is not None and theirs is not None and _SEMVERS[op](ours, theirs)


def _contains(given: object, value: Scalar | None) -> bool | None:
    """Whether a text or a list contains a value; None if that cannot be asked."""
    if isinstance(given, str):
        return value in given if isinstance(value, str) else None
    return _order(value) in given if isinstance(given, frozenset) else None


def _order(value: Any) -> tuple[str, Any]:
    return kind_of_scalar(value) or "", value


def _among(values: tuple[Scalar, ...], kind: str, given: Any) -> bool | None:
    """Whether a value is in a sorted list; None if it can be compared with nothing there."""
    at = bisect_left(values, (kind, given), key=_order)
    if at < len(values) and _order(values[at]) == (kind, given):
        return True
    neighbours = values[max(0, at - 1) : at + 1]
    return False if any(kind_of_scalar(each) == kind for each in neighbours) else None
