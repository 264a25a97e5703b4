from __future__ import annotations

import json

from headrace.bench.wire import (
    format_append,
    format_diff,
    format_xadd,
    format_xrange,
    make_payloads,
)


def test_payloads_have_their_size_and_differ() -> None:
    payloads = make_payloads(3, 201, seed=1)
    assert [len(payload) for payload in payloads] == [201, 201, 201]
    assert len(set(payloads)) == 3


def test_payloads_are_the_same_in_every_run() -> None:
    assert make_payloads(3, 20, seed=1) == make_payloads(3, 20, seed=1)
    assert make_payloads(3, 20, seed=1) != make_payloads(3, 20, seed=2)


def test_an_append_carries_its_records_and_its_length() -> None:
    head, _, body = format_append("jobs", ["a", "b"]).partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v0/topics/jobs HTTP/1.1\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert json.loads(body) == {"records": [{"data": "a"}, {"data": "b"}]}


def test_a_diff_starts_at_zero_and_goes_on_at_its_cursor() -> None:
    bodies = [
        json.loads(format_diff("jobs", after, 1000).partition(b"\r\n\r\n")[2])
        for after in ("", "42")
    ]
    assert bodies == [{"from_seq": 0, "limit": 1000}, {"from_seq": 42, "limit": 1000}]


def test_a_pipeline_has_a_command_for_each_payload() -> None:
    assert format_xadd("s", ["ab", "c"]) == (
        b"*5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n$4\r\ndata\r\n$2\r\nab\r\n"
        b"*5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n$4\r\ndata\r\n$1\r\nc\r\n"
    )


def test_a_range_goes_on_after_its_cursor() -> None:
    assert b"$1\r\n-\r\n$1\r\n+\r\n" in format_xrange("s", "", 10)
    assert b"$4\r\n(5-0\r\n$1\r\n+\r\n" in format_xrange("s", "5-0", 10)
