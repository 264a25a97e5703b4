"""Requests for streams that do not go as they should: bodies that end early or never come, readers
that wait when the server stops.
"""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import closing

import pytest

from headrace.core.limits import HEAD_BYTES_MAX

from .launching import Servers, is_read_by_server, wait_until

pytestmark = pytest.mark.system

TIMEOUT_S = 120.0
HEAD = b"POST /v1/stream/s HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\n"
HALVES = {
    "length": b"content-length: 100\r\n\r\nhalf",
    "chunks": b"transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    "nothing yet": b"content-length: 4\r\n\r\n",
}


def ask(port: int, method: str, target: str, body: bytes | None = None) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)) as connection:
        connection.request(method, f"/v1/stream/{target}", body, {"content-type": "text/plain"})
        response = connection.getresponse()
        return response.status, response.read()


def test_half_a_body_is_not_appended(new_server: Servers) -> None:
    server = new_server().start()
    assert ask(server.port, "PUT", "s")[0] == 201
    for half in HALVES.values():
        with socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as client:
            client.sendall(HEAD + half)
            client.shutdown(socket.SHUT_WR)
            while client.recv(1 << 16):
                pass  # the server has heard the end of it
    assert ask(server.port, "POST", "s", b"whole")[0] == 200
    assert ask(server.port, "GET", "s?offset=-1") == (200, b"whole")


@pytest.mark.parametrize("half", HALVES.values(), ids=HALVES)
def test_a_body_that_does_not_come_is_not_waited_for(new_server: Servers, half: bytes) -> None:
    server = new_server(STREAMS_REQUEST_TIMEOUT_MS="300").start()
    wait_until(lambda: ask(server.port, "PUT", "s")[0] in (200, 201), "a stream, made in time")
    with socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as client:
        client.sendall(HEAD + half)
        response = http.client.HTTPResponse(client)
        response.begin()
        assert response.status == 408
        error = json.loads(response.read())["error"]
    assert error == {"code": "request_timeout", "message": "request timed out"}
    wait_until(lambda: ask(server.port, "GET", "s?offset=-1") == (200, b""), "an empty stream")


@pytest.mark.parametrize(
    ("head", "status", "code"),
    [
        # No more than it takes: a server that closes with bytes unread takes its answer back.
        (b"GET / HTTP/1.1\r\nx: " + b"x" * HEAD_BYTES_MAX, 431, "head_too_large"),
        (b"GET / HTTP/1.1\r\n" + b"x: yz\r\n" * (HEAD_BYTES_MAX // 7), 431, "head_too_large"),
        (b"GET /" + b"x" * HEAD_BYTES_MAX, 431, "head_too_large"),
        (b"nonsense\r\n\r\n", 400, "bad_request"),
    ],
    ids=["a long header", "many headers", "a long path", "nonsense"],
)
def test_what_never_becomes_a_request(
    new_server: Servers, head: bytes, status: int, code: str
) -> None:
    server = new_server().start()
    with socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as client:
        client.sendall(head)
        response = http.client.HTTPResponse(client)
        response.begin()
        assert response.status == status
        assert json.loads(response.read())["error"]["code"] == code


def test_whoever_waits_is_answered_when_the_server_stops(new_server: Servers) -> None:
    server = new_server(STREAMS_REQUEST_TIMEOUT_MS="600000").start()
    assert ask(server.port, "PUT", "s", b"x")[0] == 201
    waiting = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_S)
    follower = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_S)
    with closing(waiting), closing(follower):
        waiting.request("GET", "/v1/stream/s?offset=now&live=long-poll")
        sock = waiting.sock
        wait_until(lambda: is_read_by_server(sock), "the server to read a request")
        follower.request("GET", "/v1/stream/s?offset=-1&live=sse")
        told = follower.getresponse()
        assert server.stop() == 0
        answer = waiting.getresponse()
        assert (answer.status, answer.getheader("stream-up-to-date")) == (204, "true")
        assert b"event: data\ndata:x\n\nevent: control\n" in told.read()
