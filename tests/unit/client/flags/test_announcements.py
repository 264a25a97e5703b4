"""What events announce: checked before anything is done with it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.client.flags.announcements import (
    DeltaAnnounced,
    ResyncAnnounced,
    SnapshotAnnounced,
    UnknownProtocol,
    UnreadableEvent,
    parse_announcement,
)
from headrace.client.flags.event_parser import StreamedEvent
from support.flag_history import inline_event, resync_event, snapshot_event

OLD, NEW = {"namespace.toml": b"1"}, {"namespace.toml": b"2"}


def parse(name: str, data: Any) -> Any:
    return parse_announcement(StreamedEvent(name, json.dumps(data)))


def test_what_a_right_server_says() -> None:
    slug, delta = parse("version", inline_event(2, OLD, NEW) | {"unknown": 1})
    assert slug == "billing"
    assert isinstance(delta, DeltaAnnounced)
    assert [entry.op for entry in delta.files] == ["modified"]
    assert isinstance(parse("version", snapshot_event(2, NEW))[1], SnapshotAnnounced)
    assert isinstance(parse("resync", resync_event(2))[1], ResyncAnnounced)
    assert parse("message", "anything") is None


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 0},
        {"version": "2"},
        {"version": 2**63},
        {"version": True},
        {"closure_hash": "sha256:" + "A" * 64},
        {"closure_hash": "sha256:" + "a" * 63},
        {"closure_hash": "x" + "sha256:" + "a" * 64},
        {"closure_hash": "sha256:" + "a" * 64 + "\n"},
        {"closure_hash": None},
        {"prev_closure_hash": None},
        {"files": []},
        {"files": [{"path": "x"}]},
        {"files": [{"path": 1, "op": "added"}]},
        {"files": [{"path": "flags/x.toml", "op": "removed"}] * 5000},
        {"delivery": "pigeon"},
        {"delivery": None},
    ],
)
def test_a_delta_that_is_none_is_refused_with_its_namespace(changes: dict[str, Any]) -> None:
    with pytest.raises(UnreadableEvent) as refused:
        parse("version", inline_event(2, OLD, NEW, **changes))
    assert refused.value.namespace in ("billing", None)
    assert not isinstance(refused.value, UnknownProtocol)


@pytest.mark.parametrize("protocol", ["v1", "v3", "", "V2"])
def test_a_protocol_that_is_not_known_is_refused_before_all_else(protocol: str) -> None:
    with pytest.raises(UnknownProtocol) as refused:
        parse("version", {"protocol": protocol, "namespace": "billing", "wholly": "different"})
    assert refused.value.namespace == "billing"


@pytest.mark.parametrize("data", ["", "{", "[]", "null", '{"protocol":2}', "[" * 100_000])
def test_what_is_not_an_object_is_refused(data: str) -> None:
    with pytest.raises(UnreadableEvent):
        parse_announcement(StreamedEvent("version", data))
