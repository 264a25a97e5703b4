"""The keys that changes touch and that waiting clients name.

A key is 64 bits of XXH3 over a prefix and what it stands for, written as 16 hexadecimal digits; its
id is the low half. Clients work the same keys out by themselves, so every byte here is a contract.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import xxhash

from headrace.search.values import format_date, parse_date_ms

_HEX = re.compile(r"[0-9a-f]{16}", re.ASCII)
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]{0,18})", re.ASCII)
_ID_BITS = 0xFFFF_FFFF
_I64 = 1 << 63
_TIME_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999."""

ENCODINGS = ("string", "int64", "bool", "datetime", "bytes")


class Unkeyed(Exception):
    """A value that its encoding has no text for: nobody knows which keys it belongs to."""


@lru_cache(maxsize=4096)
def table_key(entity: str) -> int:
    """Touched by every change of the entity."""
    return _hash(b"tbl\0" + entity.encode())


def template_id(entity: str, names: Sequence[str]) -> int:
    """The id of a template, whose names are sorted by their bytes."""
    return _hash(b"tpl\0" + b"\0".join(name.encode() for name in (entity, *names)))


def template_key(template: int) -> int:
    """Touched by every change that a template looks at."""
    return _hash(b"tpl\0" + template.to_bytes(8))


def watch_key(template: int, args: Sequence[bytes]) -> int:
    """Touched by changes of records with these values, before or after."""
    return _hash(_keyed(b"key\0", template, args))


def membership_key(template: int, args: Sequence[bytes]) -> int:
    """Touched when a record begins or ceases to have these values."""
    return _hash(_keyed(b"mem\0", template, args))


def field_key(template: int, name: str, args: Sequence[bytes]) -> int:
    """Touched when this field changes in records that have these values before and after."""
    return _hash(_keyed(b"fld\0", template, (name.encode(), *args)))


def _keyed(prefix: bytes, template: int, parts: Sequence[bytes]) -> bytes:
    return b"\0".join((prefix + template.to_bytes(8), *parts))


def _hash(data: bytes) -> int:
    return xxhash.xxh3_64_intdigest(data)


def format_key(key: int) -> str:
    return f"{key:016x}"


def id_of(key: int) -> int:
    return key & _ID_BITS


def parse_key_id(text: str) -> int:
    """The id of a key as clients write it; any other text has one too."""
    if _HEX.fullmatch(text):
        return int(text, 16) & _ID_BITS
    return xxhash.xxh32_intdigest(text.encode("utf-8", "surrogatepass"))


def parse_template_id(text: str) -> int | None:
    return int(text, 16) if _HEX.fullmatch(text) else None


def encode_arg(value: object, encoding: str) -> bytes | None:
    """A field's value as it is hashed; None when it has none, and so no key."""
    if value is None:
        return None
    text = _ENCODE[encoding](value)
    if text is None:
        raise Unkeyed
    return text.encode("utf-8", "surrogatepass")


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _int64(value: object) -> str | None:
    if isinstance(value, str):
        value = int(value) if _DECIMAL.fullmatch(value) else None
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or not -_I64 <= value < _I64:
        return None
    return str(value)


def _bool(value: object) -> str | None:
    return str(int(value)) if isinstance(value, bool) else None


def _datetime(value: object) -> str | None:
    if isinstance(value, str):
        at_ms = parse_date_ms(value)
    elif type(value) is int or (isinstance(value, float) and value.is_integer()):
        at_ms = int(value)
    else:
        return None
    return None if at_ms is None or not 0 <= at_ms <= _TIME_MS_MAX else format_date(at_ms)


_ENCODE = {"string": _text, "int64": _int64, "bool": _bool, "datetime": _datetime, "bytes": _text}
