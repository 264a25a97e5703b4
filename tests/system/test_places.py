"""Places are limited, and given back however a connection or a request ends."""

from __future__ import annotations

import base64
import socket
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

import pytest

from headrace_bench.process import ServerProcess

from .launching import Servers, wait_until
from .watching import TIMEOUT_S, call

pytestmark = pytest.mark.system

ROUNDS = 3
"""More than there are places: one that is lost would be missed."""
PLACES = 2
KEY = "secret"
AUTH = {"Authorization": f"Bearer {KEY}"}

_UPGRADE = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: " + base64.b64encode(b"0123456789abcdef").decode(),
)


class Way(NamedTuple):
    """A request that takes a place."""

    path: str
    lines: tuple[str, ...]
    status: bytes


def request(way: Way) -> bytes:
    lines = (f"GET {way.path} HTTP/1.1", "Host: test", f"Authorization: Bearer {KEY}", *way.lines)
    return "\r\n".join([*lines, "", ""]).encode()


def connect(server: ServerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S)


def opened(server: ServerProcess, way: Way) -> socket.socket:
    """A connection that has its place."""
    peer = connect(server)
    peer.sendall(request(way))
    head = peer.recv(1 << 16)
    assert head.startswith(b"HTTP/1.1 " + way.status), head
    return peer


def reset(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    peer.close()


def held(server: ServerProcess) -> int:
    status, metrics = call(server.port, "GET", "/v0/metrics", Accept="application/json", **AUTH)
    assert status == 200
    return int(metrics["topics_sse_connections"])


def closes(server: ServerProcess, way: Way) -> None:
    opened(server, way).close()


def resets(server: ServerProcess, way: Way) -> None:
    reset(opened(server, way))


def resets_unread(server: ServerProcess, way: Way) -> None:
    """Gone before the answer could be sent."""
    peer = connect(server)
    peer.sendall(request(way))
    reset(peer)


def speaks_no_more(server: ServerProcess, way: Way) -> None:
    """Half closed: it still reads, and we hang up."""
    with opened(server, way) as peer:
        peer.shutdown(socket.SHUT_WR)
        while peer.recv(1 << 16):
            pass


def breaks_off(server: ServerProcess, way: Way) -> None:
    """Never says all of its request."""
    with connect(server) as peer:
        peer.sendall(request(way)[:-2])


def talks_nonsense(server: ServerProcess, way: Way) -> None:
    """A stream does not listen, and a socket does not understand: both end, here or there."""
    with opened(server, way) as peer:
        peer.sendall(b"\xff" * 64)


ENDINGS: list[Callable[[ServerProcess, Way], None]] = [
    closes, resets, resets_unread, speaks_no_more, breaks_off, talks_nonsense,
]  # fmt: skip


@pytest.fixture
def server(new_server: Servers) -> ServerProcess:
    server = new_server(
        TOPICS_API_KEYS=KEY,
        TOPICS_MAX_SSE_CONNECTIONS_PER_KEY=str(PLACES),
        TOPICS_MAX_INFLIGHT_PER_KEY="1",
    ).start()
    status, _ = call(server.port, "PUT", "/v0/topics/q", {"type": "queue"}, **AUTH)
    assert status == 201
    return server


def ways(server: ServerProcess) -> list[Way]:
    _, session = call(server.port, "POST", "/v0/watch", {"topics": {"q": {}}}, **AUTH)
    return [
        Way(session["stream_url"], (), b"200"),
        Way("/v0/topics/q/work?node=w", (), b"200"),
        Way("/v0/ws", _UPGRADE, b"101"),
    ]


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.__name__)
def test_a_place_is_free_however_its_connection_ends(
    server: ServerProcess, ending: Callable[[ServerProcess, Way], None]
) -> None:
    for way in ways(server):
        for _ in range(ROUNDS):
            ending(server, way)
            wait_until(lambda: held(server) == 0, f"the place of {way.path}")
        opened(server, way).close()
        wait_until(lambda: held(server) == 0, "the last place")


def test_a_place_is_free_when_the_server_ends_a_stream(server: ServerProcess) -> None:
    def drop() -> None:
        assert call(server.port, "DELETE", "/v0/topics/q", **AUTH)[0] == 200
        assert call(server.port, "PUT", "/v0/topics/q", {"type": "queue"}, **AUTH)[0] == 201

    for _ in range(ROUNDS):
        watching, working, _ = ways(server)
        peers = [opened(server, way) for way in (watching, working)]
        assert held(server) == PLACES
        drop()
        wait_until(lambda: held(server) == 0, "both places")
        for peer in peers:
            peer.close()


def test_who_has_gone_does_not_keep_a_place_among_requests(server: ServerProcess) -> None:
    """A long poll of somebody who hung up would else hold it for half a minute."""
    body = b'{"wait_ms": 30000}'
    lines = (
        "POST /v0/topics/q/diff HTTP/1.1", "Host: test", f"Authorization: Bearer {KEY}",
        "Content-Type: application/json", f"Content-Length: {len(body)}", "", "",
    )  # fmt: skip

    def status() -> int:
        return call(server.port, "GET", "/v0/topics/q", **AUTH)[0]

    for hang_up in (reset, socket.socket.close):
        began = monotonic()
        peer = connect(server)
        peer.sendall("\r\n".join(lines).encode() + body)
        wait_until(lambda: status() == 429, "the poll")
        hang_up(peer)
        wait_until(lambda: status() == 200, "its place")
        assert monotonic() - began < 25, "only when the poll was over"
