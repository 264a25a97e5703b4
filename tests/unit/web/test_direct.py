"""The way past Falcon: what it takes, what it leaves, and what a bug looks like on it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import falcon.asgi
import msgspec
import pytest

from headrace.core.errors import Refused
from headrace.surfaces.topics.errors import refusals
from headrace.web.answers import Answer
from headrace.web.direct import Direct, DirectRequest


async def elsewhere(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "elsewhere"})


async def broken(req: Any, resp: Any, name: str) -> None:
    raise KeyError(name)


async def in_pieces(req: Any, resp: Any, name: str) -> None:
    Answer(200, [("x-a", "b")], [b"ab", b"", b"cde"]).send(resp)


def ask(method: str, path: str) -> list[Mapping[str, Any]]:
    sent: list[Mapping[str, Any]] = []

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}
    routes = {"": broken, "/pieces": in_pieces}
    direct = Direct(elsewhere, "/v0/topics/", routes, refusals)  # type: ignore[arg-type]
    asyncio.run(direct(scope, None, send))
    return sent


def test_only_its_own_routes_are_taken() -> None:
    for method, path in (
        ("GET", "/v0/topics/a"),
        ("POST", "/v0/topics/a/"),
        ("POST", "/v0/topics/a/diff"),
        ("POST", "/v0/routers/a"),
    ):
        assert ask(method, path) == [{"type": "elsewhere"}]


def test_pieces_are_sent_as_they_are_under_the_length_of_all() -> None:
    start, *bodies = ask("POST", "/v0/topics/a/pieces")
    assert (b"content-length", b"5") in start["headers"]
    assert [body["body"] for body in bodies] == [b"ab", b"", b"cde"]
    assert [body.get("more_body", False) for body in bodies] == [True, True, False]


def test_who_takes_no_pieces_gets_them_joined() -> None:
    response = falcon.asgi.Response()
    Answer(200, [], [b"ab", b"cde"]).send(response)
    assert response.data == b"abcde"


def test_a_bug_gets_the_envelope() -> None:
    start, body = ask("POST", "/v0/topics/a")
    assert start["status"] == 500
    assert msgspec.json.decode(body["body"])["error"]["code"] == "internal"


def test_a_body_in_pieces_is_read_as_far_as_needed() -> None:
    pieces = [b"ab", b"cd", b"ef"]

    async def receive() -> Mapping[str, Any]:
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    request = DirectRequest({"headers": [], "query_string": b"a=1&a=2&b=%20"}, receive)
    assert asyncio.run(request.read(100)) == b"abcdef"
    assert (request.get_param("a"), request.get_param("b"), request.get_param("c")) == (
        "2",
        " ",
        None,
    )
    pieces[:] = [b"ab", b"cd", b"ef"]
    assert asyncio.run(request.read(3)) == b"abcd"


@pytest.mark.parametrize("pieces", [[], [b"ab"], [b"ab", b"cd"]], ids=len)
def test_half_a_body_is_none(pieces: list[bytes]) -> None:
    events: list[Mapping[str, Any]] = [
        {"type": "http.request", "body": piece, "more_body": True} for piece in pieces
    ]
    events.append({"type": "http.disconnect"})

    async def receive() -> Mapping[str, Any]:
        return events.pop(0)

    with pytest.raises(Refused, match="cut short"):
        asyncio.run(DirectRequest({"headers": [], "query_string": b""}, receive).read(100))
