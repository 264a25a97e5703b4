"""The same against a whole server: nothing fails, whatever a peer says to it."""

from __future__ import annotations

import re
import socket
import urllib.request
from collections.abc import Iterator
from random import Random

import pytest

from headrace_bench.process import ServerProcess

from .rawframes import make_frames
from .rawhttp import cut, make_stream

pytestmark = pytest.mark.system

TIMEOUT_S = 120.0
STREAMS = 150
SOCKETS = 40
STATUS = re.compile(rb"HTTP/1\.1 (\d\d\d) ")
HANDSHAKE = (
    b"GET /v0/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    env = {"TOPICS_ALLOWED_HOSTS": "here", "TOPICS_MAX_BODY_BYTES": "2000"}
    with ServerProcess(tmp_path_factory.mktemp("fuzz") / "data", env=env) as server:
        yield server


def say(server: ServerProcess, pieces: list[bytes], first: bytes = b"") -> bytes:
    """Send all, hang up, and hear what is left to hear; `first` is answered before the rest."""
    heard = b""
    with socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if first:
                peer.sendall(first)
                heard += peer.recv(1 << 16)
            for piece in pieces:
                peer.sendall(piece)
            peer.shutdown(socket.SHUT_WR)
            while data := peer.recv(1 << 16):
                heard += data
        except OSError:
            pass  # the server was first
    return heard


def fuzz(server: ServerProcess, seed: int, streams: int, sockets: int) -> None:
    random = Random(seed)
    for _ in range(streams):
        raw = make_stream(random)
        heard = say(server, cut(random, raw)[:200])
        assert b"500" not in STATUS.findall(heard), raw
    for _ in range(sockets):
        raw = make_frames(random)
        heard = say(server, cut(random, raw)[:200], HANDSHAKE)
        assert heard.startswith(b"HTTP/1.1 101 ")
        assert b'"code":"internal"' not in heard, raw
    with urllib.request.urlopen(f"{server.url}/v0/health", timeout=TIMEOUT_S) as response:
        assert response.status == 200
    assert "Traceback" not in server.output(), server.output()[-4000:]


def test_a_server_that_is_told_nonsense(server: ServerProcess) -> None:
    fuzz(server, 1, STREAMS, SOCKETS)


@pytest.mark.soak
def test_a_server_that_is_told_nonsense_for_long(
    server: ServerProcess, fresh_seeds: Iterator[int]
) -> None:
    for seed in fresh_seeds:
        fuzz(server, seed, STREAMS, SOCKETS)
