"""Whether a document is what a schema says."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import msgspec

from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    NESTING_MAX,
    NORMALISE_STEPS,
    PROBLEM_VALUES_MAX,
    VALIDATION_STEPS_MAX,
    VALIDATION_VALUES_MAX,
)
from headrace.schemas.cost import (
    SchemaCost,
    breadth,
    check_cost,
    cost_of,
    exceeds,
    values_in,
)
from headrace.schemas.patterns import backtracking, check_patterns, linear, patterns_bytes
from headrace.schemas.proof_budget import ProofBudget

_IGNORED = (
    "date",
    "time",
    "duration",
    "email",
    "idn-email",
    "hostname",
    "idn-hostname",
    "ipv4",
    "ipv6",
    "uri",
    "uri-reference",
    "uri-template",
    "iri",
    "iri-reference",
    "uuid",
    "json-pointer",
    "relative-json-pointer",
    "regex",
)
"""Formats that say what a text is for; only `date-time` is looked at."""
_FORMATS = dict.fromkeys(_IGNORED, lambda _: True)
_DRAFTS: dict[str, Any] = {
    "http://json-schema.org/draft-06/schema": jsonschema_rs.Draft6Validator,
    "http://json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema_rs.Draft201909Validator,
    "https://json-schema.org/draft/2020-12/schema": jsonschema_rs.Draft202012Validator,
}
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_PROBLEM_CHARS_MAX = 256
_SCHEMA_OVERHEAD = 16
"""How much larger a schema is when it is compiled."""


class Validator:
    """A schema, ready to be asked; what was kept may have patterns that are refused today."""

    def __init__(self, schema: bytes | msgspec.Raw) -> None:
        parsed = msgspec.json.decode(schema)
        try:
            self._validator = compile_schema(parsed)
        except Refused:
            self._validator = compile_schema(parsed, patterns=backtracking())
        self._cost = cost_of(parsed)
        self._steps = self._cost.steps
        self._breadth = breadth(self._cost)
        self.size_bytes = _SCHEMA_OVERHEAD * len(schema) + patterns_bytes(parsed)
        """About what it takes of memory."""

    def steps(self, raw: bytes, documents: int = 1) -> int:
        """What it takes at most to check a text, or the texts of so many documents in a row."""
        most = len(raw) * sum(self._steps)
        if most <= NORMALISE_STEPS:
            return most
        values = values_in(raw) + documents
        counted = values * self._steps.values + len(raw) * self._steps.bytes
        return min(counted, documents * VALIDATION_STEPS_MAX)

    def check(self, raw: bytes) -> Any:
        """The document of a JSON text; refuses one that is not valid, with its first problem."""
        costly = len(raw) * sum(self._steps) > VALIDATION_STEPS_MAX and self._is_costly(raw)
        document = decode_document(raw)
        if costly and exceeds(self._cost, document):
            raise _too_much()
        if not self._validator.is_valid(document):
            raise self._refusal(document, values_in(raw))
        return document

    def _is_costly(self, raw: bytes) -> bool:
        """Whether it has to be counted what a text costs; refuses one that is too large for it."""
        values = values_in(raw)
        steps = values * self._steps.values + len(raw) * self._steps.bytes
        if steps > VALIDATION_STEPS_MAX and values > VALIDATION_VALUES_MAX:
            raise _too_much()
        return steps > VALIDATION_STEPS_MAX

    def _refusal(self, document: Any, values: int) -> Refused:
        # To tell what is wrong takes copies of all that is, which is too much of a large document.
        if values * self._breadth > PROBLEM_VALUES_MAX:
            return Refused(Code.INVALID, "the document is not valid, and too large to say where")
        try:
            self._validator.validate(document)
        except jsonschema_rs.ValidationError as problem:
            return Refused(Code.INVALID, _told(problem))
        raise AssertionError("what is not valid has a problem")


def decode_document(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Refused(Code.INVALID, f"the document cannot be checked: {error}") from None


def check_value(value: Any, schema: Any) -> bool:
    """Whether a value that somebody sent with a schema is valid under it."""
    check_costs(schema, [value])
    return bool(compile_schema(schema).is_valid(value))


def check_costs(schema: Any, values: list[Any]) -> None:
    """Refuse values that would take too long to be checked, all of them together."""
    if exceeds(SchemaCost(elements=[cost_of(schema)]), values):
        raise _too_much()


def _too_much() -> Refused:
    return Refused(
        Code.INVALID,
        "the document has too many values for its schema: it would take too long to check it",
        max_steps=VALIDATION_STEPS_MAX,
    )


def _told(problem: Any) -> str:
    where = "".join(f"/{step}" for step in problem.instance_path)
    said = f"{where}: {problem.message}" if where else str(problem.message)
    return said if len(said) <= _PROBLEM_CHARS_MAX else f"{said[:_PROBLEM_CHARS_MAX]}…"


def check_schema(schema: Any, where: str, budget: ProofBudget | None = None) -> None:
    """Refuse what is no schema, or one that refers to another or costs too much."""
    if not isinstance(schema, dict | bool):
        raise Refused(Code.INVALID, f"{where} must be a schema")
    _check_parts(schema, where, NESTING_MAX)
    check_patterns(schema, where, budget or ProofBudget())
    compile_schema(schema, where)
    check_cost(schema, where)


def _check_parts(value: Any, where: str, depth: int) -> None:
    if not depth:
        raise Refused(Code.INVALID, f"{where} is nested too deeply")
    if isinstance(value, dict):
        for key in value:
            if key in _REFERENCES:
                raise Refused(Code.INVALID, f"{where}: {key} is not supported")
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            _check_parts(part, where, depth - 1)


def draft_of(schema: Any) -> Any:
    """What reads a schema: that of its draft, or of draft 7 when it does not say."""
    named = schema.get("$schema") if isinstance(schema, dict) else None
    if named is None:
        return jsonschema_rs.Draft7Validator
    found = _DRAFTS.get(named.removesuffix("#")) if isinstance(named, str) else None
    if found is None:
        raise Refused(Code.INVALID, "$schema must be one of draft 6, 7, 2019-09 or 2020-12")
    return found


def compile_schema(
    schema: Any, where: str = "schema", draft: Any = None, patterns: Any = None
) -> Any:
    """A validator of this draft or of that which the schema names; refuses what is no schema."""
    reader = draft or draft_of(schema)
    try:
        return reader(schema, _FORMATS, validate_formats=True, pattern_options=patterns or linear())
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        said = getattr(error, "message", None) or str(error)
        raise Refused(Code.INVALID, f"{where} is no JSON Schema: {said[:256]}") from None
