"""Plans as bytes and back."""

from __future__ import annotations

import pytest

from headrace.core.errors import Corrupt
from headrace.formats.index_plans import IndexPlans, decode_plans, encode_plans, plan


def test_plans_come_back_as_they_were_sent() -> None:
    search = b'{"b": 1.50, "a":[true,"\\u00e4"]}'
    plans = IndexPlans(plans=(plan(1, "one", search), plan(9, "nine", b"{}")))
    back = decode_plans(encode_plans(plans), "p")
    assert [(p.log_id, p.log, p.hash) for p in back.plans] == [
        (p.log_id, p.log, p.hash) for p in plans.plans
    ]
    assert [bytes(p.search) for p in back.plans] == [search, b"{}"]
    assert back.of(9) is back.plans[1]
    assert back.of(2) is None


def test_the_hash_is_of_the_meaning() -> None:
    one, other = plan(1, "x", b'{"a":1,"b":2}'), plan(2, "y", b'{ "b" : 2, "a" : 1 }')
    assert one.hash == other.hash
    assert plan(1, "x", b'{"a":1}').hash != one.hash


def test_a_document_as_documented() -> None:
    raw = b'{"format":1,"plans":[{"log_id":3,"log":"x","search":{"fields":{}},"hash":"00"}]}'
    (found,) = decode_plans(raw, "p").plans
    assert (found.log_id, found.log, bytes(found.search)) == (3, "x", b'{"fields":{}}')


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"format":2}', b'{"plans":[{}]}', b"\xff"])
def test_other_bytes_are_corrupt(raw: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_plans(raw, "p")


def test_versions_are_part_of_what_a_plan_is() -> None:
    bare, versioned = plan(1, "x", b"{}"), plan(1, "x", b"{}", b'{"currentVersion":2}')
    assert b"versions" not in encode_plans(IndexPlans(plans=(bare,)))
    (back,) = decode_plans(encode_plans(IndexPlans(plans=(versioned,))), "p").plans
    assert bytes(back.versions) == b'{"currentVersion":2}'
    hashes = {bare.hash, versioned.hash, plan(1, "x", b"{}", b'{"currentVersion":3}').hash}
    assert len(hashes) == 3
    assert plan(2, "y", b"{ }", b'{ "currentVersion" : 2 }').hash == versioned.hash
