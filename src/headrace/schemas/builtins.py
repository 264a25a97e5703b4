"""The conversions that lenses can ask for by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec

from headrace.core.errors import Code, Refused
from headrace.search.values import format_date, parse_date_ms

_WHOLE = re.compile(r"-?[0-9]{1,4000}")
_INSTANT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


class Builtin(msgspec.Struct, frozen=True):
    """A conversion and the types it is between."""

    name: str
    source: str
    to: str
    convert: Callable[[Any], Any]
    total: bool
    """Whether it works for every value of its type."""


def stringify(value: Any) -> str:
    """A value as text: numbers as short as they can be, whole ones without a point."""
    match value:
        case str():
            return value
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return _stringify_float(value)
        case int():
            return str(value)
        case _:
            return msgspec.json.encode(value).decode()


def _stringify_float(value: float) -> str:
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    if 1e-6 <= abs(value) < 1e21:
        return format(Decimal(repr(value)), "f")
    return re.sub(r"e([+-])0", r"e\1", repr(value))


def _string_to_int(value: str) -> int:
    if _WHOLE.fullmatch(value) is None:
        raise Refused(Code.INVALID, f"{value[:80]!r} is not a whole number")
    return int(value)


def _to_millis(value: str) -> int:
    found = parse_date_ms(value) if _INSTANT.fullmatch(value) else None
    if found is None:
        raise Refused(Code.INVALID, f"{value[:80]!r} is not an RFC 3339 time")
    return found


def _from_millis(value: float) -> str:
    return format_date(int(value))


def _int_to_string(value: float) -> str:
    return str(int(value))


BUILTINS = {
    builtin.name: builtin
    for builtin in (
        Builtin("lowercase", "string", "string", str.lower, total=True),
        Builtin("uppercase", "string", "string", str.upper, total=True),
        Builtin("string_to_int", "string", "integer", _string_to_int, total=False),
        Builtin("int_to_string", "integer", "string", _int_to_string, total=True),
        Builtin("rfc3339_to_unix_millis", "string", "integer", _to_millis, total=False),
        Builtin("unix_millis_to_rfc3339", "integer", "string", _from_millis, total=True),
    )
}
