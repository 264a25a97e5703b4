"""Requests for streams that do not go as they should: bodies that end early or never come."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import closing

import pytest
from launching import Servers

pytestmark = pytest.mark.system

TIMEOUT_S = 30.0
HEAD = b"POST /v1/stream/s HTTP/1.1\r\nhost: here\r\ncontent-type: text/plain\r\n"
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
    assert ask(server.port, "PUT", "s")[0] == 201
    with socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as client:
        client.sendall(HEAD + half)
        response = http.client.HTTPResponse(client)
        response.begin()
        assert response.status == 408
        error = json.loads(response.read())["error"]
    assert error == {"code": "request_timeout", "message": "request timed out"}
    assert ask(server.port, "GET", "s?offset=-1") == (200, b"")
