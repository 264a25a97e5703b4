"""What a follower says while nothing comes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import NoReturn

import pytest

from headrace.client.feeds import AsyncFeed, FollowPolicy
from headrace.client.feeds.driver import FeedDriver
from headrace.client.feeds.requests import FeedRequest
from headrace.client.feeds.session import FeedSession
from headrace.client.http_address import HttpAddress
from headrace.client.kept_connection import KeptConnection

AT_ONCE = FollowPolicy(pause_s=0)
URL = "http://127.0.0.1:4000"


def test_a_server_that_is_not_there_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    tries = 0

    async def run() -> None:
        thrice = asyncio.Event()

        async def connect() -> NoReturn:
            nonlocal tries
            tries += 1
            if tries == 3:
                thrice.set()
            raise ConnectionRefusedError("nobody listens")

        async with AsyncFeed(URL, "acme", policy=AT_ONCE, connect=connect) as feed:
            await thrice.wait()
            assert feed.problem == "nobody listens"

    asyncio.run(run())
    assert [(each.levelno, each.getMessage()) for each in caplog.records] == [
        (
            logging.WARNING,
            "no events of acme from 127.0.0.1:4000: nobody listens; it is tried again",
        )
    ]


class NoHints:
    """A call that ends before it is confirmed."""

    problem = "UNAVAILABLE: nobody listens"

    async def follow(self) -> AsyncIterator[tuple[str, int]]:
        return
        yield

    async def beat(self) -> None:
        pass


def test_hints_that_cannot_be_had_are_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        calls = 0

        async def connect() -> NoReturn:
            await asyncio.Event().wait()
            raise AssertionError

        def call_hints() -> NoHints:
            nonlocal calls
            calls += 1
            if calls == 3:
                driver.stop()
            return NoHints()

        server = HttpAddress.parse(URL)
        session = FeedSession(0, AT_ONCE, lambda: 1.0, with_hints=True)
        connection = KeptConnection(server, connect, "test")
        request = FeedRequest(server=server, tenant="acme")
        driver = FeedDriver(session, request, connection, call_hints)
        await driver.run()

    asyncio.run(run())
    assert [each.getMessage() for each in caplog.records] == [
        "no hints for acme: UNAVAILABLE: nobody listens; events come all the same"
    ]
