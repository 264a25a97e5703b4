"""Replies of servers: any cut of the bytes gives the same; heads are bounded."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.http_response import MalformedResponse, ResponseParser

LENGTH = b'HTTP/1.1 200 OK\r\nETag: "a"\r\nContent-Length: 5\r\n\r\nhello'
CHUNKS = (
    b"HTTP/1.1 100 Continue\r\nx: 1\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
    b'eTag: "a"\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\ntrailer: 1\r\n\r\n'
)


@pytest.mark.parametrize("raw", [LENGTH, CHUNKS])
@given(data=st.data())
def test_a_reply_is_the_same_however_it_is_cut(raw: bytes, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(raw)), max_size=8))
    edges = [0, *sorted(cuts), len(raw)]
    parser = ResponseParser()
    body = b"".join(parser.feed(raw[a:b]) for a, b in pairwise(edges))
    assert (parser.status, body, parser.is_complete) == (200, b"hello", True)
    assert parser.headers["etag"] == '"a"'
    assert parser.headers.keys().isdisjoint(("x", "trailer"))


@pytest.mark.parametrize("raw", [LENGTH, CHUNKS])
def test_a_reply_that_is_cut_off_is_not_complete(raw: bytes) -> None:
    for end in range(len(raw)):
        parser = ResponseParser()
        parser.feed(raw[:end])
        assert not parser.is_complete


def test_a_reply_without_a_body_is_complete_with_its_head() -> None:
    parser = ResponseParser()
    assert parser.feed(b"HTTP/1.1 304 Not Modified\r\ncontent-length: 99\r\n\r\n") == b""
    assert (parser.status, parser.is_complete) == (304, True)


@pytest.mark.parametrize(
    ("raw", "is_reusable"),
    [
        (LENGTH, True),
        (CHUNKS, True),
        (LENGTH[:-1], False),
        (LENGTH.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"), False),
        (LENGTH.replace(b"HTTP/1.1", b"HTTP/1.0"), False),
    ],
)
def test_a_connection_takes_another_request_behind_a_whole_reply_if_the_server_keeps_it(
    raw: bytes, is_reusable: bool
) -> None:
    parser = ResponseParser()
    parser.feed(raw)
    assert parser.is_reusable == is_reusable


def test_a_second_reply_is_not_heard() -> None:
    parser = ResponseParser()
    body = parser.feed(LENGTH + b"HTTP/1.1 500 X\r\netag: b\r\ncontent-length: 1\r\n\r\n!")
    assert not parser.is_reusable
    assert (parser.status, body, parser.headers["etag"]) == (200, b"hello", '"a"')


@pytest.mark.parametrize(
    "raw", [b"HELLO\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", b"\0" * 20]
)
def test_what_is_not_http_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedResponse):
        ResponseParser().feed(raw)


def test_a_head_that_does_not_end_is_refused() -> None:
    parser = ResponseParser(1000)
    parser.feed(b"HTTP/1.1 200 OK\r\n")
    with pytest.raises(MalformedResponse):
        deque((parser.feed(b"x-%d: y\r\n" % number) for number in range(1000)), maxlen=0)
