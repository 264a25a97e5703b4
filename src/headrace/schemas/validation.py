"""Whether a document is what a schema says."""

from __future__ import annotations

from itertools import islice
from typing import Any

import jsonschema_rs
import msgspec

from headrace.core.errors import Code, Refused
from headrace.core.limits import NESTING_MAX

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
_PROBLEMS_MAX = 32
_PROBLEM_CHARS_MAX = 256


class Validator:
    """A schema, ready to be asked."""

    def __init__(self, schema: bytes | msgspec.Raw) -> None:
        self._validator = compile_schema(msgspec.json.decode(schema))

    def check(self, document: Any) -> None:
        """Refuse a document that is not valid, with all that is wrong with it."""
        if not self._validator.is_valid(document):
            found = self._validator.iter_errors(document)
            problems = [_told(problem) for problem in islice(found, _PROBLEMS_MAX)]
            raise Refused(Code.INVALID, "; ".join(problems))


def _told(problem: Any) -> str:
    where = "".join(f"/{step}" for step in problem.instance_path)
    said = f"{where}: {problem.message}" if where else str(problem.message)
    return said if len(said) <= _PROBLEM_CHARS_MAX else f"{said[:_PROBLEM_CHARS_MAX]}…"


def check_schema(schema: Any, where: str) -> None:
    """Refuse what is no schema, or one that refers to another."""
    if not isinstance(schema, dict | bool):
        raise Refused(Code.INVALID, f"{where} must be a schema")
    _check_parts(schema, where, NESTING_MAX)
    compile_schema(schema, where)


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


def compile_schema(schema: Any, where: str = "schema", draft: Any = None) -> Any:
    """A validator of this draft or of that which the schema names; refuses what is no schema."""
    try:
        return (draft or draft_of(schema))(schema, _FORMATS, validate_formats=True)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        said = getattr(error, "message", None) or str(error)
        raise Refused(Code.INVALID, f"{where} is no JSON Schema: {said[:256]}") from None
