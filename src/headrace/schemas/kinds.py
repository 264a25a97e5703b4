"""The types of JSON values, as schemas and lenses name them."""

from __future__ import annotations

from typing import Any

KINDS = ("string", "number", "integer", "boolean", "null", "object", "array")


def kind_of(value: Any) -> str:
    """The type of a value; a number without a fraction is an integer, however it is written."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def kind_fits(value: Any, kind: str) -> bool:
    found = kind_of(value)
    return found == kind or (found == "integer" and kind == "number")
