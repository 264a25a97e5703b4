"""Whether a document is what a schema says."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import msgspec

from headrace.core.errors import Code, Refused

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


class Validator:
    """A schema, ready to be asked."""

    def __init__(self, schema: bytes | msgspec.Raw) -> None:
        self._validator = compile_schema(msgspec.json.decode(schema))

    def check(self, document: Any) -> None:
        """Refuse a document that is not valid, with all that is wrong with it."""
        if not self._validator.is_valid(document):
            problems = self._validator.iter_errors(document)
            raise Refused(Code.INVALID, "; ".join(problem.message for problem in problems))


def compile_schema(schema: Any) -> Any:
    """A validator; refuses what is no schema. Without `$schema` it is one of draft 7."""
    try:
        if isinstance(schema, dict) and "$schema" in schema:
            return jsonschema_rs.validator_for(schema, _FORMATS, validate_formats=True)
        return jsonschema_rs.Draft7Validator(schema, _FORMATS, validate_formats=True)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise Refused(Code.INVALID, f"invalid schema: {error}") from None
