"""Whether what is known of a value implies that it is valid under a schema.

What is known is a schema, too. The answer is yes or "cannot be shown": a keyword that is not
understood here is implied by itself alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from headrace.schemas.kinds import KINDS, kind_of
from headrace.schemas.proof_budget import ProofBudget
from headrace.schemas.validation import check_costs, compile_schema

Known = Any
"""A schema: a boolean or an object. `False` for what is not there."""
OBJECT = frozenset({"object"})
_ALL = frozenset(KINDS)
_FEW: dict[str, list[Any]] = {"boolean": [False, True], "null": [None]}
"""Types with few values."""
_ENFORCED_FORMAT = "date-time"


class PlacedByLens(dict[str, Any]):
    """What is known of a value that a lens put where it is: the new schema must know of it."""


# --- what is known --------------------------------------------------------------------------------


def finite(known: Known) -> list[Any] | None:
    """All values it can be, if they are listed."""
    if not isinstance(known, dict):
        return None
    kinds = _kinds(known.get("type"))
    listed = [known["const"]] if "const" in known else known.get("enum")
    if listed is None and kinds <= _FEW.keys():
        listed = [value for kind in sorted(kinds) for value in _FEW[kind]]
    return None if listed is None else [value for value in listed if kind_of(value) in kinds]


def kinds_of(known: Known) -> frozenset[str]:
    """The types it can be of; `number` stands for numbers with a fraction."""
    if known is False:
        return frozenset()
    if not isinstance(known, dict):
        return _ALL
    values = finite(known)
    if values is not None:
        return frozenset(map(kind_of, values))
    return _kinds(known.get("type"))


def _kinds(named: Any) -> frozenset[str]:
    if named is None:
        return _ALL
    kinds = frozenset([named] if isinstance(named, str) else named)
    return kinds | {"integer"} if "number" in kinds else kinds


def spread(known: Known) -> dict[str, Any]:
    """The same in terms of properties, for something that is always an object."""
    values = finite(known)
    if values is None:
        return known if isinstance(known, dict) else {}
    held: dict[str, list[Any]] = {}
    for value in values:
        for name, inner in value.items():
            held.setdefault(name, []).append(inner)
    return {
        "type": "object",
        "properties": {name: {"enum": inner} for name, inner in held.items()},
        "required": [name for name, inner in held.items() if len(inner) == len(values)],
        "additionalProperties": False,
    }


def property_of(known: dict[str, Any], name: str) -> Known:
    """What is known of a property, if it is there."""
    return known.get("properties", {}).get(name, unknown(known))


def unknown(known: dict[str, Any]) -> Known:
    """What is known of the properties that are not named."""
    return True if "patternProperties" in known else known.get("additionalProperties", True)


def elements_of(known: Known) -> Known:
    """What is known of every element of an array."""
    if not isinstance(known, dict) or "prefixItems" in known:
        return True
    items = known.get("items", True)
    return True if isinstance(items, list) else items


# --- what it implies ------------------------------------------------------------------------------


class Case(NamedTuple):
    """A keyword of the new schema, and what is known of the value it is about."""

    known: dict[str, Any]
    new: dict[str, Any]
    keyword: str
    at: str
    implication: Implication

    @property
    def wanted(self) -> Any:
        return self.new[self.keyword]

    @property
    def broken(self) -> str:
        return f"{self.at or 'the document'} may break {self.keyword} of the new schema"

    def implies(self, known: Known, new: Known, step: str | None = None) -> str | None:
        at = self.at if step is None else f"{self.at}/{step}"
        return self.implication.problem(known, new, at)

    def has_same(self, keyword: str) -> bool:
        there = keyword in self.known
        return there == (keyword in self.new) and (
            not there or _same(self.known[keyword], self.new[keyword])
        )


Rule = Callable[[Case], Iterator[str]]
"""Problems with a keyword."""


class Implication:
    """Compares what is known with a new schema, which is of this draft."""

    def __init__(self, draft: Any, budget: ProofBudget) -> None:
        self._draft = draft
        self._budget = budget

    def problem(self, known: Known, new: Known, at: str = "") -> str | None:
        """Why a value of which this is known may not be valid; None: it is valid."""
        self._budget.spend()
        if known is False:
            return None
        if problem := _undeclared(known, new, at):
            return problem
        if new is True or _same(known, new):
            return None
        if new is False:
            return f"{at or 'the document'} has no place in the new schema"
        values = finite(known)
        if values is not None:
            return self._check_values(values, new, at)
        return self._check_keywords(known if isinstance(known, dict) else {}, new, at)

    def _check_keywords(self, known: dict[str, Any], new: dict[str, Any], at: str) -> str | None:
        kinds = kinds_of(known)
        for keyword in new:
            kind, rule = _RULES.get(keyword, _IGNORED)
            if kind is not None and kinds.isdisjoint(kind):
                continue  # it says nothing about values of other types
            for problem in rule(Case(known, new, keyword, at, self)):
                return problem
        return None

    def _check_values(self, values: list[Any], new: Known, at: str) -> str | None:
        check_costs(new, values)
        validator = compile_schema(new, draft=self._draft)
        for value in values:
            if not validator.is_valid(value):
                shown = msgspec.json.encode(value).decode()[:80]
                return f"{at or 'the document'} may be {shown}, which the new schema rules out"
        return None


def _undeclared(known: Known, new: Known, at: str) -> str | None:
    named = new.get("properties", {}) if isinstance(new, dict) else {}
    for name, value in known.get("properties", {}).items() if isinstance(known, dict) else ():
        if isinstance(value, PlacedByLens) and name not in named:
            return f"{at}/{name} is not declared in the new schema"
    return None


def _same(one: Known, other: Known) -> bool:
    """Whether both are the same JSON, found in as many steps as the smaller of them has values.

    What is known may hold one part in many places: written out it could be larger than the world.
    Not by ==, to which 1, 1.0 and true are one.
    """
    if isinstance(one, dict):
        if not isinstance(other, dict) or one.keys() != other.keys():
            return False
        return all(_same(value, other[name]) for name, value in one.items())
    if isinstance(one, list):
        if not isinstance(other, list) or len(one) != len(other):
            return False
        return all(map(_same, one, other))
    return type(one) is type(other) and bool(one == other)


def _nothing(case: Case) -> Iterator[str]:
    return iter(())


def _never(case: Case) -> Iterator[str]:
    yield case.broken


def _equal(*beside: str) -> Rule:
    """For keywords that only they themselves imply, together with others that they mean."""

    def rule(case: Case) -> Iterator[str]:
        if not all(case.has_same(each) for each in (case.keyword, *beside)):
            yield case.broken

    return rule


def _type(case: Case) -> Iterator[str]:
    if other := kinds_of(case.known) - _kinds(case.wanted):
        place = case.at or "the document"
        yield f"{place} may be of type {', '.join(sorted(other))}, which the new schema rules out"


def _required(case: Case) -> Iterator[str]:
    for name in case.wanted:
        if name not in case.known.get("required", ()):
            yield f"{case.at}/{name} is required in the new schema and may be missing"


def _properties(case: Case) -> Iterator[str]:
    for name, schema in case.wanted.items():
        if problem := case.implies(property_of(case.known, name), schema, name):
            yield problem


def _additional(case: Case) -> Iterator[str]:
    named = case.new.get("properties", {})
    for name, held in case.known.get("properties", {}).items():
        if name not in named and (problem := case.implies(held, case.wanted, name)):
            yield problem
    if case.implies(unknown(case.known), case.wanted):
        yield f"{case.at or 'the document'} may have properties that the new schema does not know"


def _patterns(case: Case) -> Iterator[str]:
    if "patternProperties" in case.known and case.has_same("patternProperties"):
        return
    for schema in case.wanted.values():  # a name may be one that the pattern takes
        held = (*case.known.get("properties", {}).values(), unknown(case.known))
        if any(case.implies(each, schema) for each in held):
            yield case.broken


def _count_least(case: Case) -> Iterator[str]:
    known = case.known
    if max(known.get("minProperties", 0), len(set(known.get("required", ())))) < case.wanted:
        yield case.broken


def _count_most(case: Case) -> Iterator[str]:
    known, most = case.known, case.wanted
    named = sum(held is not False for held in known.get("properties", {}).values())
    closed = unknown(known) is False and named <= most
    if not closed and known.get("maxProperties", most + 1) > most:
        yield case.broken


def _items(case: Case) -> Iterator[str]:
    if isinstance(case.wanted, list) or "prefixItems" in case.new:
        yield from _equal("prefixItems", "additionalItems")(case)
    elif problem := case.implies(elements_of(case.known), case.wanted, "*"):
        yield problem


def _unique(case: Case) -> Iterator[str]:
    alone = case.known.get("maxItems", 2) <= 1
    if case.wanted and not alone and case.known.get("uniqueItems") is not True:
        yield case.broken


def _least(case: Case) -> Iterator[str]:
    if case.known.get(case.keyword, case.wanted - 1) < case.wanted and case.wanted > 0:
        yield case.broken


def _most(case: Case) -> Iterator[str]:
    if case.known.get(case.keyword, case.wanted + 1) > case.wanted:
        yield case.broken


def _lower(case: Case) -> Iterator[str]:
    least, above = case.known.get("minimum"), case.known.get("exclusiveMinimum")
    if above is not None and above >= case.wanted:
        return
    strict = case.keyword == "exclusiveMinimum"
    if least is None or least < case.wanted or (strict and least == case.wanted):
        yield case.broken


def _upper(case: Case) -> Iterator[str]:
    most, below = case.known.get("maximum"), case.known.get("exclusiveMaximum")
    if below is not None and below <= case.wanted:
        return
    strict = case.keyword == "exclusiveMaximum"
    if most is None or most > case.wanted or (strict and most == case.wanted):
        yield case.broken


def _multiple(case: Case) -> Iterator[str]:
    wanted = case.wanted
    held = case.known.get("multipleOf", 1 if "number" not in kinds_of(case.known) else None)
    whole = isinstance(held, int) and isinstance(wanted, int)
    if held is None or not (held == wanted or (whole and held % wanted == 0)):
        yield case.broken


def _format(case: Case) -> Iterator[str]:
    if case.wanted == _ENFORCED_FORMAT and case.known.get("format") != case.wanted:
        yield case.broken


def _all_of(case: Case) -> Iterator[str]:
    if not case.has_same(case.keyword):
        for schema in case.wanted:
            if problem := case.implies(case.known, schema):
                yield problem


def _any_of(case: Case) -> Iterator[str]:
    same = case.has_same(case.keyword)
    if not same and all(case.implies(case.known, schema) for schema in case.wanted):
        yield case.broken


_ARRAY = frozenset({"array"})
_NUMBER = frozenset({"number", "integer"})
_STRING = frozenset({"string"})
_IGNORED: tuple[frozenset[str] | None, Rule] = (None, _nothing)
"""What says nothing about values: descriptions, and words that no draft knows."""
_RULES: dict[str, tuple[frozenset[str] | None, Rule]] = {
    "type": (None, _type),
    "enum": (None, _equal()),
    "const": (None, _equal()),
    "required": (OBJECT, _required),
    "properties": (OBJECT, _properties),
    "additionalProperties": (OBJECT, _additional),
    "patternProperties": (OBJECT, _patterns),
    "minProperties": (OBJECT, _count_least),
    "maxProperties": (OBJECT, _count_most),
    "propertyNames": (OBJECT, _equal()),
    "dependencies": (OBJECT, _equal()),
    "dependentRequired": (OBJECT, _equal()),
    "dependentSchemas": (OBJECT, _equal()),
    "unevaluatedProperties": (OBJECT, _never),
    "items": (_ARRAY, _items),
    "prefixItems": (_ARRAY, _equal("items")),
    "additionalItems": (_ARRAY, _nothing),  # goes with a list of items, which is compared with it
    "minItems": (_ARRAY, _least),
    "maxItems": (_ARRAY, _most),
    "uniqueItems": (_ARRAY, _unique),
    "contains": (_ARRAY, _equal("minContains", "maxContains")),
    "minContains": (_ARRAY, _nothing),
    "maxContains": (_ARRAY, _nothing),
    "unevaluatedItems": (_ARRAY, _never),
    "minimum": (_NUMBER, _lower),
    "exclusiveMinimum": (_NUMBER, _lower),
    "maximum": (_NUMBER, _upper),
    "exclusiveMaximum": (_NUMBER, _upper),
    "multipleOf": (_NUMBER, _multiple),
    "minLength": (_STRING, _least),
    "maxLength": (_STRING, _most),
    "pattern": (_STRING, _equal()),
    "format": (_STRING, _format),
    "contentEncoding": (_STRING, _equal()),
    "contentMediaType": (_STRING, _equal("contentEncoding")),
    "contentSchema": (_STRING, _equal("contentMediaType", "contentEncoding")),
    "allOf": (None, _all_of),
    "anyOf": (None, _any_of),
    "oneOf": (None, _equal()),
    "not": (None, _equal()),
    "if": (None, _equal("then", "else")),
}
