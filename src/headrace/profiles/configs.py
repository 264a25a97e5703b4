"""What profiles share: reading configurations and records, and what they ask of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from headrace.core.errors import Code, Refused

T = TypeVar("T", bound=msgspec.Struct)


def parse_config(raw: Mapping[str, Any], shape: type[T], where: str = "profile") -> T:
    """The configuration as this shape has it; says what is wrong with it, and where."""
    try:
        return msgspec.convert(raw, shape)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        unknown = problem.removeprefix("Object contains unknown field `")
        if unknown != problem:
            field = f"{place.rstrip('`')}.{unknown.rstrip('`')}"
            raise Refused(Code.INVALID, f"{where}{field} is not supported") from None
        raise Refused(Code.INVALID, f"{where}{place.rstrip('`')}: {problem}") from None


def need_json(kind: str, is_json: bool) -> None:
    if not is_json:
        raise Refused(Code.INVALID, f"{kind} profile requires an application/json stream")


def describe(error: Exception) -> str:
    """What is wrong with a record that is to be an object."""
    if str(error).startswith("Expected `object`"):
        return "must be a JSON object"
    return f"cannot be read: {error}"
