"""What comes from outside as text: taken, or refused, and never anything else."""

from __future__ import annotations

import base64
import contextlib
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.core.cursor import encode_cursor, parse_cursor
from headrace.core.errors import Refused
from headrace.core.match import TagEq, TagPrefix, parse_match
from headrace.core.names import parse_name

anything = st.text(st.characters(codec=None), max_size=300)  # lone surrogates included
json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | anything,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(anything, inner, max_size=3),
    max_leaves=8,
)
nearly = st.lists(st.sampled_from(["tag", "Eq", "Glob", "a*", "*", "a*b", "", 1, None]), max_size=4)


@given(st.text(max_size=255))
def test_a_cursor_comes_back(after: str) -> None:
    text = encode_cursor(after)
    assert parse_cursor(text) == after
    assert re.fullmatch(r"[A-Za-z0-9_=-]*", text)


@given(anything | st.binary(max_size=60).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
@example("")
@example("\ud800")
@example("A" * 5000)
@example(base64.urlsafe_b64encode(b'{"after":1}').decode())
@example(base64.urlsafe_b64encode(b'{"after":"\xff"}').decode())
@example(base64.urlsafe_b64encode(b'{"after":"a","more":' + b"[" * 2000).decode())
def test_other_cursors_are_refused(text: str) -> None:
    with contextlib.suppress(Refused):
        assert isinstance(parse_cursor(text), str)


@given(anything)
@example("a\n")
@example("a" * 256)
@example("é")
@example("٣")
def test_names_are_taken_as_they_are_or_refused(text: str) -> None:
    wanted = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:\-]{0,254}", text) is not None
    if wanted:
        assert parse_name(text) == text
    else:
        with pytest.raises(Refused):
            parse_name(text)


@given(st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._:\-]{0,254}\Z"))
def test_every_good_name_is_taken(text: str) -> None:
    assert parse_name(text) == text


@given(json_like | nearly)
def test_a_match_is_understood_or_refused(value: object) -> None:
    with contextlib.suppress(Refused):
        assert isinstance(parse_match(value), TagEq | TagPrefix)


@given(st.text(max_size=5), st.none() | st.text(max_size=7))
def test_what_a_match_matches(text: str, tag: str | None) -> None:
    assert parse_match(text).matches(tag) == (tag == text)
    assert parse_match(["tag", "Eq", text]).matches(tag) == (tag == text)
    if "*" in text:
        with pytest.raises(Refused):
            parse_match(["tag", "Glob", text + "*"])
    else:
        wanted = tag is not None and tag[: len(text)] == text
        assert parse_match(["tag", "Glob", text + "*"]).matches(tag) == wanted
