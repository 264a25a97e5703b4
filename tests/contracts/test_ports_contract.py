"""What the engine may expect of a clock, of ids and of a pool."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from headrace.engine.ports import Clock, Ids, Pool, RandomIds, SystemClock, ThreadPool
from support.inline_ports import CountedIds, Inline
from support.virtual import VirtualClock, VirtualLoop


@pytest.fixture(params=["system", "virtual"])
def clock(request: pytest.FixtureRequest) -> Iterator[Clock]:
    loop = VirtualLoop()
    yield SystemClock() if request.param == "system" else VirtualClock(loop)
    loop.close()


def test_a_clock_tells_milliseconds_of_this_age(clock: Clock) -> None:
    now_ms = clock.now_ms()
    assert type(now_ms) is int
    assert 1_600_000_000_000 < now_ms < 4_000_000_000_000
    assert clock.now_ms() >= now_ms


def test_a_virtual_clock_moves_with_its_loop() -> None:
    loop = VirtualLoop()
    clock = VirtualClock(loop)
    before_ms = clock.now_ms()
    loop.run(asyncio.sleep(90))
    assert clock.now_ms() == before_ms + 90_000
    loop.close()


@pytest.mark.parametrize("ids", [RandomIds(), CountedIds()])
def test_ids_are_short_names_and_never_the_same(ids: Ids) -> None:
    tokens = [ids.token() for _ in range(1000)]
    assert len(set(tokens)) == 1000
    assert all(token.isalnum() and 1 <= len(token) <= 32 for token in tokens)


@pytest.fixture(params=["threads", "inline"])
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    if request.param == "inline":
        yield Inline()
        return
    threads = ThreadPool()
    yield threads
    threads.close()


def test_a_pool_returns_what_the_work_returns(pool: Pool) -> None:
    async def work() -> list[int]:
        return list(await asyncio.gather(*(pool.run(pow, n, exp=2) for n in range(20))))

    assert asyncio.run(work()) == [n * n for n in range(20)]


def test_a_pool_raises_what_the_work_raises(pool: Pool) -> None:
    with pytest.raises(ZeroDivisionError):
        asyncio.run(pool.run(divmod, 1, 0))
