from __future__ import annotations

import json
from itertools import islice

from headrace_bench.feed_requests import (
    format_event,
    format_events,
    format_follow,
    new_tenants,
    poll_path,
)
from headrace_bench.scenarios.stages import PAYLOAD
from headrace_bench.wire import STAMP_MARK, split_at_stamp


def test_an_event_has_its_stamp_among_its_data() -> None:
    head, tail = split_at_stamp(format_event("acme", PAYLOAD))
    assert head.startswith(b"POST /tenants/acme/events HTTP/1.1\r\n")
    body = (head + b"7" * 19 + tail).partition(b"\r\n\r\n")[2]
    assert json.loads(body)["data"]["payload"].startswith("^" + "7" * 19)


def test_an_event_without_a_payload_has_no_data() -> None:
    assert "data" not in json.loads(format_event("acme").partition(b"\r\n\r\n")[2])


def test_several_events_are_one_request() -> None:
    head, _, body = format_events("acme", ["a", "b"]).partition(b"\r\n\r\n")
    assert b"Content-Length: %d" % len(body) in head
    assert [event["data"]["payload"] for event in json.loads(body)["events"]] == ["a", "b"]


def test_readers_ask_for_what_a_tenant_stores() -> None:
    assert format_follow("acme").startswith(b"GET /tenants/acme/events/stream HTTP/1.1\r\n")
    assert poll_path("acme").startswith("/tenants/acme/events?")
    assert poll_path("acme").endswith("&after=")
    assert STAMP_MARK not in format_follow("acme")


def test_no_tenant_comes_twice() -> None:
    assert len(set(islice(new_tenants(), 100))) == 100
