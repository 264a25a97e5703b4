"""Handlers: what values a field of an identifier takes, and the canonical text of each.

Named as in the configuration file. A canonical text is its own canonical form, so that two
spellings of one value make one subject.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from math import isfinite
from typing import ClassVar, NoReturn

import msgspec

from headrace.core.errors import Code, Refused
from headrace.core.limits import I64_MAX

_INT = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DATE = re.compile(r"([0-9]{4})(?:-([0-9]{2})-([0-9]{2})|([0-9]{2})([0-9]{2})|-([0-9]{3}))")
_TIME = re.compile(r"([0-9]{1,2})(?::([0-9]{2}))?|([0-9]{2})([0-9]{2})")
_DIGITS = re.compile(r"[0-9]+")
_SHOWN = 50
"""Characters of a value that a message repeats."""


def invalid_field(name: str, problem: str) -> Refused:
    """What is wrong with the value of a field of an identifier."""
    if not name.isprintable():
        name = ascii(name)[1:-1]
    return Refused(Code.INVALID, f"Field '{name}' {problem}", field=name)


def refuse_field(name: str, problem: str) -> NoReturn:
    """Refuse the value of a field of an identifier."""
    raise invalid_field(name, problem)


def parse_int(text: str) -> int | None:
    """A whole number of 64 bits in ASCII digits; None for anything else."""
    if not _INT.fullmatch(text) or len(text) > _INT_LENGTH_MAX:
        return None
    number = int(text)
    return number if -I64_MAX - 1 <= number <= I64_MAX else None


_INT_LENGTH_MAX = 1024
"""Leading zeros included: Python refuses to read thousands of digits."""


def parse_float(text: str) -> float | None:
    """A finite double in ASCII; None for anything else. Minus zero is zero."""
    if not _FLOAT.fullmatch(text):
        return None
    number = float(text)
    return number + 0.0 if isfinite(number) else None


def format_float(number: float) -> str:
    """The shortest decimal that is this number, without exponent: `1000`, `0.0000001`."""
    text = repr(number + 0.0)
    if "e" in text:
        text = f"{Decimal(text):f}"
    return text.removesuffix(".0")


class StringHandler(msgspec.Struct, frozen=True):
    """Any text that is not empty."""

    TYPE: ClassVar = "StringHandler"

    max_length: int | None = None
    """In bytes of UTF-8."""

    def canonical(self, name: str, text: str) -> str:
        """The canonical text of a value, or a refusal that names the field."""
        if not text:
            refuse_field(name, "is empty")
        if self.max_length is not None and len(text.encode()) > self.max_length:
            refuse_field(name, f"has more than {self.max_length} bytes")
        return text


class DateHandler(msgspec.Struct, frozen=True):
    """A day, as `2025-03-04`, `20250304` or, by its number in the year, `2025-063`."""

    TYPE: ClassVar = "DateHandler"
    FORMATS: ClassVar[dict[str, Callable[[date], str]]] = {
        "%Y%m%d": lambda day: f"{day.year:04d}{day.month:02d}{day.day:02d}",
        "%Y-%m-%d": lambda day: f"{day.year:04d}-{day.month:02d}-{day.day:02d}",
    }

    canonical_format: str = "%Y%m%d"

    def canonical(self, name: str, text: str) -> str:
        """The canonical text of a value, or a refusal that names the field."""
        found = _DATE.fullmatch(text)
        if found is None:
            refuse_field(name, f"is not a date as YYYY-MM-DD, YYYYMMDD or YYYY-DDD: {_show(text)}")
        try:
            if found[6]:
                day = date(int(found[1]), 1, 1) + timedelta(days=int(found[6]) - 1)
                if day.year != int(found[1]):
                    raise ValueError(text)
            else:
                day = date(int(found[1]), int(found[2] or found[4]), int(found[3] or found[5]))
        except (ValueError, OverflowError):
            refuse_field(name, f"is not a day of the calendar: {_show(text)}")
        return self.FORMATS[self.canonical_format](day)


class TimeHandler(msgspec.Struct, frozen=True):
    """A time of day, as `6`, `06`, `6:00`, `06:00` or `0600`."""

    TYPE: ClassVar = "TimeHandler"

    def canonical(self, name: str, text: str) -> str:
        """The canonical text of a value, or a refusal that names the field."""
        found = _TIME.fullmatch(text)
        if found is None:
            refuse_field(name, f"is not a time as H, HH, H:MM, HH:MM or HHMM: {_show(text)}")
        hour, minute = int(found[1] or found[3]), int(found[2] or found[4] or 0)
        if hour > 23 or minute > 59:
            refuse_field(name, f"is not a time of day: {_show(text)}")
        return f"{hour:02d}{minute:02d}"


class EnumHandler(msgspec.Struct, frozen=True):
    """One of a list of words, in any case."""

    TYPE: ClassVar = "EnumHandler"

    values: tuple[str, ...]
    """As they are written in the configuration."""
    words: frozenset[str] = frozenset()
    """The same in lower case."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "words", frozenset(map(str.lower, self.values)))

    def canonical(self, name: str, text: str) -> str:
        """The canonical text of a value, or a refusal that names the field."""
        word = text.lower()
        if word not in self.words:
            refuse_field(name, f"is not one of {show_values(self.values)}: {_show(text)}")
        return word


class ExpverHandler(msgspec.Struct, frozen=True):
    """An experiment version: digits, padded to four of them, or a word in any case."""

    TYPE: ClassVar = "ExpverHandler"

    default: str | None = None
    """What an empty value means."""

    def canonical(self, name: str, text: str) -> str:
        """The canonical text of a value, or a refusal that names the field."""
        text = text or self.default or ""
        if not text:
            refuse_field(name, "is empty, and has no default")
        return text.zfill(4) if _DIGITS.fullmatch(text) else text.lower()


class IntHandler(msgspec.Struct, frozen=True):
    """A whole number of 64 bits."""

    TYPE: ClassVar = "IntHandler"

    range: tuple[int, int] | None = None
    """Both ends included."""

    def canonical(self, name: str, text: str) -> str:
        """The canonical text of a value, or a refusal that names the field."""
        number = parse_int(text)
        if number is None:
            refuse_field(name, f"is not a whole number of 64 bits: {_show(text)}")
        check_range(name, number, self.range)
        return str(number)


class FloatHandler(msgspec.Struct, frozen=True):
    """A finite number of double precision."""

    TYPE: ClassVar = "FloatHandler"

    range: tuple[float, float] | None = None
    """Both ends included."""

    def canonical(self, name: str, text: str) -> str:
        """The canonical text of a value, or a refusal that names the field."""
        number = parse_float(text)
        if number is None:
            refuse_field(name, f"is not a finite number: {_show(text)}")
        check_range(name, number, self.range)
        return format_float(number)


class PolygonHandler(msgspec.Struct, frozen=True):
    """A polygon: see `shapes`. It is no part of a subject."""

    TYPE: ClassVar = "PolygonHandler"


ScalarHandler = (
    StringHandler
    | DateHandler
    | TimeHandler
    | EnumHandler
    | ExpverHandler
    | IntHandler
    | FloatHandler
)
FieldHandler = ScalarHandler | PolygonHandler


def check_range(name: str, number: float, bounds: tuple[float, float] | None) -> None:
    """Refuse a number that is not within the range of its field."""
    if bounds is not None and not bounds[0] <= number <= bounds[1]:
        refuse_field(name, f"is outside its range of {bounds[0]} to {bounds[1]}: {number}")


def show_values(values: tuple[str, ...]) -> str:
    """Words or names as a message lists them: the first ones, if there are many."""
    shown = ", ".join(value[:_SHOWN] for value in values[:20])
    return shown if len(values) <= 20 else f"{shown} and {len(values) - 20} more"


def _show(text: str) -> str:
    return ascii(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
