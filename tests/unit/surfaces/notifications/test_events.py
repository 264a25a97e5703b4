"""Notifications as they are stored and as they go out."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.read import Page, Slice
from headrace.core.record import block
from headrace.surfaces.notifications.events import REPLAY, EventForm, format_instant, format_second
from headrace.surfaces.notifications.identifiers import parse_notified
from headrace.surfaces.notifications.records import make_drafts, read_identifier, split
from support.eventtext import Event, split_events

FORM = EventForm("storm", "https://a.example/b", "text")
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]), min_size=1)
HOSTILE = st.sampled_from(['},"payload":', '},"bbox":[', '"', "\\", '],"payload":', "{", "}", "é"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS | HOSTILE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS | HOSTILE, inner, max_size=3),
    max_leaves=8,
)
SQUARE = [[0, 0], [0, 1], [1, 1], [1, 0], [0, 0]]


def stored(identifier: dict[str, Any], payload: bytes) -> bytes:
    return make_drafts(parse_notified(None, "storm", identifier), payload).data


def encode(data: bytes, form: EventForm = FORM) -> list[Event]:
    notified = parse_notified(None, "storm", {"a": "b"})
    drafts = make_drafts(notified, b"null")
    drafts.data, drafts.ends = data, len(data).to_bytes(4, "little")
    records = block(drafts, 17, 1_772_618_400_123, 456_789)
    page = Page([Slice(records, range(1))], 17, 17, 1, None, 1)
    events, rest = split_events(form.encode(REPLAY, page))
    assert rest == b""
    return events


@given(
    st.dictionaries(TEXTS.filter(lambda key: key not in ("point", "polygon")), TEXTS | HOSTILE),
    st.booleans(),
    JSON,
)
def test_what_is_stored_is_found_again_without_a_look_at_the_payload(
    identifier: dict[str, str], has_polygon: bool, payload: Any
) -> None:
    identifier = {key[:20]: value[:20] for key, value in identifier.items() if value != "*"}
    sent: dict[str, Any] = identifier | ({"polygon": SQUARE} if has_polygon else {})
    raw = json.dumps(payload, indent=1).encode()
    data = stored(sent, raw)
    document = msgspec.json.decode(data)
    assert list(document) == ["identifier", *(["bbox"] if has_polygon else []), "payload"]
    parts = split(data)
    assert parts.payload == raw
    assert read_identifier(parts) == sent == document["identifier"]
    assert (parts.box is not None) == has_polygon
    if parts.box is not None:
        assert msgspec.json.decode(parts.box) == document["bbox"] == [0, 0, 1, 1]


def test_a_notification_is_a_cloud_event() -> None:
    (told,) = encode(stored({"region": "north"}, b'{"file":\n"a.grib"}'))
    event = JSONFormat().read(CloudEvent, json.dumps(told.data))
    assert event.get_specversion() == "1.0"
    assert event.get_id() == "storm@17"
    assert event.get_type() == "int.ecmwf.aviso.storm"
    assert event.get_source() == "https://a.example/b"
    assert event.get_dataschema() == "https://a.example/b/schema/storm"
    assert event.get_datacontenttype() == "application/json"
    time = event.get_time()
    assert time is not None
    assert time.isoformat() == "2026-03-04T10:00:00.123456+00:00"
    assert event.get_data() == {"identifier": {"region": "north"}, "payload": {"file": "a.grib"}}
    assert told.name == "replay"
    assert told.id is None


@pytest.mark.parametrize(
    ("sent", "form", "emitted"),
    [
        ("0,0,0,1,1,1,1,0,0,0", "text", "0,0,0,1,1,1,1,0,0,0"),
        ("0,0,0,1,1,1,1,0,0,0", "array", SQUARE),
        (SQUARE, "array", SQUARE),
    ],
)
def test_polygons_go_out_in_the_form_that_is_set(sent: Any, form: Any, emitted: Any) -> None:
    data = stored({"a": "b", "polygon": sent}, b"1")
    (told,) = encode(data, EventForm("storm", "http://a", form))
    assert told.data["data"] == {"identifier": {"a": "b", "polygon": emitted}, "payload": 1}


def test_events_with_ids() -> None:
    (told,) = encode(stored({"a": "b"}, b"1"), EventForm("storm", "http://a", "text", ids=True))
    assert told.id == "storm@17" == told.data["id"]


def test_instants() -> None:
    assert format_second(1_772_614_800_999) == "2026-03-04T09:00:00Z"
    assert format_instant(1_772_614_800_000_000_999) == "2026-03-04T09:00:00.000000Z"
