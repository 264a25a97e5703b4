"""Names of logs have owners: nobody else makes a log of such a name, however it would be made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace.core.config import Kind, LogConfig
from headrace.core.errors import Code, Refused
from headrace.core.inbound_route import Rule
from headrace.core.owners import FEEDS, RESERVED, STREAMS, TOPICS, check_name
from headrace.core.record import draft
from headrace.core.stream_rules import Spec
from headrace.core.transaction import Chunk
from headrace.engine.engine import Engine
from headrace.engine.routers.control import RouterPlan
from headrace.engine.start import stop
from support.engine_harness import boot, small, view
from support.hostile import HostileDisk
from support.virtual import VirtualClock, VirtualLoop

JSON = Spec(content_type="application/json")
Make = Callable[[Engine, str], Coroutine[Any, Any, Any]]


def put(engine: Engine, name: str) -> Coroutine[Any, Any, Any]:
    return engine.logs.put(name, TOPICS, LogConfig())


def append(engine: Engine, name: str) -> Coroutine[Any, Any, Any]:
    return engine.appender.append(name, draft([b"1"]), owner=TOPICS, create=LogConfig())


def create(engine: Engine, name: str) -> Coroutine[Any, Any, Any]:
    return engine.streams.create(name, JSON, None)


async def commit(engine: Engine, name: str) -> None:
    await engine.transactions.stage("t", 0, "0-0-0", Chunk(name, draft([b"1"])))
    await engine.transactions.commit("t", 0, ["0-0-0"], owner=TOPICS, create=LogConfig())


def route_to(engine: Engine, name: str) -> Coroutine[Any, Any, Any]:
    return engine.routers.put("r", RouterPlan("a", name, Rule()), TOPICS)


def route_from(engine: Engine, name: str) -> Coroutine[Any, Any, Any]:
    return engine.routers.put("r", RouterPlan(name, "a", Rule()), TOPICS)


def queue(engine: Engine, name: str) -> Coroutine[Any, Any, Any]:
    return engine.logs.put("q", TOPICS, LogConfig(kind=Kind.QUEUE, dead_letter=name))


async def queue_later(engine: Engine, name: str) -> None:
    await engine.logs.put("a", TOPICS, LogConfig(kind=Kind.QUEUE))
    await engine.logs.put("a", TOPICS, LogConfig(kind=Kind.QUEUE, dead_letter=name))


@asynccontextmanager
async def engine_on(disk: HostileDisk) -> AsyncIterator[Engine]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    started = await boot(disk, VirtualClock(loop))
    try:
        yield started.engine
    finally:
        await stop(started)


@pytest.mark.parametrize("prefix", RESERVED)
@pytest.mark.parametrize(
    "make", [put, append, create, commit, route_to, route_from, queue, queue_later]
)
def test_names_of_others_are_not_to_be_had(make: Make, prefix: str, loop: VirtualLoop) -> None:
    async def script() -> None:
        async with engine_on(HostileDisk()) as engine:
            with pytest.raises(Refused, match=f"begin with {prefix} are reserved") as caught:
                await make(engine, f"{prefix}x")
            assert caught.value.code is Code.INVALID
            assert set(engine.state.by_name) <= {"a"}

    with small():
        loop.run_until_complete(script())


def test_an_owner_gives_its_own_names() -> None:
    for prefix, owner in RESERVED.items():
        check_name(f"{prefix}x", owner)
    for owner in (TOPICS, STREAMS):
        check_name("feeds", owner)
        check_name("a:feed:x", owner)


@pytest.mark.parametrize("owner", [TOPICS, FEEDS])
def test_a_log_that_is_there_stays_what_it_was(
    owner: str, loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made before its name was reserved: who made it goes on with it."""

    async def script() -> None:
        async with engine_on(HostileDisk()) as engine:
            with monkeypatch.context() as before:
                before.setattr("headrace.core.state.check_name", lambda name, owner: None)
                await engine.logs.put("feed:x", owner, LogConfig())
            if owner == TOPICS:
                await append(engine, "feed:x")
                await put(engine, "feed:x")
                await queue(engine, "feed:x")
                assert (await view(engine, "feed:x")).head == 1
            else:
                with pytest.raises(Refused, match="one of the feeds"):
                    await append(engine, "feed:x")
                assert (await view(engine, "feed:x")).head == 0

    with small():
        loop.run_until_complete(script())
