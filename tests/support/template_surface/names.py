"""Names of diaries: each is a log with a prefix."""

from __future__ import annotations

from headrace.core.names import parse_name

PREFIX, OWNER = "diary-", "topics"


def parse_diary(text: str) -> str:
    """The log of a diary."""
    return parse_name(PREFIX + text)
