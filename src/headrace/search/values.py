"""What the values of a field are: the one definition that tail, companions and queries share.

A document that is no JSON has no values, and neither does a path that leads nowhere. Arrays stand
for their elements, however deep; objects and null are no values. The last of equal keys counts.
What a kind does not accept is no value of the field, so `17` in a keyword field is as good as
missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from operator import attrgetter
from typing import Any

import msgspec

from headrace.core.limits import I64_MAX
from headrace.search.config import Field, FieldKind
from headrace.search.pointers import Path, is_index, resolve

Value = str | int | float
"""A canonical value; bools are 0 and 1, dates milliseconds since the epoch."""

DATE_MS_MAX = 8_640_000_000_000_000
"""Dates reach this far from the epoch, either way."""

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DATE = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[Tt ]([0-9]{2})(?::([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?)?"
    r"([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_WORD = re.compile(r"[^\W_]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNNAMEABLE = re.compile(r'[\x00-\x1f"\\]')
_MONTH_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def analyze(text: str) -> list[str]:
    """The words of a text: runs of letters and digits, in lower case (`unicode_word_v1`)."""
    return _WORD.findall(text.lower())


def flatten(value: object) -> Iterator[object]:
    """The scalars that a value stands for."""
    if isinstance(value, list):
        for item in value:
            yield from flatten(item)
    elif value is not None and not isinstance(value, dict):
        yield value


def values_of(field: Field, found: object) -> list[Any]:
    """The canonical values of a field where its path led to this."""
    canonical = CANONICAL[field.kind]
    values = [value for item in flatten(found) if (value := canonical(item)) is not None]
    return [value.lower() for value in values] if field.lowercase else values


def accepted(field: Field, found: object) -> list[object]:
    """What a path led to, as far as it is values of the field, in the form of the document."""
    canonical = CANONICAL[field.kind]
    return [item for item in flatten(found) if canonical(item) is not None]


def shown(field: Field, value: Value | None) -> object:
    """A canonical value as answers have it."""
    return bool(value) if field.kind is FieldKind.BOOL and value is not None else value


def parse_date_ms(text: str) -> int | None:
    """An ISO 8601 date, with or without a time; UTC unless it says otherwise."""
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    year, month, day = int(found[1]), int(found[2]), int(found[3])
    hour, minute, second = int(found[4] or 0), int(found[5] or 0), int(found[6] or 0)
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12 or not 1 <= day <= _MONTH_DAYS[month - 1]:
        return None
    if (month == 2 and day == 29 and not leap) or hour > 23 or minute > 59 or second > 59:
        return None
    zone_ms = _zone_ms(found[8])
    if zone_ms is None:
        return None
    milliseconds = int((found[7] or "0")[:3].ljust(3, "0"))
    seconds = ((_days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second
    return seconds * 1000 + milliseconds - zone_ms


def format_date(ms: int) -> str:
    """The same instant as RFC 3339 with milliseconds."""
    days, rest = divmod(ms, 86_400_000)
    year, month, day = _civil(days)
    seconds, milli = divmod(rest, 1000)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{milli:03d}Z"
    sign = "-" if year < 0 else "+"
    whole = f"{year:04d}" if 0 <= year <= 9999 else f"{sign}{abs(year):06d}"
    return f"{whole}-{month:02d}-{day:02d}T{clock}"


def _zone_ms(zone: str | None) -> int | None:
    if zone is None or zone in "Zz":
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 23 or minutes > 59:
        return None
    return (hours * 60 + minutes) * 60_000 * (-1 if zone[0] == "-" else 1)


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the calendar of today, carried back for ever."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _civil(days: int) -> tuple[int, int, int]:
    era, of_era = divmod(days + 719_468, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year + era * 400 + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _integer(value: object) -> int | None:
    match value:
        case bool():
            return None
        case int():
            found = value
        case float() if value.is_integer():
            found = int(value)
        case str() if len(value) <= 20 and _INTEGER.fullmatch(value):
            found = int(value)
        case _:
            return None
    return found if -I64_MAX - 1 <= found <= I64_MAX else None


def _float(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found + 0.0 if isfinite(found) else None  # minus zero is zero


def _date(value: object) -> int | None:
    match value:
        case bool():
            return None
        case int():
            found: int | None = value
        case float() if isfinite(value):
            found = int(value)
        case str():
            found = parse_date_ms(value)
            if found is None and len(value) <= 20 and _INTEGER.fullmatch(value):
                found = int(value)
        case _:
            return None
    return found if found is not None and -DATE_MS_MAX <= found <= DATE_MS_MAX else None


def _bool(value: object) -> int | None:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and len(value) <= 5:
        return {"true": 1, "false": 0}.get(value.lower())
    return None


CANONICAL: dict[FieldKind, Callable[[object], Any]] = {
    FieldKind.KEYWORD: _string,
    FieldKind.TEXT: _string,
    FieldKind.INTEGER: _integer,
    FieldKind.FLOAT: _float,
    FieldKind.DATE: _date,
    FieldKind.BOOL: _bool,
}
"""A scalar of a document or query in its canonical form; None if the kind has no such value."""


class PathReader:
    """Finds what some paths lead to, in many documents at once, parsing nothing else of them."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._root = _Node(list(enumerate(paths)))
        self._decode = msgspec.json.Decoder(self._root.type).decode

    def read(self, raws: Sequence[bytes | None]) -> list[list[Any]]:
        """For each path a list: what it leads to in each document, None for nothing."""
        odd: dict[int, object] = {}
        documents = []
        for at, raw in enumerate(raws):
            try:
                documents.append(self._decode(raw) if raw is not None else None)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                documents.append(None)
                odd[at] = _lenient(raw)
        found: list[list[Any]] = [[] for _ in self._paths]
        self._root.take(documents, found)
        for at, document in odd.items():
            for column, path in zip(found, self._paths, strict=True):
                column[at] = resolve(document, path)
        return found


class _Node:
    """An object of the documents: the part of it that some paths lead through."""

    def __init__(self, paths: list[tuple[int, Path]]) -> None:
        steps: dict[str, list[tuple[int, Path]]] = {}
        for index, path in paths:
            if not path or is_index(path[0]) or _UNNAMEABLE.search(path[0]):
                # The path ends here, or goes on in what may be an array, or by a name that the
                # decoder does not take: all of it is needed.
                self.type: Any = Any
                self._ends = paths
                self._struct: Any = None
                return
            steps.setdefault(path[0], []).append((index, path[1:]))
        self._children = [(f"f{n}", _Node(rest)) for n, rest in enumerate(steps.values())]
        self._struct = msgspec.defstruct(
            "Document",
            [(name, child.type, None) for name, child in self._children],
            rename={f"f{n}": step for n, step in enumerate(steps)},
            gc=False,
        )
        self._empty = self._struct()
        self.type = self._struct | list | str | int | float | bool | None

    def take(self, documents: list[Any], found: list[list[Any]]) -> None:
        if self._struct is None:
            for index, path in self._ends:
                found[index] = [resolve(d, path) for d in documents] if path else documents
            return
        struct, empty = self._struct, self._empty
        if set(map(type, documents)) != {struct}:
            documents = [d if type(d) is struct else empty for d in documents]
        for name, child in self._children:
            child.take(list(map(attrgetter(name), documents)), found)


def _lenient(raw: bytes | None) -> object:
    """What a document means that is JSON only to forgiving readers."""
    try:
        return clean(json.loads((raw or b"").decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return None


def clean(value: object) -> object:
    """The same without halves of characters."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {key: clean(item) for key, item in value.items()}
    return value
