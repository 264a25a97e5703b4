"""What a connection may say and what it may cost, whoever is at the other end."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import weakref
from typing import Any

import httptools
import pytest

from headrace.core.limits import (
    CHUNK_FRAMING_BYTES_MAX,
    CHUNKS_PER_TURN,
    CLOSE_S,
    FEED_BYTES,
    HEAD_BYTES_FAIR,
    HEAD_BYTES_MAX,
    HEADERS_MAX,
    HEADS_BYTES_MAX,
    LINGER_BYTES_MAX,
    PEER_TIMEOUT_S,
)
from headrace.delivery.sink import Sink
from headrace.web.answers import Answer, Handover
from headrace.web.connection import Connection, Connections
from headrace.web.descriptors import backlog, room_for_connections
from headrace.web.http2_refusal import PREFACE
from headrace.web.request import Request
from support.lines import KEEP_ALIVE_S, Echo, Line, Site, run
from support.plumbing import NoLogs

GET = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: here\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
H2C = b"GET / HTTP/1.1\r\nhost: x\r\nupgrade: h2c\r\nhttp2-settings: AA\r\nconnection: upgrade\r\n"


def body_of(line: Line) -> Any:
    return json.loads(line.heard.rpartition(b"\r\n\r\n")[2])


# --- trailers and chunks --------------------------------------------------------------------------


def test_trailers_are_dropped() -> None:
    echo = Echo()

    async def story(site: Site) -> None:
        line = site.connect()
        head = POST + b"authorization: header\r\ntransfer-encoding: chunked\r\n\r\n"
        await line.send(head + b"3\r\nabc\r\n0\r\nauthorization: trailer\r\nx: y\r\n\r\n" + GET)
        assert line.statuses == [200, 200]
        assert echo.bodies == [b"abc", b""]
        assert echo.headers[0][b"authorization"] == b"header"
        assert b"x" not in echo.headers[0]

    run(story, echo)


@pytest.mark.parametrize(
    "endless", [b"a: b\r\n" * 100_000, b"a" * 600_000, b"a: " + b"b" * 600_000], ids=len
)
@pytest.mark.parametrize("answered", [False, True])
def test_endless_trailers_end_the_connection(endless: bytes, answered: bool) -> None:
    class Refuses(Echo):
        async def __call__(self, request: Request) -> Answer | Handover:
            return Answer(401, [])

    async def story(site: Site) -> None:
        line = site.connect()
        protocol = line.protocol
        await line.send(CHUNKED + b"3\r\nabc\r\n0\r\n")
        for at in range(0, len(endless), 1000):
            if line.protocol is not protocol:
                break
            await line.send(endless[at : at + 1000])
        assert at <= CHUNK_FRAMING_BYTES_MAX + 2 * FEED_BYTES
        assert line.statuses == ([401] if answered else [431])
        await line.send(b"x" * (LINGER_BYTES_MAX + 1))
        assert line.closing

    run(story, Refuses() if answered else Echo())


def test_chunks_of_one_byte_are_taken_in_by_turns_and_copied_once() -> None:
    echo = Echo()
    count = 20_000

    async def story(site: Site) -> None:
        line = site.connect()
        most = 0
        feed = line.protocol._feed

        def counted(data: bytes) -> int:
            nonlocal most
            taken: int = feed(data)
            most = max(most, line.protocol._chunks if line.protocol else 0)
            return taken

        line.protocol._feed = counted
        await line.send(CHUNKED + b"1\r\na\r\n" * count + b"0\r\n\r\n")
        assert line.statuses == [200]
        assert echo.bodies == [b"a" * count]
        assert most <= FEED_BYTES // 6 + 1
        assert line.turns >= count // (CHUNKS_PER_TURN + most)

    run(story, echo)


def test_a_chunked_body_of_large_chunks_needs_few_turns() -> None:
    echo = Echo()

    async def story(site: Site) -> None:
        line = site.connect()
        chunk = b"4000\r\n" + b"a" * 0x4000 + b"\r\n"
        await line.send(CHUNKED + chunk * 32 + b"0\r\n\r\n")
        assert echo.bodies == [b"a" * 0x4000 * 32]
        assert line.turns < 100

    run(story, echo)


def test_a_large_body_of_known_length_comes_in_as_few_pieces_as_were_read() -> None:
    echo = Echo()

    async def story(site: Site) -> None:
        line = site.connect()
        pieces, add = 0, line.protocol.on_body

        def count(piece: bytes) -> None:
            nonlocal pieces
            pieces += 1
            add(piece)

        line.protocol.on_body = count
        line.protocol._parser = httptools.HttpRequestParser(line.protocol)
        await line.send(POST + b"content-length: 200000\r\n\r\n" + b"a" * 200_000 + GET)
        assert line.statuses == [200, 200]
        assert [len(body) for body in echo.bodies] == [200_000, 0]
        assert pieces <= 4

    run(story, echo)


# --- what is no request ---------------------------------------------------------------------------

HOST = b"host: here\r\n"
UNACCEPTABLE = {
    "HTTP/0.9": (b"GET /\r\n\r\n", 400),
    "HTTP/0.9 in full": (b"GET / HTTP/0.9\r\n" + HOST + b"\r\n", 400),
    "HTTP/2.0 in a line": (b"GET / HTTP/2.0\r\n" + HOST + b"\r\n", 505),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "another host in the line": (b"GET http://there/ HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "another port in the line": (b"GET http://here:1/ HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "somebody in the line": (b"GET http://a@here/ HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "two hosts": (b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n", 400),
    "two keys": (POST + b"authorization: a\r\nAuthorization: a\r\n\r\n", 400),
    "two types": (POST + b"content-type: a/b\r\ncontent-type: a/b\r\n\r\n", 400),
    "two origins": (POST + b"origin: a\r\norigin: b\r\n\r\n", 400),
    "two lengths": (POST + b"content-length: 1\r\ncontent-length: 1\r\n\r\na", 400),
    "a length of zeros": (POST + b"content-length: " + b"0" * 5000 + b"5\r\n\r\nabcde", 400),
    "a length too large": (POST + b"content-length: 99999999999999999999\r\n\r\n", 400),
    "length and chunks": (POST + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", 400),
    "gzip below chunks": (POST + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
    "gzip in a line of its own": (
        POST + b"transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400,
    ),
    "gzip alone": (POST + b"transfer-encoding: gzip\r\n\r\n", 501),
    "chunks below gzip": (POST + b"transfer-encoding: chunked, gzip\r\n\r\n", 400),
    "chunks in HTTP/1.0": (
        b"POST / HTTP/1.0\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400,
    ),
    "a proxy": (b"CONNECT a:1 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "a head too long": (b"GET / HTTP/1.1\r\nx: " + b"a" * HEAD_BYTES_MAX, 431),
    "too many headers": (b"GET / HTTP/1.1\r\n" + HOST + b"a: b\r\n" * HEADERS_MAX + b"\r\n", 431),
    "far too many headers": (b"GET / HTTP/1.1\r\n" + b"aa: bb\r\n" * 8 * HEADERS_MAX, 431),
    "a WebSocket with a body": (
        POST + b"upgrade: websocket\r\nconnection: upgrade\r\ncontent-length: 1\r\n\r\na", 400,
    ),
    "a bad chunk": (CHUNKED + b"x\r\n", 400),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "status"), UNACCEPTABLE.values(), ids=UNACCEPTABLE)
def test_what_is_no_request_is_told_so_and_left(raw: bytes, status: int) -> None:
    echo = Echo()

    async def story(site: Site) -> None:
        line = site.connect()
        await line.send(raw)
        await line.send(GET)
        assert line.statuses == [status]
        assert set(body_of(line)["error"]) == {"code", "message"}
        assert echo.bodies == []
        assert line.ended, "our side is over"
        assert not line.closing, "the peer can read that"
        await asyncio.sleep(CLOSE_S + 1)
        assert line.aborted
        await line.settle()
        assert not site.shared.open

    run(story, echo)


@pytest.mark.parametrize("target", [b"http://here/", b"HTTP://HERE/?a", b"http://here:80/"])
def test_a_line_may_name_the_host_once_more(target: bytes) -> None:
    async def story(site: Site) -> None:
        line = site.connect()
        host = b"host: Here:80\r\n" if b":80" in target else b"host: Here\r\n"
        await line.send(b"GET " + target + b" HTTP/1.1\r\n" + host + b"\r\n")
        assert line.statuses == [200]

    run(story)


def test_http_1_0_needs_no_host() -> None:
    async def story(site: Site) -> None:
        line = site.connect()
        await line.send(b"GET / HTTP/1.0\r\n\r\n")
        assert line.statuses == [200]

    run(story)


def test_what_came_before_is_answered_first() -> None:
    echo = Echo()
    echo.waiting = asyncio.Event()

    async def story(site: Site) -> None:
        line = site.connect()
        await line.send(GET + GET + b"GET /\r\n\r\n" + GET)
        assert line.heard == b""
        echo.waiting.set()
        await line.settle()
        assert line.statuses == [200, 200, 400]
        assert line.ended

    run(story, echo)


def test_a_request_that_breaks_behind_another_is_not_begun() -> None:
    echo = Echo()
    echo.waiting = asyncio.Event()

    async def story(site: Site) -> None:
        line = site.connect()
        await line.send(GET + CHUNKED + b"3\r\nabc\r\nnonsense\r\n")
        echo.waiting.set()
        await line.settle()
        assert line.statuses == [200, 400]
        assert echo.bodies == [b""]

    run(story, echo)


def test_nobody_is_asked_to_go_on_with_what_was_refused() -> None:
    async def story(site: Site) -> None:
        line = site.connect()
        await line.send(POST + b"expect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\nx\r\n")
        assert line.statuses == [400]

    run(story)


def test_a_peer_that_was_not_asked_to_go_on_may_leave_its_body_out() -> None:
    """What it sends next would be taken for that body."""

    class Refuses(Echo):
        async def __call__(self, request: Request) -> Answer | Handover:
            return Answer(413, [])

    async def story(site: Site) -> None:
        line = site.connect()
        await line.send(POST + b"expect: 100-continue\r\ncontent-length: 9\r\n\r\n")
        assert line.statuses == [413]
        assert b"connection: close" in line.heard
        assert line.ended
        line = site.connect()
        await line.send(POST + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\nab")
        assert line.statuses == [413]
        assert not line.ended

    run(story, Refuses())


# --- peers that say no more -----------------------------------------------------------------------


@pytest.mark.parametrize("before", [b"", GET * 3])
def test_who_says_no_more_is_still_answered(before: bytes) -> None:
    echo = Echo()

    async def story(site: Site) -> None:
        line = site.connect()
        await line.send(before)
        echo.waiting = asyncio.Event()
        await line.send(GET)
        await line.say_no_more()
        assert not line.closing
        echo.waiting.set()
        await line.settle()
        assert line.statuses == [200] * (before.count(b"GET") + 1)
        assert line.heard.count(b"connection: close") == 1
        assert line.closing
        assert not site.shared.open
        assert not site.shared.tasks

    run(story, echo)


@pytest.mark.parametrize("sent", [b"", GET, GET[:9], POST + b"content-length: 9\r\n\r\nab"])
def test_a_connection_without_a_whole_request_ends_with_its_peer(sent: bytes) -> None:
    async def story(site: Site) -> None:
        line = site.connect()
        await line.send(sent)
        await line.say_no_more()
        assert line.closing
        assert not site.shared.open
        assert not site.shared.tasks

    run(story)


def test_who_says_no_more_waits_for_nothing_new_and_is_pushed_nothing() -> None:
    gone = asyncio.Event()
    ended = []

    async def wait(request: Request) -> Answer | Handover:
        connection = request.connection
        connection.on_gone = gone.set
        await gone.wait()
        assert connection.gone
        if request.method == "GET":
            return Answer(200, [], b"nothing new")
        return Handover(Sink(NoLogs(), 1), [], on_end=lambda: ended.append(request))

    async def story(site: Site) -> None:
        for request, heard in ((GET, [200]), (POST + b"\r\n", [])):
            gone.clear()
            line = site.connect()
            await line.send(request)
            await line.say_no_more()
            assert line.statuses == heard
            assert line.closing
        assert len(ended) == 1
        assert not site.shared.open

    run(story, wait)


# --- other protocols ------------------------------------------------------------------------------


def test_many_offers_of_http2_are_declined_one_by_one() -> None:
    echo = Echo()

    async def story(site: Site) -> None:
        line = site.connect()
        await line.send((H2C + b"\r\n") * 2000)
        assert line.statuses == [200] * 2000
        assert b"upgrade" not in echo.headers[0]

    run(story, echo)


def test_a_declined_offer_keeps_its_body_and_its_end() -> None:
    echo = Echo()

    async def story(site: Site) -> None:
        line = site.connect()
        head = H2C.replace(b"upgrade\r\n", b"upgrade, close\r\n") + b"content-length: 3\r\n\r\n"
        await line.send(head + b"abc")
        assert echo.bodies == [b"abc"]
        assert line.closing

    run(story, echo)


@pytest.mark.parametrize("before", [b"", GET, GET * 3])
def test_what_a_websocket_says_early_is_for_whom_it_is_handed_to(before: bytes) -> None:
    heard = []

    class Ear(Sink):
        def data_received(self, data: bytes) -> None:
            heard.append(data)

    async def app(request: Request) -> Answer | Handover:
        await asyncio.sleep(1)
        if b"upgrade" in request.headers:
            return Handover(Ear(NoLogs(), 1e9), [], status=101)
        return await Echo()(request)

    async def story(site: Site) -> None:
        line = site.connect()
        ask = GET[:-2] + b"upgrade: websocket\r\nconnection: upgrade\r\n\r\n"
        await line.send(before + ask + b"early")
        line.receive(b" too")
        await line.settle()
        assert line.reading_paused
        await asyncio.sleep(10)
        assert line.statuses == [200] * (len(before) // len(GET)) + [101]
        assert heard == [b"early too"]
        assert not line.reading_paused

    run(story, app)


def test_a_websocket_that_is_refused_goes_on_with_what_follows() -> None:
    async def story(site: Site) -> None:
        line = site.connect()
        ask = GET[:-2] + b"upgrade: websocket\r\nconnection: upgrade\r\n\r\n"
        await line.send(GET + ask + GET + ask)
        await line.send(GET)
        assert line.statuses == [200] * 5

    run(story)


def test_few_requests_are_taken_in_ahead_of_their_turn() -> None:
    echo = Echo()
    echo.waiting = asyncio.Event()

    async def story(site: Site) -> None:
        line = site.connect()
        protocol = line.protocol
        await line.send(GET * 5000)
        assert len(protocol._queue) <= FEED_BYTES // len(GET) + 1
        assert line.reading_paused
        echo.waiting.set()
        await line.settle()
        assert line.statuses == [200] * 5000
        assert not line.reading_paused

    run(story, echo)


def frames_of(raw: bytes) -> list[tuple[int, int, bytes]]:
    found = []
    while raw:
        size = int.from_bytes(raw[:3], "big")
        found.append((raw[3], int.from_bytes(raw[5:9], "big"), raw[9 : 9 + size]))
        raw = raw[9 + size :]
    return found


@pytest.mark.parametrize("cut", [1, 7, 24, 30, 1000])
def test_who_speaks_http2_is_answered_in_it(cut: int) -> None:
    settings = b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64"
    headers = b"\x00\x00\x01\x01\x05\x00\x00\x00\x0d\x82"

    async def story(site: Site) -> None:
        line = site.connect()
        raw = PREFACE + settings + headers
        for at in range(0, len(raw), cut):
            await line.send(raw[at : at + cut])
        kinds = [(kind, stream) for kind, stream, _ in frames_of(line.heard)]
        assert kinds == [(4, 0), (1, 13), (0, 13), (7, 0)]
        *_, data, away = frames_of(line.heard)
        assert json.loads(data[2])["error"]["code"] == "http_version_not_supported"
        assert away[2] == b"\x00\x00\x00\x0d\x00\x00\x00\x0d"
        assert line.ended

    run(story)


# --- time -----------------------------------------------------------------------------------------

PATIENCE = Connections(head_s=10.0, body_s=20.0)


def test_a_connection_that_says_nothing_is_closed() -> None:
    async def story(site: Site) -> None:
        line = site.connect()
        await asyncio.sleep(9.9)
        assert not line.closing
        await asyncio.sleep(0.2)
        assert line.closing
        assert line.heard == b""
        assert not site.shared.open

    run(story, shared=PATIENCE)


def test_a_head_must_be_there_in_time_however_it_trickles() -> None:
    async def story(site: Site) -> None:
        line = site.connect()
        await line.send(GET)
        await asyncio.sleep(30)
        for byte in GET[:-1]:
            await line.send(bytes([byte]))
            await asyncio.sleep(1)
            if line.ended:
                break
        assert asyncio.get_running_loop().time() <= 41
        assert line.statuses == [200, 408]
        assert body_of(line)["error"]["code"] == "request_timeout"

    run(story, shared=PATIENCE)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_may_be_slow_but_not_stand_still(chunked: bool) -> None:
    async def story(site: Site) -> None:
        line = site.connect()
        await line.send(CHUNKED if chunked else POST + b"content-length: 10\r\n\r\n")
        for _ in range(5):
            await asyncio.sleep(19)
            await line.send(b"1\r\na\r\n" if chunked else b"a")
        assert not line.ended
        await asyncio.sleep(21)
        assert line.statuses == [408]
        assert line.ended

    run(story, shared=PATIENCE)


def test_extensions_of_chunks_are_no_progress() -> None:
    async def story(site: Site) -> None:
        line = site.connect()
        await line.send(CHUNKED + b"1;")
        for _ in range(25):
            await asyncio.sleep(1)
            await line.send(b"x")
        assert line.statuses == [408]

    run(story, shared=PATIENCE)


def test_an_answer_may_take_its_time() -> None:
    echo = Echo()
    echo.waiting = asyncio.Event()

    async def story(site: Site) -> None:
        line = site.connect()
        await line.send(GET + GET[:10])
        await asyncio.sleep(500)
        assert not line.ended
        echo.waiting.set()
        await line.settle()
        await line.send(GET[10:])
        assert line.statuses == [200, 200]

    run(story, echo, PATIENCE)


def test_an_application_that_does_not_read_is_no_fault_of_the_peer() -> None:
    async def slow(request: Request) -> Answer | Handover:
        await asyncio.sleep(100)
        return await Echo()(request)

    async def story(site: Site) -> None:
        line = site.connect()
        await line.send(POST + b"content-length: 200000\r\n\r\n" + b"a" * 100_000)
        await asyncio.sleep(105)
        await line.send(b"a" * 100_000)
        assert line.statuses == [200]

    run(story, slow, PATIENCE)


def test_what_is_left_of_a_body_that_nobody_wants_has_its_time() -> None:
    async def refuses(request: Request) -> Answer | Handover:
        return Answer(401, [])

    async def story(site: Site) -> None:
        line = site.connect()
        await line.send(POST + b"content-length: 1000\r\n\r\n")
        for _ in range(25):
            await asyncio.sleep(1)
            await line.send(b"a")
        assert line.statuses == [401]
        assert line.closing
        again = site.connect()
        await again.send(POST + b"content-length: 3\r\n\r\n")
        await again.send(b"abc" + GET)
        assert again.statuses == [401, 401]

    run(story, refuses, PATIENCE)


def test_an_early_answer_on_a_connection_that_ends_can_be_read() -> None:
    async def refuses(request: Request) -> Answer | Handover:
        return Answer(401, [])

    async def story(site: Site) -> None:
        for head in (POST + b"connection: close\r\n", b"POST / HTTP/1.0\r\n"):
            line = site.connect()
            await line.send(head + b"content-length: 100000\r\n\r\n" + b"a" * 1000)
            assert line.statuses == [401]
            assert line.ended
            assert not line.closing, "a close would take the answer back"
            await line.send(b"a" * 1000)
            assert not line.closing

    run(story, refuses)


def test_a_connection_that_always_begins_another_head_holds_only_that() -> None:
    async def story(site: Site) -> None:
        line = site.connect()
        large = GET[:-2] + b"x: " + b"a" * 12_000 + b"\r\n\r\n"
        await line.send(large[:20])
        for _ in range(50):
            await line.send(large[20:] + large[:20])
        assert line.statuses == [200] * 50
        assert site.shared.head_bytes <= len(large)

    run(story)


@pytest.mark.parametrize("upgrade", [b"h2c", b"websocket"])
def test_nothing_is_offered_or_expected_in_http_1_0(upgrade: bytes) -> None:
    seen = []

    async def app(request: Request) -> Answer | Handover:
        seen.append((request.is_http10, b"upgrade" in request.headers, request.expects))
        return Answer(200, [])

    async def story(site: Site) -> None:
        line = site.connect()
        offer = b"connection: upgrade\r\nupgrade: " + upgrade + b"\r\n"
        await line.send(b"GET / HTTP/1.0\r\n" + offer + b"expect: 100-continue\r\n\r\n")
        assert line.statuses == [200]
        assert b"connection: close" in line.heard
        assert seen == [(True, False, False)]

    run(story, app)


def test_the_last_answer_of_a_server_that_stops_says_so() -> None:
    echo = Echo()
    echo.waiting = asyncio.Event()

    async def story(site: Site) -> None:
        line = site.connect()
        await line.send(GET)
        site.shared.stopping = True
        echo.waiting.set()
        await line.settle()
        assert b"connection: close" in line.heard
        assert line.closing

    run(story, echo)


def test_an_idle_connection_keeps_its_own_time() -> None:
    async def story(site: Site) -> None:
        line = site.connect()
        await line.send(GET)
        await asyncio.sleep(KEEP_ALIVE_S - 1)
        await line.send(b"\r\n")
        assert not line.closing
        await asyncio.sleep(2)
        assert line.closing

    run(story, shared=PATIENCE)


def test_a_peer_that_takes_no_answers_is_given_up_by_the_system() -> None:
    """It would keep its connection for good: nothing that is closed is gone before it is taken."""

    async def story(site: Site) -> None:
        protocol = Connection(site.app, site.shared)
        line = Line()
        line.protocol = protocol
        with socket.socket() as peer:
            line.get_extra_info = {"socket": peer}.get  # type: ignore[assignment,method-assign]
            protocol.connection_made(line)
            timeout_ms = peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            assert timeout_ms == PEER_TIMEOUT_S * 1000

    run(story)


# --- room -----------------------------------------------------------------------------------------


def test_answers_that_nobody_takes_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has been behind for the longest goes first: readers that read get there before."""
    monkeypatch.setattr("headrace.web.unsent_answers.UNSENT_BYTES_MAX", 5000)

    async def answer(request: Request) -> Answer | Handover:
        return Answer(200, [], b"x" * 2000)

    async def story(site: Site) -> None:
        stuck, slow, large = [site.connect() for _ in range(3)]
        unsent = site.shared.unsent
        for line in (stuck, slow):
            line.stuck = True
            await line.send(GET)
        assert unsent.size_bytes == 4000
        slow.drain()
        assert unsent.size_bytes == 2000
        slow.stuck = large.stuck = True
        await slow.send(GET)
        assert not stuck.aborted
        await large.send(GET)
        assert (stuck.aborted, slow.aborted, large.aborted) == (True, False, False)
        assert unsent.size_bytes == 4000
        slow.close()
        large.drain()
        await large.settle()
        assert unsent.size_bytes == 0
        assert large.statuses == [200]

    run(story, answer)


def test_there_are_only_so_many_connections() -> None:
    async def story(site: Site) -> None:
        lines = [site.connect() for _ in range(5)]
        await lines[0].settle()
        assert [line.closing for line in lines] == [False] * 3 + [True] * 2
        assert lines[3].statuses == [503]
        assert body_of(lines[3])["error"]["code"] == "throttled"
        lines[0].close()
        await lines[0].settle()
        late = site.connect()
        await late.send(GET)
        assert late.statuses == [200]

    run(story, shared=Connections(count_max=3))


@pytest.mark.parametrize(
    ("descriptors", "room"), [(256, 96), (1024, 768), (20_000, 17_824), (8, 3), (1, 1)]
)
def test_connections_leave_room_for_files(descriptors: int, room: int) -> None:
    assert room_for_connections(descriptors) == room
    assert room + backlog(descriptors) < max(descriptors, 3)


def test_large_heads_are_bounded_together() -> None:
    async def story(site: Site) -> None:
        size = HEAD_BYTES_MAX - 3 * FEED_BYTES
        lines = []
        for _ in range(2 * HEADS_BYTES_MAX // size):
            lines.append(site.connect())
            await lines[-1].send(b"GET / HTTP/1.1\r\nx: " + b"a" * size)
        refused = [line for line in lines if line.statuses]
        assert {status for line in refused for status in line.statuses} == {503}
        assert len(lines) // 3 < len(refused) < len(lines)
        assert site.shared.head_bytes <= HEADS_BYTES_MAX + FEED_BYTES
        small = site.connect()
        await small.send(b"GET / HTTP/1.1\r\nhost: here\r\nx: " + b"a" * (HEAD_BYTES_FAIR // 2))
        await small.send(b"\r\n\r\n")
        assert small.statuses == [200]
        for line in lines:
            line.close()
        await small.settle()
        assert site.shared.head_bytes == 0

    run(story)


def test_an_idle_connection_keeps_nothing_of_its_last_request() -> None:
    class Kept(bytes):
        pass

    async def story(site: Site) -> None:
        line = site.connect()
        protocol = line.protocol
        large = b"x: " + b"a" * 100_000 + b"\r\n"
        await line.send(GET[:-2] + large + b"\r\n")
        assert line.statuses == [200]
        held = gc.get_referents(protocol, protocol.__dict__)
        assert not protocol._headers
        assert protocol._incoming is protocol.under_way is None
        assert not any(isinstance(one, bytes | bytearray) and len(one) > 100 for one in held)
        assert site.shared.head_bytes == 0

    run(story)


@pytest.mark.parametrize(
    "sent", [b"", GET[:9], GET, POST + b"content-length: 9\r\n\r\nab", GET * 9]
)
def test_a_connection_that_is_gone_is_free_without_the_collector(sent: bytes) -> None:
    async def story(site: Site) -> None:
        gc.collect()
        gc.disable()
        try:
            line = site.connect()
            protocol = weakref.ref(line.protocol)
            await line.send(sent)
            line.close()
            await line.settle()
            assert protocol() is None
        finally:
            gc.enable()

    run(story)
