"""WebSockets of a real server, spoken to by a client of others."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from headrace_bench.process import ServerProcess

from .launching import Servers, wait_until
from .watching import append, ask, call

pytestmark = pytest.mark.system

TIMEOUT_S = 120.0


@pytest.fixture
def server(new_server: Servers) -> ServerProcess:
    return new_server().start()


@contextmanager
def open_socket(port: int, **options: Any) -> Iterator[ClientConnection]:
    url = f"ws://127.0.0.1:{port}/v0/ws"
    with connect(
        url, max_size=None, open_timeout=TIMEOUT_S, ping_timeout=TIMEOUT_S, **options
    ) as client:
        yield client


def say(client: ClientConnection, **command: Any) -> None:
    client.send(json.dumps(command))


def hear(client: ClientConnection, op: str) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(client.recv(TIMEOUT_S))
    assert message["op"] == op, message
    return message


def test_many_rooms_of_many_talkers(server: ServerProcess) -> None:
    """Everybody hears the others, each once and in order, and never himself."""
    port, talkers, words = server.port, 12, 40
    ask(port, "PUT", "/v0/topics/room", {"durability": "ephemeral"})

    def talk(number: int) -> list[tuple[int, int]]:
        heard: list[tuple[int, int]] = []
        acks = 0
        with open_socket(port) as client:
            say(client, op="subscribe", topic="room", node=f"n{number}")
            hear(client, "subscribed")
            for word in range(words):
                record = {"node": f"n{number}", "data": [number, word]}
                say(client, op="publish", topic="room", return_seqs=False, records=[record])
            while len(heard) < (talkers - 1) * words or acks < words:
                message = json.loads(client.recv(TIMEOUT_S))
                if message["op"] == "ack":
                    acks += 1
                elif message["op"] == "record":
                    heard += [tuple(record["data"]) for record in message["records"]]
        return heard

    with ThreadPoolExecutor(talkers) as pool:
        for number, heard in enumerate(pool.map(talk, range(talkers))):
            assert len(heard) == len(set(heard))
            for other in range(talkers):
                said = [word for talker, word in heard if talker == other]
                assert said == ([] if other == number else list(range(words)))


def test_publications_in_flight_survive_their_sender(server: ServerProcess) -> None:
    ask(server.port, "PUT", "/v0/topics/t", {"durable": True})
    with open_socket(server.port) as client:
        for number in range(200):
            say(client, op="publish", topic="t", records=[{"data": number}])
        hear(client, "ack")
    state = partial(ask, server.port, "GET", "/v0/topics/t")
    wait_until(lambda: state()["head_seq"] == 200, "all publications")


def test_a_large_message_is_refused_and_the_next_one_is_not(new_server: Servers) -> None:
    server = new_server(TOPICS_MAX_BODY_BYTES="100000").start()
    with open_socket(server.port) as client:
        say(client, op="publish", topic="t", records=[{"data": "x" * 300_000}])
        error = hear(client, "error")
        assert error["code"] == "payload_too_large"
        client.send(b"\x00\xff")
        assert hear(client, "error")["code"] == "invalid_request"
        client.send(["frag", "ments"])
        assert hear(client, "error")["code"] == "invalid_request"
        say(client, op="publish", topic="t", records=[{"data": "x" * 90_000}])
        assert hear(client, "ack")["seqs"] == [1]


def test_a_key_with_odd_characters_travels_as_a_subprotocol(new_server: Servers) -> None:
    server = new_server(TOPICS_API_KEYS="s/e=c@r;e(t").start()
    packed = base64.urlsafe_b64encode(b"s/e=c@r;e(t").decode().rstrip("=")
    with open_socket(server.port, subprotocols=["bearer", f"base64url.{packed}"]) as client:
        assert client.subprotocol == "bearer"
        say(client, op="ping", request_id=[1])
        assert hear(client, "pong")["request_id"] == [1]
    with pytest.raises(InvalidStatus) as refusal, open_socket(server.port):
        pass
    assert refusal.value.response.status_code == 401


def test_without_keys_a_page_from_elsewhere_gets_no_socket(new_server: Servers) -> None:
    server = new_server(TOPICS_CORS_ORIGINS="https://app.example").start()
    own = f"http://127.0.0.1:{server.port}"
    for origin in (own, "https://app.example"):
        with open_socket(server.port, origin=origin) as client:
            say(client, op="ping")
            hear(client, "pong")
    with (
        pytest.raises(InvalidStatus) as refusal,
        open_socket(server.port, origin="https://evil.example"),
    ):
        pass
    assert refusal.value.response.status_code == 403


def test_a_stop_says_goodbye_to_sockets(server: ServerProcess) -> None:
    with open_socket(server.port) as client:
        say(client, op="ping")
        hear(client, "pong")
        assert server.stop() == 0
        assert hear(client, "error")["code"] == "shutting_down"
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(TIMEOUT_S)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001


def test_an_offer_of_another_protocol_does_not_cost_the_body(server: ServerProcess) -> None:
    """Clients of other languages offer HTTP/2 with their first request."""
    offer = {
        "Connection": "Upgrade, HTTP2-Settings",
        "Upgrade": "h2c",
        "HTTP2-Settings": "AAMAAABk",
    }
    body = {"records": [{"data": "x" * 100_000}]}
    for seq in (1, 2):
        status, reply = call(server.port, "POST", "/v0/topics/t", body, **offer)
        assert (status in (200, 201), reply["seqs"]) == (True, [seq])
    append(server.port, "t", 3)


def test_this_is_not_a_proxy(server: ServerProcess) -> None:
    with socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as client:
        client.sendall(b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 400 ")
    append(server.port, "t", 1)
