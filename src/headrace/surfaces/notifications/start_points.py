"""Start points: from where a watch or replay reads history, and where a replay ends.

By number or by time, both inclusive. Times are milliseconds, as those of records are: a time
between two of them means the later one for a start, the earlier one for an end.
"""

from __future__ import annotations

import re
from typing import NoReturn

import msgspec

from headrace.core.digits import parse_digits
from headrace.core.errors import Code, Refused
from headrace.core.limits import U64_MAX
from headrace.search.values import parse_date_ms

_UNIX = re.compile(r"\+?0*([0-9]*)")
_UNIX_SECONDS_DIGITS = 11
_LENGTH_MAX = 64
_DATED = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[Tt]([0-9:]{8})|( )([0-9:]{8}))"
    r"(?:\.([0-9]{1,9}))?([Zz]|[+-][0-9]{2}:[0-9]{2})?"
)
_LATEST_MS = 253_402_300_799_999
"""The end of the year 9999: what comes later cannot be written down."""


class AtSeq(msgspec.Struct, frozen=True):
    """A record by its number; 0 is before the first."""

    seq: int


class AtTime(msgspec.Struct, frozen=True):
    """A time, in milliseconds since 1970; negative before that."""

    at_ms: int


HistoryPoint = AtSeq | AtTime


class HistoryRange(msgspec.Struct, frozen=True):
    """Which part of history is asked for, both ends included."""

    start: HistoryPoint | None
    """None: no history, only what comes."""
    end: HistoryPoint | None = None
    """None: up to what is there now."""


def parse_watch_range(
    from_id: str | None,
    from_date: str | None,
    to_id: str | None = None,
    to_date: str | None = None,
) -> HistoryRange:
    """What a watch asks for: at most one start, and no end."""
    start = _parse_point("from_id", from_id, "from_date", from_date, is_end=False)
    for name, given in (("to_id", to_id), ("to_date", to_date)):
        if given is not None:
            _refuse(name, "is for replay only")
    return HistoryRange(start)


def parse_replay_range(
    from_id: str | None,
    from_date: str | None,
    to_id: str | None = None,
    to_date: str | None = None,
) -> HistoryRange:
    """What a replay asks for: one start, and at most one end."""
    start = _parse_point("from_id", from_id, "from_date", from_date, is_end=False)
    end = _parse_point("to_id", to_id, "to_date", to_date, is_end=True)
    if start is None:
        _refuse("from_id", "or from_date is needed for a replay")
    return HistoryRange(start, end)


def _parse_point(
    id_name: str, id_given: str | None, date_name: str, date_given: str | None, *, is_end: bool
) -> HistoryPoint | None:
    """At most one of both; what is wrong with either is said before that there are two."""
    seq = None if id_given is None else _parse_seq(id_name, id_given)
    at_ms = None if date_given is None else _parse_time(date_name, date_given, is_end=is_end)
    if seq is not None and at_ms is not None:
        _refuse(id_name, f"and {date_name} exclude each other")
    if seq is not None:
        return AtSeq(seq)
    return None if at_ms is None else AtTime(at_ms)


def _parse_seq(name: str, text: str) -> int:
    seq = parse_digits(text, U64_MAX)
    if seq is None:
        _refuse(name, "is not a whole number in a text")
    return seq


def _parse_time(name: str, text: str, *, is_end: bool) -> int:
    if len(text) > _LENGTH_MAX:
        _refuse(name, f"has more than {_LENGTH_MAX} characters")
    unix = _UNIX.fullmatch(text)
    if unix is not None and text not in ("", "+"):
        digits = unix[1] or "0"
        at_ms = int(digits) * (1000 if len(digits) <= _UNIX_SECONDS_DIGITS else 1)
    else:
        at_ms = _parse_dated(name, text, is_end=is_end)
    if at_ms > _LATEST_MS:
        _refuse(name, "is behind the year 9999")
    return at_ms


def _parse_dated(name: str, text: str, *, is_end: bool) -> int:
    found = _DATED.fullmatch(text)
    if found is None or (found[3] and not found[6]):
        _refuse(
            name,
            "is not a time as 2025-01-15T10:00:00Z, 2025-01-15T10:00:00+02:00,"
            " 2025-01-15 10:00:00+00:00, 2025-01-15T10:00:00 or seconds or milliseconds since 1970",
        )
    fraction = (found[5] or "").ljust(3, "0")
    clock = found[2] or found[4]
    at_ms = parse_date_ms(f"{found[1]}T{clock}.{fraction[:3]}{found[6] or 'Z'}")
    if at_ms is None:
        _refuse(name, "is not a time of the calendar")
    return at_ms if is_end or not fraction[3:].strip("0") else at_ms + 1


def _refuse(name: str, problem: str) -> NoReturn:
    raise Refused(Code.INVALID, f"{name} {problem}", field=name)
