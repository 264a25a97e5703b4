"""Names on the notifications surface: an event type is a log, and a notification a seq of it."""

from __future__ import annotations

from headrace.core.digits import parse_digits
from headrace.core.errors import Code, Refused
from headrace.core.limits import I64_MAX

PREFIX = "notify:"


def log_of(event_type: str) -> str:
    """The log of an event type."""
    return PREFIX + event_type


def format_id(event_type: str, seq: int) -> str:
    """The id of a notification."""
    return f"{event_type}@{seq}"


def parse_id(
    text: str, *, least: int = 1, called: str = "the id of a notification"
) -> tuple[str, int]:
    """What the id of a notification names: a type, or its base, and a sequence number."""
    name, at, digits = text.rpartition("@")
    seq = parse_digits(digits, I64_MAX)
    if not (name and at) or seq is None or seq < least:
        raise Refused(Code.INVALID, f"{called} is <event type>@<number from {least} on>")
    return name, seq
