"""Connections that wait for the next call: the newest first, not too many, not for too long."""

from __future__ import annotations

from typing import Any, cast

from headrace.core.limits import (
    WEBHOOK_CONNECTION_S,
    WEBHOOK_IDLE_MAX,
    WEBHOOK_IDLE_PER_HOST_MAX,
    WEBHOOK_IDLE_S,
)
from headrace.delivery.connection_pool import ConnectionPool, HostKey, HttpConnection
from support.virtual import VirtualLoop

HERE: HostKey = ("https", "a.example", 443)


class Line:
    """Both ends of a connection that goes nowhere."""

    def __init__(self) -> None:
        self.closed = self.ended = False
        self.transport = self

    def is_closing(self) -> bool:
        return self.closed

    def at_eof(self) -> bool:
        return self.ended

    def abort(self) -> None:
        self.closed = True


def connection(loop: VirtualLoop) -> tuple[HttpConnection, Line]:
    line = Line()
    return HttpConnection(cast("Any", line), cast("Any", line), loop.time()), line


async def _wait(loop: VirtualLoop, seconds: float) -> None:
    done = loop.create_future()
    loop.call_later(seconds, done.set_result, None)
    await done


def play(script: Any) -> None:
    loop = VirtualLoop()
    loop.run(script(loop, ConnectionPool()))
    loop.close()


def test_the_one_that_was_used_last_comes_first() -> None:
    async def script(loop: VirtualLoop, pool: ConnectionPool) -> None:
        (one, _), (two, _) = connection(loop), connection(loop)
        pool.give(HERE, one)
        pool.give(HERE, two)
        assert pool.take(("http", "a.example", 443)) is None
        assert pool.take(HERE) is two
        assert pool.take(HERE) is one
        assert pool.take(HERE) is None
        assert len(pool) == 0

    play(script)


def test_one_that_ended_is_not_used() -> None:
    async def script(loop: VirtualLoop, pool: ConnectionPool) -> None:
        (good, _), (bad, line) = connection(loop), connection(loop)
        pool.give(HERE, good)
        pool.give(HERE, bad)
        line.ended = True
        assert pool.take(HERE) is good
        assert line.closed

    play(script)


def test_none_waits_for_long_nor_lives_for_long() -> None:
    async def script(loop: VirtualLoop, pool: ConnectionPool) -> None:
        one, line = connection(loop)
        pool.give(HERE, one)
        await _wait(loop, WEBHOOK_IDLE_S + 0.1)
        assert line.closed
        assert len(pool) == 0
        busy, line = connection(loop)
        for _ in range(int(WEBHOOK_CONNECTION_S / (WEBHOOK_IDLE_S - 1)) + 1):
            pool.give(HERE, busy)
            await _wait(loop, WEBHOOK_IDLE_S - 1)
            if (again := pool.take(HERE)) is None:
                break
            assert again is busy
        assert line.closed, "what its host means is looked at again"

    play(script)


def test_so_many_are_kept_and_no_more() -> None:
    async def script(loop: VirtualLoop, pool: ConnectionPool) -> None:
        for _ in range(WEBHOOK_IDLE_PER_HOST_MAX):
            pool.give(HERE, connection(loop)[0])
        one, line = connection(loop)
        pool.give(HERE, one)
        assert line.closed
        for number in range(WEBHOOK_IDLE_MAX):
            pool.give(("https", f"{number}.example", 443), connection(loop)[0])
        assert len(pool) == WEBHOOK_IDLE_MAX
        pool.close()
        assert len(pool) == 0

    play(script)
