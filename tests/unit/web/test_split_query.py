"""The parameters of a query, with and without a look at escapes."""

from __future__ import annotations

from urllib.parse import parse_qsl

from hypothesis import example, given
from hypothesis import strategies as st

from headrace.web.request import split_query


@given(st.text("ab=&%+ü25;", max_size=20))
@example("offset=-1&live=long-poll")
@example("a&b=&=c&&d==e")
@example("a=%2B+b")
def test_a_query_is_split_as_everywhere(text: str) -> None:
    assert split_query(text) == parse_qsl(text, keep_blank_values=True)
