"""Bodies of requests: whatever comes, it is a request or a refusal, told in a fixed order."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.core.errors import Refused
from headrace.surfaces.notifications.errors import Operation, describe
from headrace.surfaces.notifications.wire import (
    NotificationRequest,
    open_plain,
    parse_plain,
    parse_request,
)

TEXTS = st.text(st.characters(codec="utf-8"))
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=6
)
KEYS = st.sampled_from(NotificationRequest.__struct_fields__) | TEXTS


def code_of(body: bytes) -> str | None:
    """The code of the refusal of a body; None if it is taken."""
    try:
        parse_request(body)
    except Refused as refused:
        return describe(refused, Operation.WATCH)[1].code
    return None


@given(st.binary())
@example(b"[" * 100_000)
@example(b'{"event_type":"a","identifier":{},"payload":' + b"[" * 1000 + b"]" * 1000 + b"}")
@example(b'{"event_type":"\\ud800","identifier":{}}')
@example(b"\xef\xbb\xbf{}")
def test_bytes_are_refused_or_taken(body: bytes) -> None:
    assert code_of(body) in (None, "INVALID_JSON", "UNKNOWN_FIELD", "INVALID_REQUEST_SHAPE")


@given(st.dictionaries(KEYS, JSON))
def test_unknown_keys_come_before_wrong_values(sent: dict[str, Any]) -> None:
    code = code_of(json.dumps(sent).encode())
    known = NotificationRequest.__struct_fields__
    if any(key not in known for key in sent):
        assert code == "UNKNOWN_FIELD"
    elif not (
        isinstance(sent.get("event_type"), str)
        and isinstance(sent.get("identifier"), dict)
        and all(isinstance(sent.get(key), str | None) for key in known[2:6])
    ):
        assert code == "INVALID_REQUEST_SHAPE"
    else:
        assert code is None


@given(JSON)
def test_a_payload_stays_as_it_came(payload: Any) -> None:
    raw = json.dumps(payload, indent=2).encode()
    request = parse_request(b'{"payload": %b, "identifier": {}, "event_type": "a"}' % raw)
    assert bytes(request.payload) == raw  # type: ignore[arg-type]


@pytest.mark.parametrize("cut", range(1, 40, 7))
def test_half_a_body_is_no_json(cut: int) -> None:
    body = b'{"event_type": 1, "colour": 2, "identifier": {}}'
    assert code_of(body[:-cut]) == "INVALID_JSON"
    assert code_of(body) == "UNKNOWN_FIELD"


@given(st.binary() | st.dictionaries(KEYS, JSON).map(lambda sent: json.dumps(sent).encode()))
@example(b'{"event_type":"a","identifier":{"n":"\\ud800"}}')
@example(b'{"event_type":"a","identifier":{"n":"\\q"}}')
@example(b'{"event_type":"a","identifier":{"n":1,"n":2},"identifier":{"n":3},"payload":[1]}')
@example(b'{"event_type":"a","identifier":[],"payload":null}')
@example(b'{"event_type":"a","identifier":{},"payload":' + b"[" * 1000 + b"]" * 1000 + b"}")
def test_a_plain_notification_is_what_it_is_as_any_request(body: bytes) -> None:
    plain = parse_plain(body)
    request = None if plain is None else open_plain(plain)
    if request is None:
        return
    same = parse_request(body)
    assert (request.event_type, request.identifier) == (same.event_type, same.identifier)
    assert request.payload == same.payload or bytes(request.payload) == bytes(same.payload)  # type: ignore[arg-type]
    assert (same.from_id, same.from_date, same.to_id, same.to_date) == (None,) * 4


def test_most_notifications_are_plain() -> None:
    plain = parse_plain(b'{"event_type": "a", "identifier": {"n": 1}, "payload": {"x": 2}}')
    assert plain is not None
    request = open_plain(plain)
    assert request is not None
    assert (request.identifier, bytes(request.payload)) == ({"n": 1}, b'{"x": 2}')  # type: ignore[arg-type]
