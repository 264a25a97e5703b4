"""Constraints: what a watcher asks of a field that is not one exact value.

Operands are typed: whole numbers for `IntHandler`, numbers for `FloatHandler`, words of the list
for `EnumHandler`. Whether a constraint matches is asked of the canonical text of a value.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf, isfinite
from typing import Literal, NamedTuple

import msgspec

from headrace.core.limits import CONSTRAINT_VALUES_MAX, I64_MAX
from headrace.surfaces.notifications.handlers import (
    EnumHandler,
    FieldHandler,
    FloatHandler,
    IntHandler,
    check_range,
    format_float,
    parse_float,
    parse_int,
    refuse_field,
    show_values,
)

Operand = int | float | str
Order = Literal["gt", "gte", "lt", "lte"]

_ORDERS: dict[str, Order] = {"gt": "gt", "gte": "gte", "lt": "lt", "lte": "lte"}
_WORD_OPS = ("eq", "in")
_NUMBER_OPS = (*_WORD_OPS, *_ORDERS, "between")

_TOKENS_KEPT = 1024
"""Tokens whose numbers are known without reading them again."""


class Bounds(NamedTuple):
    """Between which numbers all matching values lie; ends that are open are not among them."""

    low: float = -inf
    high: float = inf
    low_open: bool = False
    high_open: bool = False


class Eq(msgspec.Struct, frozen=True):
    """Wants one value."""

    value: Operand
    token: str = ""
    """The same as a canonical text."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "token", _format(self.value))

    def matches(self, token: str) -> bool:
        """Whether the value with this canonical text is wanted."""
        return token == self.token

    @property
    def bounds(self) -> Bounds | None:
        """Where matching numbers lie; None if it is about words."""
        return None if isinstance(self.value, str) else Bounds(self.value, self.value)


class OneOf(msgspec.Struct, frozen=True):
    """Wants any of these values."""

    values: tuple[Operand, ...]
    """In order, each once."""
    tokens: frozenset[str] = frozenset()
    """The same as canonical texts."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "tokens", frozenset(map(_format, self.values)))

    def matches(self, token: str) -> bool:
        """Whether the value with this canonical text is wanted."""
        return token in self.tokens

    @property
    def bounds(self) -> Bounds | None:
        """Where matching numbers lie; None if it is about words."""
        first, last = self.values[0], self.values[-1]
        if isinstance(first, str) or isinstance(last, str):
            return None
        return Bounds(first, last)


class Compare(msgspec.Struct, frozen=True):
    """Wants values above or below a number."""

    op: Order
    value: int | float

    def matches(self, token: str) -> bool:
        """Whether the value with this canonical text is wanted."""
        number = _parse(token, self.value)
        if number is None:
            return False
        match self.op:
            case "gt":
                return number > self.value
            case "gte":
                return number >= self.value
            case "lt":
                return number < self.value
            case "lte":
                return number <= self.value

    @property
    def bounds(self) -> Bounds:
        """Where matching numbers lie."""
        match self.op:
            case "gt" | "gte":
                return Bounds(low=self.value, low_open=self.op == "gt")
            case "lt" | "lte":
                return Bounds(high=self.value, high_open=self.op == "lt")


class Between(msgspec.Struct, frozen=True):
    """Wants values from one number to another, both included."""

    low: int | float
    high: int | float

    def matches(self, token: str) -> bool:
        """Whether the value with this canonical text is wanted."""
        number = _parse(token, self.low)
        return number is not None and self.low <= number <= self.high

    @property
    def bounds(self) -> Bounds:
        """Where matching numbers lie."""
        return Bounds(self.low, self.high)


Constraint = Eq | OneOf | Compare | Between


def _format(value: Operand) -> str:
    return format_float(value) if isinstance(value, float) else str(value)


def _parse(token: str, like: int | float) -> int | float | None:
    """The number of a canonical text; None for what another handler may have left there."""
    return read_float(token) if isinstance(like, float) else _read_int(token)


# Many watchers ask the same of one notification, one after the other.
_read_int = lru_cache(maxsize=_TOKENS_KEPT)(parse_int)
read_float = lru_cache(maxsize=_TOKENS_KEPT)(parse_float)


def parse_constraint(name: str, handler: FieldHandler, asked: dict[str, object]) -> Constraint:
    """A constraint object on a field; refuses what makes none, naming the field."""
    if not isinstance(handler, IntHandler | FloatHandler | EnumHandler):
        refuse_field(name, "takes a value, not a constraint")
    if len(asked) != 1:
        refuse_field(name, f"has a constraint with {len(asked)} operators in place of one")
    op, given = next(iter(asked.items()))
    if isinstance(handler, EnumHandler):
        if op not in _WORD_OPS:
            refuse_field(name, f"has a constraint {op[:50]!a}; there are {', '.join(_WORD_OPS)}")
        values = _parse_values(name, op, given)
        words = [_parse_word(name, handler, each) for each in values]
        return Eq(words[0]) if op == "eq" else OneOf(tuple(sorted(set(words))))
    if op not in _NUMBER_OPS:
        refuse_field(name, f"has a constraint {op[:50]!a}; there are {', '.join(_NUMBER_OPS)}")
    numbers = [_parse_number(name, handler, each) for each in _parse_values(name, op, given)]
    if op == "eq":
        return Eq(numbers[0])
    if op == "in":
        return OneOf(tuple(sorted(set(numbers))))
    if op == "between":
        low, high = numbers
        if low > high:
            refuse_field(name, "has a between whose min is above its max")
        return Between(low, high)
    return Compare(_ORDERS[op], numbers[0])


def _parse_values(name: str, op: str, given: object) -> list[object]:
    """The operands of a constraint, as many as the operator takes."""
    if op == "between":
        if not isinstance(given, list) or len(given) != 2:
            refuse_field(name, "has a between that is not two values [min, max]")
        return given
    if op == "in":
        if not isinstance(given, list) or not given:
            refuse_field(name, "has an in that is not a list of at least one value")
        if len(given) > CONSTRAINT_VALUES_MAX:
            refuse_field(name, f"has an in with more than {CONSTRAINT_VALUES_MAX} values")
        return given
    return [given]


def _parse_word(name: str, handler: EnumHandler, given: object) -> str:
    if not isinstance(given, str):
        refuse_field(name, "has a constraint whose operand is not a text")
    word = given.lower()
    if word not in handler.words:
        refuse_field(
            name, f"has a constraint with a value that is not one of {show_values(handler.values)}"
        )
    return word


def _parse_number(name: str, handler: IntHandler | FloatHandler, given: object) -> int | float:
    number: int | float
    match handler, given:
        case _, bool():
            refuse_field(name, "has a constraint whose operand is not a number")
        case IntHandler(), int() if -I64_MAX - 1 <= given <= I64_MAX:
            number = given
        case IntHandler(), _:
            refuse_field(name, "has a constraint whose operand is not a whole number of 64 bits")
        case FloatHandler(), int() if abs(given) <= _WHOLE_MAX:
            number = float(given)
        case FloatHandler(), float() if isfinite(given):
            number = given + 0.0
        case _:
            refuse_field(name, "has a constraint whose operand is not a finite number")
    check_range(name, number, handler.range)
    return number


_WHOLE_MAX = 10**308
"""The largest whole number that is certain to be a finite double."""
