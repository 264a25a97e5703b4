from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from headrace_bench.catchup import catch_up
from headrace_bench.errors import BenchError
from headrace_bench.jobs import CatchUp, Numbers, Offsets, Poll
from headrace_bench.link import answers
from headrace_bench.scenarios.manystreams import numbered_streams
from headrace_bench.scenarios.streams import make_body
from headrace_bench.watching import poll

STAMP = b"^%019d" % 1


@contextmanager
def scripted(*replies: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A server that answers one connection with these replies, whatever is asked."""
    asked: list[bytes] = []

    def serve() -> None:
        link, _ = listener.accept()
        with link:
            for reply in replies:
                asked.append(link.recv(65536).split(b" HTTP/1.1", 1)[0])
                link.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], asked
        thread.join()


def page(next: str, body: bytes, *, last: bool = False, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nstream-next-offset: {next}\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"stream-up-to-date: true\r\n" * last + b"\r\n" + body


def test_a_reader_of_a_stream_follows_offsets_to_the_page_that_says_it_is_the_last() -> None:
    with scripted(page("b", b"12345"), page("c", b"678", last=True)) as (port, asked):
        reading = catch_up(CatchUp(port, Offsets(), "/s?offset="))
    assert asked == [b"GET /s?offset=-1", b"GET /s?offset=b"]
    assert (reading.pages, reading.size_bytes, reading.cursor) == (2, 8, "c")


def test_a_long_poll_goes_on_behind_what_it_got_and_asks_again_when_nothing_came() -> None:
    replies = (page("b", STAMP), page("b", b"", status="204 No Content"), page("c", STAMP))
    with scripted(*replies) as (port, asked):
        found = poll(Poll(port, Offsets(), "/s?offset=", "-1", 1, 2, 0.0), lambda: None)
    assert asked == [b"GET /s?offset=-1", b"GET /s?offset=b", b"GET /s?offset=b"]
    assert len(found.latencies_ms) == 2


def test_a_long_poll_of_a_feed_goes_on_behind_the_number_it_was_told() -> None:
    def events(number: int, body: bytes) -> bytes:
        cursor = b'"cursor":{"sequenceNumber":%d,"hasMore":false}' % number
        return page("", b'{"events":[' + body + b"]," + cursor + b"}")

    event = b'{"sequenceNumber":2,"data":{"payload":"' + STAMP + b'"}}'
    with scripted(events(2, event), events(5, b""), events(6, event)) as (port, asked):
        found = poll(Poll(port, Numbers(), "/f?after=", "1", 1, 2, 0.0), lambda: None)
    assert asked == [b"GET /f?after=1", b"GET /f?after=2", b"GET /f?after=5"]
    assert len(found.latencies_ms) == 2


def test_a_long_poll_that_is_refused_is_a_failure() -> None:
    with (
        scripted(page("b", b"", status="408 Request Timeout")) as (port, _),
        pytest.raises(BenchError, match="408"),
    ):
        poll(Poll(port, Offsets(), "/s?offset=", "-1", 1, 1, 0.0), lambda: None)


def test_who_listens_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert answers(port)
    assert not answers(port)


def test_a_body_is_one_text_or_a_batch_of_json() -> None:
    assert len(make_body(0, seed=1)) == 200
    assert [len(record) for record in json.loads(make_body(3, seed=1))] == [200, 200, 200]


def test_each_request_creates_a_stream_of_its_own() -> None:
    source = numbered_streams()
    request = b"%b%d%b" % (source.head, 7, source.tail)
    assert request.startswith(b"PUT /ds/v1/stream/s7 HTTP/1.1\r\n")
    assert request.endswith(b"\r\n\r\n")
