from __future__ import annotations

import pytest

from headrace.core.digits import parse_digits


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("007", 7), ("255", 255)])
def test_a_number(text: str, number: int) -> None:
    assert parse_digits(text, 255) == number


@pytest.mark.parametrize(
    "text", ["", "256", "-1", "+1", " 1", "1_0", "1.0", "\u0661", "\u00b2", "0" * 65, "9" * 5000]
)
def test_everything_else_is_none(text: str) -> None:
    assert parse_digits(text, 255) is None
