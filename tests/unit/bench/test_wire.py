from __future__ import annotations

import json

import pytest

from headrace_bench.wire import (
    STAMP_DIGITS,
    format_append,
    format_diff,
    format_from_offset,
    format_text_frame,
    format_xack,
    format_xadd,
    format_xrange,
    format_xreadgroup,
    make_payloads,
    make_stamped_payload,
    split_at_stamp,
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


def test_a_stream_is_read_from_its_start_and_on_from_an_offset() -> None:
    path = "/v1/stream/jobs?live=long-poll&offset="
    first, next = (format_from_offset(path, after) for after in ("", "00A"))
    assert first.startswith(b"GET /v1/stream/jobs?live=long-poll&offset=-1 HTTP/1.1\r\n")
    assert next.startswith(b"GET /v1/stream/jobs?live=long-poll&offset=00A HTTP/1.1\r\n")


def test_a_pipeline_has_a_command_for_each_payload() -> None:
    assert format_xadd("s", ["ab", "c"]) == (
        b"*5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n$4\r\ndata\r\n$2\r\nab\r\n"
        b"*5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n$4\r\ndata\r\n$1\r\nc\r\n"
    )


def test_a_range_goes_on_after_its_cursor() -> None:
    assert b"$1\r\n-\r\n$1\r\n+\r\n" in format_xrange("s", "", 10)
    assert b"$4\r\n(5-0\r\n$1\r\n+\r\n" in format_xrange("s", "5-0", 10)


@pytest.mark.parametrize(
    ("size_bytes", "head"),
    [(125, b"\x81\xfd"), (126, b"\x81\xfe\x00\x7e"), (300, b"\x81\xfe\x01\x2c")],
)
def test_a_message_of_a_client_is_masked_with_nothing(size_bytes: int, head: bytes) -> None:
    text = b"x" * size_bytes
    assert format_text_frame(text) == head + b"\0\0\0\0" + text


def test_a_stamp_fits_into_a_request_of_the_same_length() -> None:
    payload = make_stamped_payload(200)
    assert len(payload) == 200
    request = format_append("jobs", [payload])
    head, tail = split_at_stamp(request)
    assert len(head) + STAMP_DIGITS + len(tail) == len(request)
    body = b"%b%0*d%b" % (head, STAMP_DIGITS, 42, tail)
    (record,) = json.loads(body.partition(b"\r\n\r\n")[2])["records"]
    assert record["data"].startswith("^" + "42".zfill(STAMP_DIGITS))


def test_workers_of_a_group_read_and_then_acknowledge_and_delete() -> None:
    assert format_xreadgroup("s", "g", "c", 8) == (
        b"*9\r\n$10\r\nXREADGROUP\r\n$5\r\nGROUP\r\n$1\r\ng\r\n$1\r\nc\r\n$5\r\nCOUNT\r\n$1\r\n8\r\n"
        b"$7\r\nSTREAMS\r\n$1\r\ns\r\n$1\r\n>\r\n"
    )
    assert format_xack("s", "g", [b"5-0", b"5-1"]) == (
        b"*5\r\n$4\r\nXACK\r\n$1\r\ns\r\n$1\r\ng\r\n$3\r\n5-0\r\n$3\r\n5-1\r\n"
        b"*4\r\n$4\r\nXDEL\r\n$1\r\ns\r\n$3\r\n5-0\r\n$3\r\n5-1\r\n"
    )
