"""Stamps: put on and taken off without touching anything else."""

from __future__ import annotations

import pytest

from headrace.core.deadletter import stamp, strip

STAMPS = b'"$dead_letter_from":"q","$dead_letter_deliveries":3,"$dead_letter_src_seq":7}'


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


def test_a_meta_without_stamps_stays_as_it_is() -> None:
    assert strip(b'{ "a" : 1 }') == (b'{ "a" : 1 }', None)


@pytest.mark.parametrize("forged", [b"7", b"null", b'["q"]'])
def test_a_stamp_that_is_no_name_leads_nowhere(forged: bytes) -> None:
    assert strip(b'{"$dead_letter_from":%b,"a":1}' % forged) == (b'{"a":1}', None)
