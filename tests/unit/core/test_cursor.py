"""List cursors: ours come back, others are refused."""

from __future__ import annotations

import pytest

from headrace.core.cursor import encode_cursor, parse_cursor
from headrace.core.errors import Code, Refused


def test_a_cursor_says_where_a_listing_goes_on() -> None:
    assert parse_cursor(encode_cursor("tenant:a")) == "tenant:a"


@pytest.mark.parametrize("text", ["", "tenant:a", "e30=", "eyJhZnRlciI6MX0=", "é", "A" * 5000])
def test_a_stranger_s_cursor_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refusal:
        parse_cursor(text)
    assert refusal.value.code is Code.INVALID
    assert refusal.value.detail == {"field": "cursor"}
