"""Server-sent events: any cut of the bytes gives the same, and none costs more than the bound."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.flags.event_parser import EventParser, OversizedEvent, StreamedEvent

STREAM = (
    b"\xef\xbb\xbfretry: 1500\n\n: keepalive\n\nevent: version\r\nid: billing:1\r\ndata: {}\r\n\r\n"
    b"data\ndata:a\r\rdata: \xc3\xa9\ndata:  b\nunknown: x\n\nevent: none\n\n"
    b":keepalive\r\ndata: 2\n\n"
)
EVENTS = [
    StreamedEvent("version", "{}"),
    StreamedEvent("", "\na"),
    StreamedEvent("", "é\n b"),
    StreamedEvent("", "2"),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_events_are_the_same_however_the_bytes_are_cut(cuts: list[int]) -> None:
    parser = EventParser()
    edges = [0, *sorted(cuts), len(STREAM)]
    found = [event for start, stop in pairwise(edges) for event in parser.feed(STREAM[start:stop])]
    assert found == EVENTS
    assert parser.retry_s == 1.5


def test_byte_by_byte() -> None:
    parser = EventParser()
    assert [event for byte in STREAM for event in parser.feed(bytes([byte]))] == EVENTS


@pytest.mark.parametrize(
    "stream", [b"data: " + b"x" * 100, b"data: x\n" * 20, b":" + b"c" * 100, b"data: 1\r\n" * 15]
)
def test_an_event_that_is_too_large_is_refused_before_it_ends(stream: bytes) -> None:
    with pytest.raises(OversizedEvent):
        EventParser(64).feed(stream)
    parser = EventParser(64)
    with pytest.raises(OversizedEvent):
        deque((parser.feed(bytes([byte])) for byte in stream), maxlen=0)


def test_comments_and_events_that_ended_count_no_more() -> None:
    parser = EventParser(64)
    for _ in range(100):
        assert parser.feed(b":keepalive\n") == []
        assert parser.feed(b"data: " + b"x" * 50 + b"\n\n") == [StreamedEvent("", "x" * 50)]


@pytest.mark.parametrize("value", [b"soon", b"-1", b"99999999999", b""])
def test_a_pause_that_is_none_is_not_heard(value: bytes) -> None:
    parser = EventParser()
    parser.feed(b"retry: 7000\nretry: " + value + b"\n")
    assert parser.retry_s == 7.0
