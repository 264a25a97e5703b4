"""Whole numbers in texts that anybody may have sent."""

from __future__ import annotations

_DIGITS_MAX = 64


def parse_digits(text: str, most: int) -> int | None:
    """A number from 0 to `most` in ASCII digits, not too many of them; None for anything else.

    Python reads digits of every script, and fails for thousands of them.
    """
    if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS_MAX:
        return None
    number = int(text)
    return number if number <= most else None
