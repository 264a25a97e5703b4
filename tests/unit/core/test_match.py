"""Tag predicates as a request writes them."""

from __future__ import annotations

import pytest

from headrace.core.errors import Refused
from headrace.core.match import TagEq, TagPrefix, parse_match


def test_what_is_understood() -> None:
    assert parse_match("pre:") == TagEq("pre:"), "a bare string is exact"
    assert parse_match("pre:*") == TagPrefix("pre:"), "but a star at its end makes it a prefix"
    assert parse_match("a*b") == TagEq("a*b")
    assert parse_match(["tag", "Eq", "x*"]) == TagEq("x*"), "to say it for certain"
    assert parse_match(["tag", "Eq", "x"]) == TagEq("x")
    assert parse_match(["tag", "Glob", "x:*"]) == TagPrefix("x:")
    assert parse_match(["tag", "Glob", "*"]) == TagPrefix("")


@pytest.mark.parametrize(
    "value",
    [None, 1, [], {}, ["tag"], ["tag", "Eq", 1], ["node", "Eq", "x"], ["tag", "Like", "x"],
     ["tag", "Glob", "x"], ["tag", "Glob", "a*b*"], ["tag", "Glob", "**"], ["tag", "Glob", ""],
     ["tag", "Eq", "x", "y"], "a*b*", "**"],
)  # fmt: skip
def test_what_is_refused(value: object) -> None:
    with pytest.raises(Refused):
        parse_match(value)


def test_a_record_without_a_tag_never_matches() -> None:
    assert not TagPrefix("").matches(None)
    assert not TagEq("x").matches(None)
    assert TagPrefix("").matches("")
