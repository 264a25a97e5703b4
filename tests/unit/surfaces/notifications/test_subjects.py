"""Subjects: tokens go in and come out again, and nothing else can be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import Code, Refused
from headrace.surfaces.notifications.subjects import format_subject, format_topic, parse_subject

TOKENS = st.lists(st.text(), min_size=1, max_size=6).map(tuple)


@pytest.mark.parametrize(
    ("tokens", "subject"),
    [
        (("storm",), "storm"),
        (("storm", "north", "1.45"), "storm.north.1%2E45"),
        (("a", "3*4", ">", "100%"), "a.3%2A4.%3E.100%25"),
        (("a", "%2E"), "a.%252E"),
        (("a", "ü b/c"), "a.ü b/c"),
    ],
)
def test_tokens_are_encoded_for_exactly_what_means_something(
    tokens: tuple[str, ...], subject: str
) -> None:
    assert format_subject(tokens) == subject
    assert parse_subject(subject) == tokens


@given(TOKENS)
def test_tokens_come_out_as_they_went_in(tokens: tuple[str, ...]) -> None:
    subject = format_subject(tokens)
    assert subject.count(".") == len(tokens) - 1
    assert not {"*", ">"} & set(subject)
    assert parse_subject(subject) == tokens


@pytest.mark.parametrize("subject", ["a%", "a%2", "a%2e", "a%41", "a%zz.b", "a.*", "a.>", "a%%25"])
def test_other_subjects_are_refused(subject: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_subject(subject)
    assert refused.value.code is Code.INVALID


@given(st.text(alphabet="ab.%*>25EA3e", max_size=20))
def test_what_can_be_read_is_what_would_be_written(subject: str) -> None:
    try:
        tokens = parse_subject(subject)
    except Refused:
        return
    assert format_subject(tokens) == subject


def test_a_topic_is_the_decoded_join() -> None:
    assert format_topic(("storm", "1.45", None)) == "storm.1.45.*"
