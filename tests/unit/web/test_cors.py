"""Other origins: the listed ones are let in, the others are not, and caches can tell."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.web.cors import Cors


async def plain(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})
    await send({"type": "http.response.body", "body": b"{}"})


def call(cors: Cors, method: str, **headers: str) -> tuple[int, dict[str, str]]:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    asyncio.run(cors({"type": "http", "method": method, "headers": raw}, None, send))
    start = sent[0]
    return start["status"], {name.decode(): value.decode() for name, value in start["headers"]}


LISTED = Cors(plain, ("https://a.example", "https://b.example"))


def test_a_listed_origin_is_named() -> None:
    status, headers = call(LISTED, "GET", origin="https://b.example")
    assert (status, headers["a"]) == (200, "b")
    assert headers["access-control-allow-origin"] == "https://b.example"
    assert headers["vary"] == "origin"


@pytest.mark.parametrize("origin", [{}, {"origin": "https://evil.example"}, {"origin": "null"}])
def test_nobody_else_is(origin: dict[str, str]) -> None:
    _, headers = call(LISTED, "GET", **origin)
    assert "access-control-allow-origin" not in headers
    assert headers["vary"] == "origin"


def test_a_star_is_for_everybody_and_the_same_for_all() -> None:
    _, headers = call(Cors(plain, ("*",)), "GET", origin="https://any.example")
    assert headers["access-control-allow-origin"] == "*"
    assert "vary" not in headers


def test_a_browser_that_asks_first_gets_an_empty_answer() -> None:
    status, headers = call(
        LISTED,
        "OPTIONS",
        origin="https://a.example",
        access_control_request_method="POST",
        access_control_request_headers="authorization, content-type",
    )
    assert (status, headers["access-control-allow-origin"]) == (204, "https://a.example")
    assert headers["access-control-allow-headers"] == "authorization, content-type"
    assert "POST" in headers["access-control-allow-methods"]
    assert "a" not in headers
