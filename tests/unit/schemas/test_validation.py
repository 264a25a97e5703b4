"""Validation: the first problem, patterns in linear time, and bounds on the work."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.core.errors import Refused
from headrace.core.limits import (
    PATTERN_CACHE_BYTES,
    PATTERNS_BYTES_MAX,
    SCHEMA_STEPS_MAX,
    VALIDATION_STEPS_MAX,
)
from headrace.schemas import validation
from headrace.schemas.cost import cost_of, exceeds, values_in
from headrace.schemas.lens import load_lens, parse_lens
from headrace.schemas.patterns import automaton_bytes
from headrace.schemas.validation import Validator, check_schema

Schema = dict[str, Any]


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"^.{1,1000}$", "a" * 1000),
        (r"^[^a-z]{1,700}$", "A" * 700),
        (r"^[\p{L}\p{M}' .-]+$", "é" * 5000),
        (r"^\p{L}+$", "é" * 5000),
        (r"^\S{1,64}$", "é" * 64),
        (r"^[A-Z]{2}\d{2}[A-Z0-9]{1,30}$", "DE12ABC"),
        (r"^[^\s@]+@[^\s@]+\.[^\s@]{2,}$", "somebody@example.org"),
    ],
)
def test_patterns_that_people_write_are_asked_about_texts_as_long_as_they_allow(
    pattern: str, text: str
) -> None:
    schema = {"properties": {name: {"pattern": pattern} for name in "abcde"}}
    check_schema(schema, "schema")
    document = json.dumps(dict.fromkeys("abcde", text)).encode()
    Validator(json.dumps(schema).encode()).check(document)


@pytest.mark.parametrize("pattern", [r"^(.|a){1,9}$", r".{1,9}", r"^.{1,9}.{1,9}$", r"^[a]|b$"])
def test_patterns_that_can_be_in_many_states_count_all_of_them(pattern: str) -> None:
    size = automaton_bytes(pattern)
    assert size is not None
    assert cost_of({"pattern": pattern}).steps.bytes == size // 64


def text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def problem(schema: Schema, document: Any) -> str | None:
    try:
        Validator(text(schema)).check(text(document))
    except Refused as refused:
        return refused.message
    return None


def refusal(schema: Any) -> str | None:
    try:
        check_schema(schema, "schema")
    except Refused as refused:
        return refused.message
    return None


def test_the_first_problem_is_told() -> None:
    schema = {"items": {"type": "string"}, "maxItems": 1}
    assert problem(schema, ["a"]) is None
    assert problem({"items": {"type": "string"}}, [1, 2]) == '/0: 1 is not of type "string"'


class NeverTold:
    """A validator that must not be asked what is wrong."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def is_valid(self, document: Any) -> bool:
        return bool(self._real.is_valid(document))


@pytest.mark.parametrize(
    "schema",
    [
        {"items": {"type": "string"}},
        {"anyOf": [{"items": {"type": "string"}}, {"type": "string"}]},
        {"type": "string"},
    ],
)
def test_nothing_is_collected_of_a_large_document(
    schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = validation.compile_schema
    monkeypatch.setattr(validation, "compile_schema", lambda *a, **k: NeverTold(real(*a, **k)))
    told = problem(schema, [1] * 20_000)
    assert told == "the document is not valid, and too large to say where"


def test_a_document_that_is_too_much_for_its_schema_is_refused_before_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    objects = [{"a": at, "b": "x"} for at in range(8000)]
    schema = {"items": {"enum": objects}}
    assert refusal(schema) is None
    assert problem(schema, objects[-2:]) is None
    real = validation.compile_schema
    monkeypatch.setattr(validation, "compile_schema", lambda *a, **k: real(*a, **k) and None)
    assert "too many values" in str(problem(schema, [objects[-1]] * 100))
    # One of millions of values is not even decoded.
    monkeypatch.setattr(validation, "decode_document", None)
    assert "too many values" in str(problem(schema, [1] * 1_100_000))


def test_what_is_cheap_where_it_is_passes_beside_what_is_not() -> None:
    schema = {
        "properties": {
            "kind": {"enum": [{"a": at} for at in range(8000)]},
            "name": {"type": "string", "pattern": "^([A-Za-z0-9]|[._-]){1,255}$"},
            "body": {"items": {"type": "integer"}},
        }
    }
    document = {"kind": {"a": 7}, "name": "n" * 255, "body": list(range(20_000))}
    steps = cost_of(schema).steps
    raw = text(document)
    assert values_in(raw) * steps.values + len(raw) * steps.bytes > VALIDATION_STEPS_MAX
    assert problem(schema, document) is None
    assert "too many values" in str(problem(schema, document | {"name": "n" * 100_000}))


@pytest.mark.parametrize(
    ("schema", "document"),
    [
        ({"pattern": "(a|b)*a(a|b){400}c"}, "ab" * 5000),
        ({"items": {"multipleOf": 0.01}}, [1e300] * 10_000),
        ({"uniqueItems": True}, [[at] for at in range(150_000)]),
        ({"items": {"minimum": 3}}, [10**4000] * 1000),
        ({"patternProperties": {"(a|b)*a(a|b){400}c": {}}}, {"ab" * 5000: 1}),
        ({"propertyNames": {"pattern": "(a|b)*a(a|b){400}c"}}, {"ab" * 5000: 1}),
        ({"contains": {"enum": [[at] for at in range(9000)]}}, [1] * 1000),
        ({"prefixItems": [{"enum": [[at] for at in range(9000)]}] * 20}, [1] * 20),
    ],
)
def test_what_costs_much_is_counted_where_it_is(schema: Schema, document: Any) -> None:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    assert exceeds(cost_of(schema), document)


@pytest.mark.parametrize(
    "pattern", ["(?=a)b", "(?!a)b", "(?<=a)b", "(?<!a)b", r"(a)\1", "(?:a{900}){900}"]
)
@pytest.mark.parametrize(
    "place",
    [
        lambda pattern: {"pattern": pattern},
        lambda pattern: {"patternProperties": {pattern: {}}},
        lambda pattern: {"properties": {"a": {"anyOf": [{"pattern": "a"}, {"pattern": pattern}]}}},
        lambda pattern: {"propertyNames": {"pattern": pattern}},
    ],
)
def test_patterns_are_matched_in_linear_time_or_refused(pattern: str, place: Any) -> None:
    assert "linear time" in str(refusal(place(pattern)))


def test_a_malformed_pattern_is_not_taken_for_a_slow_one() -> None:
    assert 'pattern "(a" cannot' in (said := str(refusal({"pattern": "(a"})))
    assert "malformed" in said


@pytest.mark.parametrize(
    "pattern",
    [
        "^[a-z0-9-]{1,64}$",
        r"^\d{4}-\d{2}-\d{2}$",
        r"^[\w.-]+@[\w.-]+\.\w+$",
        "^.{1,255}$",
        r"^(a+)+$",
        "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
    ],
)
def test_patterns_of_every_day_are_taken(pattern: str) -> None:
    assert refusal({"pattern": pattern}) is None


def test_patterns_have_room_together() -> None:
    many = PATTERNS_BYTES_MAX // (4096 + PATTERN_CACHE_BYTES)
    assert refusal({"anyOf": [{"pattern": f"^a{at}"} for at in range(many)]}) is None
    assert "too many patterns" in str(
        refusal({"anyOf": [{"pattern": f"^a{at}"} for at in range(many + 1)]})
    )


def nested(depth: int, inner: Any, keyword: str, how: str) -> Any:
    for _ in range(depth):
        inner = {how: [inner], keyword: False}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **inner}


@pytest.mark.parametrize(
    "schema",
    [
        nested(18, {"type": "object"}, "unevaluatedProperties", "allOf"),
        nested(18, {"type": "object"}, "unevaluatedProperties", "anyOf"),
        nested(18, {"type": "array"}, "unevaluatedItems", "oneOf"),
        {"enum": [[at] for at in range(SCHEMA_STEPS_MAX // 80 + 1)]},
    ],
)
def test_a_schema_whose_cost_explodes_is_refused(schema: Schema) -> None:
    assert "too long" in str(refusal(schema))


def test_schemas_of_every_day_are_taken() -> None:
    closed: Schema = {"type": "string"}
    for _ in range(5):
        closed = {
            "type": "object",
            "allOf": [{"properties": {"a": closed}}],
            "unevaluatedProperties": False,
        }
    assert refusal({"$schema": "https://json-schema.org/draft/2020-12/schema", **closed}) is None
    assert refusal({"properties": {f"p{at}": {"type": "string"} for at in range(2000)}}) is None
    assert refusal({"enum": [f"currency {at}" for at in range(8000)]}) is None


def test_a_kept_schema_is_asked_with_a_bound_on_steps() -> None:
    assert problem({"pattern": r"^(?=.*\d).{8,}$"}, "abcdefg1") is None
    assert "does not match" in str(problem({"pattern": r"^(?=.*\d).{8,}$"}, "abcdefgh"))
    assert problem({"pattern": r"^(a|a)*\1b$"}, "a" * 40 + "c") is not None
    many = {"items": {"anyOf": [{"pattern": rf"^(a|a)*\1x{at}$"} for at in range(40)]}}
    assert "too many values" in str(problem(many, ["a" * 40] * 20))


def test_a_kept_lens_still_leads_on() -> None:
    op = {"op": "add", "path": "/b", "schema": {"pattern": "(?=a)"}, "default": "a"}
    lens = {"apiVersion": "durable.lens/v1", "schema": "s", "from": 1, "to": 2, "ops": [op]}
    assert load_lens(lens).ops
    with pytest.raises(Refused, match="linear time"):
        parse_lens(lens)
