"""What it costs at most to ask a schema about a document.

The validator keeps the interpreter to itself until it is done, and nothing can stop it: so what it
will have to do is bounded before. A step is what a simple keyword takes for one value, some ten
nanoseconds.

There are two bounds. That of a schema alone, for each value and each byte of any document, is
almost always enough to see that a document is cheap. For others it is counted how often which part
of the schema is asked, as a validator would that never stops early.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    PATTERN_BACKTRACK_MAX,
    SCHEMA_STEPS_MAX,
    VALIDATION_STEPS_MAX,
    VALIDATION_VISITS_MAX,
)
from headrace.schemas.patterns import automaton_bytes

_SAME = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
_SAME_BY_NAME = ("dependencies", "dependentSchemas")
_NUMERIC = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_CONTAINER_STEPS = 40
"""To compare one value of an object or array that a schema names."""
_CONST_STEPS = 20
_FORMAT_STEPS = 20
_FRACTION_STEPS = 2500
"""To divide exactly by something that is not whole."""
_DIGIT_STEPS = 27
"""To read a digit of a number of the 4,300 digits that one may have."""
_UNIQUE_STEPS = 50
"""To remember a value, and all that is in it."""
_NAME_STEPS = 15
"""To ask a pattern about a name."""
_STATES_BYTES = 64
"""Of an automaton, for each step that a byte may take; measured with the worst there are."""
_PLAIN_STEPS = 16
"""To match a byte with a pattern of one thing, however often repeated: `^[a-z]{1,1000}$`. However
large its automaton is, it is in one state of it at a time.
"""
_PLAIN = re.compile(
    r"\^(?:\.|\\[pP]\{[^{}]*\}|\\[dDwWsS]|\[\^?(?:[^\[\]\\]|\\.)+\])"
    r"(?:[*+?]|\{\d+(?:,\d*)?\})?\$?"
)
_KEPT_STEPS = 1024
"""To match a byte with a pattern that is refused today."""
_AGAIN = 3
"""How often parts are asked again to see what they have looked at."""


class Steps(NamedTuple):
    """What every value, and every byte, costs at most."""

    values: int
    bytes: int

    def plus(self, other: Steps, times: int = 1) -> Steps:
        return Steps(self.values + times * other.values, self.bytes + times * other.bytes)


_NONE = Steps(0, 0)


class SchemaCost(msgspec.Struct, kw_only=True):
    """What a schema costs, part by part."""

    value: int = 1
    byte: int = 0
    """For texts and numbers."""
    number: int = 0
    name: int = 0
    name_byte: int = 0
    deep: int = 0
    """For all that is in a value."""
    again: int = 1
    """How often the parts of it are asked about the same value."""
    same: list[SchemaCost] = []
    named: dict[str, SchemaCost] = {}
    members: list[SchemaCost] = []
    names: list[SchemaCost] = []
    placed: list[SchemaCost] = []
    elements: list[SchemaCost] = []

    @property
    def steps(self) -> Steps:
        return _steps(self)


def cost_of(schema: Any) -> SchemaCost:
    """The cost of a schema that can be compiled."""
    if not isinstance(schema, dict):
        return SchemaCost()
    cost = SchemaCost(value=2 + len(schema))
    for keyword in _SAME:
        cost.same += _parts(schema.get(keyword))
    for keyword in _SAME_BY_NAME:
        cost.same += _parts_by_name(schema.get(keyword)).values()
        cost.value += 2 * _length(schema.get(keyword))
    cost.value += 2 * _length(schema.get("required")) + 2 * _length(schema.get("dependentRequired"))
    _add_values(cost, schema)
    _add_texts(cost, schema)
    _add_members(cost, schema)
    _add_elements(cost, schema)
    if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
        cost.again = _AGAIN
    return cost


def _add_values(cost: SchemaCost, schema: dict[str, Any]) -> None:
    if "const" in schema:
        cost.value += _compared([schema["const"]]) + _CONST_STEPS
    if isinstance(schema.get("enum"), list):
        cost.value += _compared(schema["enum"])
    if any(keyword in schema for keyword in _NUMERIC):
        cost.byte += _DIGIT_STEPS
    if "multipleOf" in schema and not isinstance(schema["multipleOf"], int):
        cost.number += _FRACTION_STEPS


def _add_texts(cost: SchemaCost, schema: dict[str, Any]) -> None:
    if isinstance(schema.get("pattern"), str):
        asked = _asked(schema["pattern"])
        cost.value, cost.byte = cost.value + asked.values, cost.byte + asked.bytes
    if "format" in schema:
        cost.value, cost.byte = cost.value + _FORMAT_STEPS, cost.byte + 1
    if "contentMediaType" in schema or "contentEncoding" in schema:
        cost.value, cost.byte = cost.value + _FORMAT_STEPS, cost.byte + 2


def _add_members(cost: SchemaCost, schema: dict[str, Any]) -> None:
    cost.named = _parts_by_name(schema.get("properties"))
    patterns = _parts_by_name(schema.get("patternProperties"))
    for pattern in patterns:
        asked = _asked(pattern)
        cost.name, cost.name_byte = cost.name + asked.values, cost.name_byte + asked.bytes
    cost.members = [*patterns.values()]
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        cost.members += _parts(schema.get(keyword))
    cost.names = _parts(schema.get("propertyNames"))


def _add_elements(cost: SchemaCost, schema: dict[str, Any]) -> None:
    items = schema.get("items")
    cost.placed = _parts(schema.get("prefixItems"))
    if isinstance(items, list):
        cost.placed = _parts(items)
    else:
        cost.elements = _parts(items)
    for keyword in ("additionalItems", "contains", "unevaluatedItems"):
        cost.elements += _parts(schema.get(keyword))
    if schema.get("uniqueItems") is True:
        cost.deep += _UNIQUE_STEPS


def _parts(schemas: Any) -> list[SchemaCost]:
    listed = schemas if isinstance(schemas, list) else [schemas]
    return [cost_of(schema) for schema in listed if isinstance(schema, dict | bool)]


def _parts_by_name(schemas: Any) -> dict[str, SchemaCost]:
    if not isinstance(schemas, dict):
        return {}
    return {
        name: cost_of(schema) for name, schema in schemas.items() if isinstance(schema, dict | bool)
    }


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list | dict) else 0


def _compared(values: list[Any]) -> int:
    """To compare a value with these: with one after the other, unless all are alike and plain."""
    return sum(
        _CONTAINER_STEPS * _count(value) if isinstance(value, dict | list) else 1
        for value in values
    )


def _count(value: Any) -> int:
    """The values in a value, with it."""
    count, stack = 0, [value]
    while stack:
        held = stack.pop()
        count += 1
        if isinstance(held, dict):
            stack += held.values()
        elif isinstance(held, list):
            stack += held
    return count


def _asked(pattern: str) -> Steps:
    """To match a pattern. In the worst case every state of it is looked at for every byte."""
    size = automaton_bytes(pattern)
    if size is None:
        return Steps(2 * PATTERN_BACKTRACK_MAX, _KEPT_STEPS)
    if _PLAIN.fullmatch(pattern):
        return Steps(_NAME_STEPS, _PLAIN_STEPS)
    return Steps(_NAME_STEPS, size // _STATES_BYTES)


# --- bounds ---------------------------------------------------------------------------------------


def check_cost(schema: Any, where: str) -> None:
    """Refuse a schema that would cost too much for any document."""
    if max(cost_of(schema).steps) > SCHEMA_STEPS_MAX:
        raise Refused(
            Code.INVALID,
            f"{where} would take too long to be asked: too many parts, or values of an enum,"
            " say something about the same value",
            max=SCHEMA_STEPS_MAX,
        )


def _steps(cost: SchemaCost) -> Steps:
    again = cost.again
    members = _most(cost.named.values()).plus(_sum(cost.members), again).plus(_sum(cost.names))
    elements = _most(cost.placed).plus(_sum(cost.elements))
    own = _larger(
        Steps(cost.value + cost.number, cost.byte),
        members.plus(Steps(cost.name, cost.name_byte)),
        _NONE.plus(elements, again),
    )
    return own.plus(_sum(cost.same), again).plus(Steps(cost.deep, 1 if cost.deep else 0))


def _larger(*steps: Steps) -> Steps:
    """For a value is an object, or an array, or neither."""
    return Steps(max(each.values for each in steps), max(each.bytes for each in steps))


def _most(parts: Iterable[SchemaCost]) -> Steps:
    """What the most expensive of them costs: each is asked about a value of its own."""
    return _larger(_NONE, *map(_steps, parts))


def _sum(parts: Iterable[SchemaCost]) -> Steps:
    total = _NONE
    for part in parts:
        total = total.plus(_steps(part))
    return total


def breadth(cost: SchemaCost) -> int:
    """How many parts may be asked about the same value."""
    named = max(map(breadth, cost.named.values()), default=0)
    placed = max(map(breadth, cost.placed), default=0)
    members = named + sum(map(breadth, (*cost.members, *cost.names)))
    elements = placed + sum(map(breadth, cost.elements))
    return max(1, members, elements) + sum(map(breadth, cost.same))


def values_in(raw: bytes) -> int:
    """The values and names of a JSON text, and more where texts have such signs in them."""
    return raw.count(b",") + raw.count(b":") + raw.count(b"[") + raw.count(b"{") + 1


def exceeds(cost: SchemaCost, document: Any) -> bool:
    """Whether it may cost too much to ask about this document, counted part by part."""
    stack: list[tuple[SchemaCost, Any, int]] = [(cost, document, 1)]
    steps = visits = 0
    while stack:
        part, value, times = stack.pop()
        visits += 1
        steps += times * _own(part, value)
        if part.deep:
            inside = _count(value)
            visits += inside
            steps += times * part.deep * inside
        if steps > VALIDATION_STEPS_MAX or visits + _fanout(part, value) > VALIDATION_VISITS_MAX:
            return True
        again = times * part.again
        stack.extend((each, value, again) for each in part.same)
        if type(value) is dict:
            for name, held in value.items():
                if (named := part.named.get(name)) is not None:
                    stack.append((named, held, times))
                stack.extend((each, held, again) for each in part.members)
                stack.extend((each, name, times) for each in part.names)
            if part.name:
                steps += times * sum(part.name + part.name_byte * _size(name) for name in value)
        elif type(value) is list:
            stack.extend(
                (each, held, again) for each, held in zip(part.placed, value, strict=False)
            )
            for each in part.elements:
                stack.extend((each, held, again) for held in value)
    return False


def _fanout(part: SchemaCost, value: Any) -> int:
    """How many parts are asked about how many values in this one."""
    if type(value) is dict:
        return len(value) * (1 + len(part.members) + len(part.names))
    return len(value) * len(part.elements) if type(value) is list else 0


def _own(part: SchemaCost, value: Any) -> int:
    if type(value) is str:
        return part.value + part.byte * _size(value)
    if type(value) is int or type(value) is float:
        digits = value.bit_length() // 3 if type(value) is int else 20
        return part.value + part.number + part.byte * digits
    return part.value


def _size(text: str) -> int:
    return len(text) if text.isascii() else 4 * len(text)
