"""State: which records there may be, and how a profile is configured."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.core.errors import Refused
from headrace.profiles.state import StateProtocol

CHANGE = {"type": "public.todos", "key": "1", "value": {"a": 1}, "headers": {"operation": "insert"}}
OFFSET = "0000000000000000000G000000"


def make(**touch: Any) -> StateProtocol:
    return StateProtocol.parse({"kind": "state-protocol", **({"touch": touch} if touch else {})})


def check(record: object, **touch: Any) -> None:
    raws = [msgspec.json.encode(record)]
    assert make(**touch).normalise(raws, 0) is raws


@pytest.mark.parametrize(
    "record",
    [
        CHANGE,
        CHANGE | {"value": None},
        CHANGE | {"old_value": {"a": 0}, "headers": {"operation": "update"}},
        {"type": "t", "key": "k", "headers": {"operation": "delete"}},
        CHANGE | {"headers": {"operation": "insert", "txid": "7"}},
        CHANGE | {"headers": {"operation": "insert", "timestamp": "2026-01-01T00:00:00Z"}},
        CHANGE | {"headers": {"operation": "insert", "timestamp": "2026-01-01t00:00:00.5+01:00"}},
        {"headers": {"control": "snapshot-start"}},
        {"headers": {"control": "snapshot-end", "offset": OFFSET}},
        {"headers": {"control": "reset", "offset": "-1"}},
    ],
)
def test_records(record: object) -> None:
    check(record)


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ([], "Expected `object`"),
        ({}, "headers"),
        ({"headers": {}}, "either operation or control"),
        ({"headers": {"operation": "insert", "control": "reset"}}, "either operation or control"),
        ({"headers": {"operation": "upsert"}}, "operation"),
        ({"headers": {"control": "pause"}}, "control"),
        (CHANGE | {"extra": 1}, "extra"),
        (CHANGE | {"headers": {"operation": "insert", "extra": 1}}, "extra"),
        (CHANGE | {"type": ""}, "non-empty"),
        (CHANGE | {"key": ""}, "non-empty"),
        (CHANGE | {"key": 5}, "key"),
        ({"key": "k", "value": 1, "headers": {"operation": "insert"}}, "non-empty"),
        ({"type": "t", "key": "k", "headers": {"operation": "insert"}}, "value is required"),
        ({"type": "t", "key": "k", "headers": {"operation": "update"}}, "value is required"),
        (CHANGE | {"headers": {"operation": "insert", "txid": ""}}, "txid"),
        (CHANGE | {"headers": {"operation": "insert", "txid": 7}}, "txid"),
        (CHANGE | {"headers": {"operation": "insert", "timestamp": "2026-01-01"}}, "RFC 3339"),
        (
            CHANGE | {"headers": {"operation": "insert", "timestamp": "2026-02-30T00:00:00Z"}},
            "RFC 3339",
        ),
        (CHANGE | {"headers": {"operation": "insert", "offset": OFFSET}}, "offset"),
        ({"type": "t", "headers": {"control": "reset"}}, "only headers"),
        ({"headers": {"control": "reset", "txid": "1"}}, "only control and offset"),
        ({"headers": {"control": "reset", "offset": "17"}}, "offset"),
    ],
)
def test_what_is_no_record(record: object, problem: str) -> None:
    with pytest.raises(Refused, match=problem):
        check(record)


def test_a_change_without_what_was_before() -> None:
    update = CHANGE | {"headers": {"operation": "update"}}
    delete = {"type": "t", "key": "k", "headers": {"operation": "delete"}}
    check(update, enabled=True)
    check(update, enabled=True, onMissingBefore="skipBefore")
    check(CHANGE, enabled=True, onMissingBefore="error")
    for record in (update, delete):
        with pytest.raises(Refused, match="old_value is required"):
            check(record, enabled=True, onMissingBefore="error")
    check(update, enabled=False, onMissingBefore="error")


def test_the_configuration_is_told_with_every_default() -> None:
    assert make().config == b'{"kind":"state-protocol"}'
    assert make().touch is None
    assert make(enabled=False).touch is None
    assert make(enabled=True).touch is not None
    assert make(enabled=True).config == (
        b'{"kind":"state-protocol","touch":{"enabled":true,"coarseIntervalMs":100,'
        b'"touchCoalesceWindowMs":100,"onMissingBefore":"coarse",'
        b'"lagDegradeFineTouchesAtSourceOffsets":5000,"lagRecoverFineTouchesAtSourceOffsets":1000,'
        b'"fineTouchBudgetPerBatch":2000,"fineTokensPerSecond":200000,"fineBurstTokens":400000,'
        b'"lagReservedFineTouchBudgetPerBatch":200,"memory":{"bucketMs":100,"filterPow2":22,"k":4,'
        b'"pendingMaxKeys":100000,"keyIndexMaxKeys":32,"hotKeyTtlMs":10000,'
        b'"hotTemplateTtlMs":10000,"hotMaxKeys":1000000,"hotMaxTemplates":4096},'
        b'"templates":{"defaultInactivityTtlMs":3600000,"lastSeenPersistIntervalMs":300000,'
        b'"gcIntervalMs":60000,"maxActiveTemplatesPerEntity":256,'
        b'"maxActiveTemplatesPerStream":2048,"activationRateLimitPerMinute":100}}}'
    )
    again = StateProtocol.parse(msgspec.json.decode(make(enabled=True).config))
    assert again.config == make(enabled=True).config


@pytest.mark.parametrize(
    ("touch", "problem"),
    [
        ({"memory": {"k": 3}}, r"profile\.touch\.memory\.k can only be 4"),
        ({"memory": {"keyIndexMaxKeys": 1}}, r"memory\.keyIndexMaxKeys can only be 32"),
        ({"memory": {"hotKeyTtlMs": 1}}, r"memory\.hotKeyTtlMs can only be 10000"),
        ({"memory": {"hotTemplateTtlMs": 1}}, r"memory\.hotTemplateTtlMs can only be 10000"),
        ({"memory": {"hotMaxKeys": 1}}, r"memory\.hotMaxKeys can only be 1000000"),
        ({"memory": {"hotMaxTemplates": 1}}, r"memory\.hotMaxTemplates can only be 4096"),
        (
            {"templates": {"lastSeenPersistIntervalMs": 1}},
            r"templates\.lastSeenPersistIntervalMs can only be 300000",
        ),
    ],
)
def test_what_has_no_effect_here_cannot_be_set(touch: dict[str, Any], problem: str) -> None:
    profile = make(enabled=True, **touch)  # one that is kept already can still be read
    with pytest.raises(Refused, match=problem):
        profile.check(is_json=True, empty=True)
    make(enabled=True).check(is_json=True, empty=True)


@pytest.mark.parametrize(
    ("touch", "problem"),
    [
        ({"enabled": "yes"}, r"profile\.touch\.enabled"),
        ({"enabled": True, "onMissingBefore": "ignore"}, r"profile\.touch\.onMissingBefore"),
        ({"enabled": True, "memory": {"bucketMs": 0}}, r"profile\.touch\.memory\.bucketMs"),
        ({"enabled": True, "memory": {"x": 1}}, r"profile\.touch\.memory\.x is not supported"),
        ({"enabled": True, "x": 1}, r"profile\.touch\.x is not supported"),
        ({"enabled": True, "templates": []}, r"profile\.touch\.templates"),
    ],
)
def test_configurations_that_are_refused(touch: dict[str, Any], problem: str) -> None:
    with pytest.raises(Refused, match=problem):
        make(**touch)


def test_where_it_may_be_installed() -> None:
    make().check(is_json=True, empty=False)
    with pytest.raises(Refused, match="application/json"):
        make().check(is_json=False, empty=True)
    assert make().installs() is None
