"""Stamps: put on and taken off without touching anything else."""

from __future__ import annotations

import pytest

from headrace.core.dead_letter import queues_named, stamp, strip

STAMPS = b'"$dead_letter_from":"q","$dead_letter_deliveries":"3","$dead_letter_src_seq":"7"}'
OLD_STAMPS = b'"$dead_letter_from":"q","$dead_letter_deliveries":3,"$dead_letter_src_seq":7}'
"""As they were written once: with numbers."""


@pytest.mark.parametrize(
    ("meta", "stamped"),
    [
        (None, b"{" + STAMPS),
        (b"{}", b"{" + STAMPS),
        (b" { } ", b"{" + STAMPS),
        (b'{"trace": "x", "n": 1.0}', b'{"trace": "x", "n": 1.0,' + STAMPS),
        (b'{"$dead_letter_from":"p","a":1}', b'{"a":1,' + STAMPS),
    ],
)
def test_stamps_come_last_and_replace_older_ones(meta: bytes | None, stamped: bytes) -> None:
    assert stamp(meta, "q", 3, 7) == stamped


@pytest.mark.parametrize("meta", [None, b'{"a":[1, 2.0],"b":{"c":"\\u00e9"}}'])
def test_what_was_stamped_comes_off_again(meta: bytes | None) -> None:
    assert strip(stamp(meta, "q", 3, 7)) == (meta, "q")


def test_stamps_of_old_come_off_too() -> None:
    assert strip(b'{"a":1,' + OLD_STAMPS) == (b'{"a":1}', "q")
    assert stamp(b'{"a":1,' + OLD_STAMPS, "q", 3, 7) == b'{"a":1,' + STAMPS


@pytest.mark.parametrize(
    ("metas", "named"),
    [
        (None, set()),
        ([None, b'{"a":1}'], set()),
        ([b'{"$dead_letter_from":"p"}', None, b"{" + STAMPS], {"p", "q"}),
        ([b'{"$dead_letter_from":7}'], set()),
        ([b'{"$dead_letter_from":"p","$dead_letter_from":"q"}'], {"q"}),
        # What redrive would not see is nothing to ask about; what it would see, is.
        ([b'{"\\u0024dead_letter_from":"p"}'], set()),
        ([b'{"x":"\\"$dead_letter_","\\u0024dead_letter_from":"p"}'], {"p"}),
    ],
)
def test_the_queues_that_stamps_name(metas: list[bytes | None] | None, named: set[str]) -> None:
    assert queues_named(metas) == named
    assert {strip(meta)[1] for meta in metas or ()} - {None} == named, "as redrive sees them"


def test_a_meta_without_stamps_stays_as_it_is() -> None:
    assert strip(b'{ "a" : 1 }') == (b'{ "a" : 1 }', None)


@pytest.mark.parametrize("forged", [b"7", b"null", b'["q"]'])
def test_a_stamp_that_is_no_name_leads_nowhere(forged: bytes) -> None:
    assert strip(b'{"$dead_letter_from":%b,"a":1}' % forged) == (b'{"a":1}', None)
