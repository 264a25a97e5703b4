from __future__ import annotations

import pytest

from headrace_bench.errors import BenchError
from headrace_bench.replies import (
    FeedPage,
    HttpPage,
    HttpReply,
    Reply,
    RespEntries,
    RespLines,
    RespPage,
    RespReplies,
    StreamPage,
    format_excerpt,
    parse_length,
)

OK = b"HTTP/1.1 200 OK\r\nserver: x\r\nContent-Length: 5\r\n\r\nhello"
CREATED = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}"
THROTTLED = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\n\r\n{}"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n7\r\n, world\r\n0\r\n\r\n"
)
NO_CONTENT = b"HTTP/1.1 204 No Content\r\ndate: today\r\n\r\n"
ENTRY = b"*2\r\n$3\r\n%s\r\n*2\r\n$4\r\ndata\r\n$2\r\nxx\r\n"


def feed_bytewise(reply: Reply, raw: bytes) -> list[bool]:
    return [reply.feed(raw[at : at + 1]) for at in range(len(raw))]


@pytest.mark.parametrize(
    ("make", "raw"),
    [
        (HttpReply, OK),
        (lambda: RespReplies(2), b"$3\r\n5-0\r\n$3\r\n5-1\r\n"),
        (lambda: RespReplies(2), b"$3\r\n5-0\r\n-ERR no\r\n"),
        (HttpReply, NO_CONTENT),
        (HttpReply, CHUNKED),
        (lambda: RespLines(2), b":8\r\n:8\r\n"),
        (RespEntries, b"*1\r\n*2\r\n$4\r\njobs\r\n*2\r\n" + ENTRY % b"5-0" + ENTRY % b"5-1"),
        (RespEntries, b"*-1\r\n"),
        (RespEntries, b"-NOGROUP no\r\n"),
        (RespPage, b"*1\r\n" + ENTRY % b"5-0" + b"+PONG\r\n"),
    ],
)
def test_a_reply_is_whole_at_its_last_byte_and_not_before(make: type[Reply], raw: bytes) -> None:
    *before, last = feed_bytewise(make(), raw)
    assert not any(before)
    assert last


@pytest.mark.parametrize(("raw", "expected"), [(OK, True), (CREATED, True), (THROTTLED, False)])
def test_only_a_2xx_succeeds(raw: bytes, expected: bool) -> None:
    reply = HttpReply()
    assert reply.feed(raw)
    assert reply.succeeded() is expected


def test_a_body_ends_where_its_length_says() -> None:
    reply = HttpReply()
    assert reply.feed(OK)
    assert reply.body == b"hello"


def test_an_error_does_not_pass_as_entries_or_numbers() -> None:
    entries, numbers = RespEntries(), RespLines(2)
    assert entries.feed(b"-NOGROUP no\r\n")
    assert numbers.feed(b":1\r\n-ERR no\r\n")
    assert not entries.succeeded()
    assert not numbers.succeeded()


def test_a_cleared_reply_takes_the_next() -> None:
    reply = HttpReply()
    assert reply.feed(THROTTLED)
    reply.clear()
    assert reply.feed(OK)
    assert reply.succeeded()


def test_a_reply_without_a_length_is_refused() -> None:
    with pytest.raises(BenchError, match="without Content-Length"):
        HttpReply().feed(b"HTTP/1.1 200 OK\r\nserver: x\r\n\r\n")


def test_a_reply_in_chunks_is_put_together() -> None:
    reply = HttpReply()
    assert reply.feed(CHUNKED)
    assert reply.body == b"hello, world"
    assert reply.body_bytes == 12
    reply.clear()
    assert reply.feed(OK)
    assert reply.body == b"hello"


@pytest.mark.parametrize(
    "line", [b"content-length: 17", b"Content-Length:17", b"CONTENT-LENGTH: 17"]
)
def test_a_length_is_found_however_it_is_written(line: bytes) -> None:
    assert parse_length(b"HTTP/1.1 200 OK\r\nx-content-length: 3\r\n" + line + b"\r\na: b") == 17


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"records":[],"next_from_seq":12,"lag":0}', "12"),
        (b'{"records":[],"next_from_seq": 12}', "12"),
        (b'{"records":[{"data":"\\"next_from_seq\\":9"}],"next_from_seq":1000000}', "1000000"),
        (b"{}", ""),
    ],
)
def test_the_cursor_of_a_diff(body: bytes, expected: str) -> None:
    page = HttpPage()
    assert page.feed(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
    assert page.cursor() == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"events":[],"cursor":{"sequenceNumber":12,"hasMore":false}}', "12"),
        (b'{"events":[{"sequenceNumber":3}],"cursor":{"sequenceNumber":4,"hasMore":true}}', "4"),
        (b'{"code":"NOT_FOUND","sequenceNumber":3}', ""),
    ],
)
def test_the_cursor_of_a_page_of_a_feed(body: bytes, expected: str) -> None:
    page = FeedPage()
    assert page.feed(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
    assert page.cursor() == expected


def test_a_page_of_a_stream_says_in_its_head_where_the_next_one_starts() -> None:
    page = StreamPage()
    head = b"HTTP/1.1 200 OK\r\nStream-Next-Offset: %s\r\n%scontent-length: %d\r\n\r\n"
    body = b"\r\nstream-next-offset: 9\r\nstream-up-to-date: true\r\n"
    assert page.feed(head % (b"00A_01", b"", len(body)) + body)
    assert (page.cursor(), page.is_last(), page.body_bytes) == ("00A_01", False, len(body))
    page.clear()
    assert page.feed(head % (b"00A_02", b"stream-up-to-date: true\r\n", 0))
    assert (page.cursor(), page.is_last(), page.body_bytes) == ("00A_02", True, 0)


def test_the_cursor_of_a_range_is_its_last_id() -> None:
    page = RespPage()
    assert page.feed(b"*2\r\n" + ENTRY % b"5-0" + ENTRY % b"6-2" + b"+PONG\r\n")
    assert page.succeeded()
    assert page.cursor() == "6-2"


def test_an_empty_range_has_no_cursor() -> None:
    page = RespPage()
    assert page.feed(b"*0\r\n+PONG\r\n")
    assert page.cursor() == ""


def test_an_error_does_not_pass_as_a_page() -> None:
    page = RespPage()
    assert page.feed(b"-ERR wrong\r\n+PONG\r\n")
    assert not page.succeeded()


@pytest.mark.parametrize("raw", [b"-ERR a\r\n$3\r\n5-0\r\n", b"$3\r\n5-0\r\n-ERR a\r\n"])
def test_one_error_in_a_pipeline_is_a_failure(raw: bytes) -> None:
    replies = RespReplies(2)
    assert replies.feed(raw)
    assert not replies.succeeded()


def test_an_excerpt_is_short() -> None:
    reply = HttpReply()
    reply.feed(b"HTTP/1.1 500 Oops\r\ncontent-length: 9000\r\n\r\n" + b"x" * 9000)
    assert format_excerpt(reply).startswith("HTTP/1.1 500 Oops")
    assert len(format_excerpt(reply)) == 300
