"""What headers and parameters of the protocol say: times, durations, producers."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

from headrace.core.digits import parse_digits
from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    PRODUCER_ID_LENGTH_MAX,
    STREAM_KEY_BYTES_MAX,
    STREAM_SEQ_LENGTH_MAX,
    STREAM_TTL_MS_MAX,
)
from headrace.core.stream_state import Producer

_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(?:(?:0|[1-9][0-9]{0,11})(?:ms|s|m|h|d))+", re.ASCII)
_PART = re.compile(r"([0-9]+)(ms|s|m|h|d)")
_WHOLE = re.compile(r"0|[1-9][0-9]{0,15}", re.ASCII)
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?"
    r"(?:[Zz]|([+-])(\d\d):(\d\d))",
    re.ASCII,
)
_INTEGER_MAX = 2**53 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NS_MAX = 2**63 - 1


def parse_duration_ms(text: str, field: str) -> int:
    """A duration such as 15s or 1h30m."""
    if _DURATION.fullmatch(text) is None:
        raise Refused(Code.INVALID, f"{field} is a duration such as 500ms, 15s, 30m or 24h")
    return sum(int(number) * _MS[unit] for number, unit in _PART.findall(text))


def parse_ttl_ms(text: str) -> int:
    """A TTL in whole seconds: a number of them, or a duration."""
    ttl_ms = int(text) * 1000 if _WHOLE.fullmatch(text) else parse_duration_ms(text, "Stream-TTL")
    if ttl_ms % 1000:
        raise Refused(Code.INVALID, "Stream-TTL is in whole seconds")
    if ttl_ms > STREAM_TTL_MS_MAX:
        raise Refused(Code.INVALID, "Stream-TTL is at most a thousand years")
    return ttl_ms


def parse_timeout_ms(text: str) -> int:
    """How long to wait: a duration, or milliseconds."""
    return int(text) if _WHOLE.fullmatch(text) else parse_duration_ms(text, "timeout")


def parse_time_ns(text: str, field: str, *, numbers: bool = True) -> int:
    """A time as nanoseconds since 1970: RFC 3339, or just that number."""
    if numbers and (ns := parse_digits(text, _NS_MAX)) is not None:
        return ns
    match = _TIME.fullmatch(text)
    try:
        if match is None:
            raise ValueError(text)
        *parts, fraction, sign, hours, minutes = match.groups()
        shift = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
        zone = timezone(-shift if sign == "-" else shift)
        since = datetime(*map(int, parts), tzinfo=zone) - _EPOCH  # type: ignore[arg-type,misc]
        ns = (since.days * 86_400 + since.seconds) * 10**9 + int((fraction or "0").ljust(9, "0"))
        if not 0 <= ns <= _NS_MAX:
            raise ValueError(text)
    except ValueError:
        what = "a time as in RFC 3339" + (", or nanoseconds since 1970" if numbers else "")
        raise Refused(Code.INVALID, f"{field} is {what}") from None
    return ns


def parse_expiry_ms(text: str) -> int:
    return parse_time_ns(text, "Stream-Expires-At", numbers=False) // 1_000_000


def parse_closed(text: str | None) -> bool:
    return text is not None and text.lower() == "true"


def parse_producer(id: str | None, epoch: str | None, seq: str | None) -> Producer | None:
    """The three headers of a producer, which come together or not at all."""
    if id is None and epoch is None and seq is None:
        return None
    if id is None or epoch is None or seq is None:
        raise Refused(
            Code.INVALID, "Producer-Id, Producer-Epoch and Producer-Seq are given together"
        )
    if not 0 < len(id) <= PRODUCER_ID_LENGTH_MAX:
        raise Refused(Code.INVALID, f"Producer-Id has 1 to {PRODUCER_ID_LENGTH_MAX} characters")
    return Producer(id, _parse_count(epoch, "Producer-Epoch"), _parse_count(seq, "Producer-Seq"))


def parse_sub_offset(text: str) -> int:
    return _parse_count(text, "Stream-Fork-Sub-Offset")


def _parse_count(text: str, field: str) -> int:
    if _WHOLE.fullmatch(text) is None or int(text) > _INTEGER_MAX:
        raise Refused(Code.INVALID, f"{field} is a whole number from 0 to {_INTEGER_MAX}")
    return int(text)


def parse_seq(text: str | None) -> str | None:
    if text is not None and not 0 < len(text) <= STREAM_SEQ_LENGTH_MAX:
        raise Refused(Code.INVALID, f"Stream-Seq has 1 to {STREAM_SEQ_LENGTH_MAX} characters")
    return text


def parse_key(text: str | None) -> str | None:
    """A routing key from a header, whose bytes are UTF-8 as everywhere else, or else Latin-1."""
    if text is None:
        return None
    if not text.isascii():
        try:
            text = text.encode("latin-1").decode()
        except UnicodeError:
            pass
    if len(text.encode()) > STREAM_KEY_BYTES_MAX:
        raise Refused(Code.INVALID, f"Stream-Key has at most {STREAM_KEY_BYTES_MAX} bytes")
    return text
