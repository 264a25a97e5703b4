"""What one key may hold: counted by who made it, across restarts, however it was made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from headrace.core.config import Kind, LogConfig
from headrace.core.entry import Create, Following, Route
from headrace.core.errors import Code, Refused
from headrace.core.inbound_route import InboundRoute, Rule
from headrace.core.log import Log
from headrace.core.record import draft
from headrace.core.state import State, apply
from headrace.core.stream_rules import Spec
from headrace.core.subscription import WEBHOOK
from headrace.core.transaction import Caller, Chunk
from headrace.engine.caps import Caps, KeyCaps
from headrace.engine.engine import Engine
from headrace.engine.routers.control import RouterPlan
from headrace.engine.start import stop
from headrace.engine.timings import Timings
from support.engine_harness import boot, small
from support.hostile import HostileDisk
from support.virtual import VirtualClock, VirtualLoop

CAPS = Caps(
    per_key=KeyCaps({"topics": 2, "streams": 2, "subscriptions": 2}, routers=2), tail_bytes=600
)
Make = Callable[[Engine, str, str], Coroutine[Any, Any, Any]]


def put(engine: Engine, name: str, key: str) -> Coroutine[Any, Any, Any]:
    return engine.logs.put(name, "topics", LogConfig(), key)


def append(engine: Engine, name: str, key: str) -> Coroutine[Any, Any, Any]:
    return engine.appender.append(
        name, draft([b"1"]), owner="topics", create=LogConfig(), created_by=key
    )


async def commit(engine: Engine, name: str, key: str) -> None:
    by, transactions = Caller(key), engine.transactions
    await transactions.stage(f"{key}-{name}", 0, "0-0-0", Chunk(name, draft([b"1"])), by)
    await transactions.commit(
        f"{key}-{name}", 0, ["0-0-0"], owner="topics", create=LogConfig(), by=by
    )


def create(engine: Engine, name: str, key: str) -> Coroutine[Any, Any, Any]:
    return engine.streams.create(name, Spec(content_type="text/plain"), None, key)


def subscribe(engine: Engine, name: str, key: str) -> Coroutine[Any, Any, Any]:
    following = Following(WEBHOOK, "a", [], "https://x", None, 1000, None, "", 0)
    return engine.subscriptions.put(name, following, key)


def route(engine: Engine, name: str, key: str) -> Coroutine[Any, Any, Any]:
    return engine.routers.put(
        name, RouterPlan("source", f"to-{name}", Rule()), "topics", created_by=key
    )


async def drop(engine: Engine, make: Make, name: str) -> None:
    if make in (put, append, commit):
        await engine.logs.drop(name, if_empty=False)
    elif make is create:
        await engine.streams.delete(name)
    elif make is subscribe:
        await engine.subscriptions.delete(name)
    else:
        await engine.routers.delete(name)


@asynccontextmanager
async def engine_on(disk: HostileDisk, caps: Caps = CAPS) -> AsyncIterator[Engine]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    started = await boot(disk, VirtualClock(loop), caps=caps)
    try:
        yield started.engine
    finally:
        await stop(started)
        disk.world.locked.clear()


def run(story: Coroutine[Any, Any, None]) -> None:
    loop = VirtualLoop()
    with small():
        loop.run(story)
    loop.close()


async def refused(making: Coroutine[Any, Any, Any]) -> object:
    with pytest.raises(Refused) as refusal:
        await making
    assert refusal.value.code is Code.THROTTLED
    return refusal.value.detail


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (put, "topics"),
        (append, "topics"),
        (commit, "topics"),
        (create, "streams"),
        (subscribe, "subscriptions"),
        (route, "routers"),
    ],
)
def test_a_key_makes_so_many_and_no_more(make: Make, what: str) -> None:
    async def story() -> None:
        disk = HostileDisk()
        async with engine_on(disk) as engine:
            if make is route:  # what a router makes is counted, too
                for name in ("source", "to-a", "to-b", "to-c", "to-other", "to-d"):
                    await put(engine, name, "")
            await make(engine, "a", "key")
            await make(engine, "b", "key")
            detail = await refused(make(engine, "c", "key"))
            assert detail == {"limit": f"max_{what}_per_key", "max": 2}
            await make(engine, "other", "another")
            await make(engine, "a", "another")  # it is there: nobody makes it
        async with engine_on(disk) as engine:
            await refused(make(engine, "c", "key"))
            await drop(engine, make, "a")
            await make(engine, "c", "key")
            await refused(make(engine, "d", "key"))

    run(story())


def test_without_caps_nobody_is_told_apart() -> None:
    async def story() -> None:
        async with engine_on(HostileDisk(), Caps(tail_bytes=600)) as engine:
            for number in range(5):
                await put(engine, f"t{number}", "local")

    run(story())


def test_a_router_counts_for_the_topics_it_makes() -> None:
    async def story() -> None:
        async with engine_on(HostileDisk()) as engine:
            await put(engine, "a", "key")
            assert await refused(route(engine, "r", "key")) == {
                "limit": "max_topics_per_key",
                "max": 2,
            }
            await engine.routers.put("r", RouterPlan("a", "b", Rule()), "topics", created_by="key")
            assert engine.state.created["topics", "key"] == 2

    run(story())


def test_a_router_that_leads_elsewhere_stays_whose_it_was() -> None:
    async def story() -> None:
        async with engine_on(HostileDisk()) as engine:
            for name in "abcd":
                await put(engine, name, "")
            for dest in "bcd":
                plan = RouterPlan("a", dest, Rule())
                await engine.routers.put(
                    "r", plan, "topics", created_by="key" if dest == "b" else "boss"
                )
            assert engine.routers._created == {"key": 1}
            await engine.routers.put(
                "r", RouterPlan("a", "d", Rule(keep_tag=False)), "topics", created_by="boss"
            )
            assert engine.routers._created == {"key": 1}
            await engine.logs.drop("d", if_empty=False)
            assert engine.routers._created == {}

    run(story())


def test_dead_letters_are_made_for_who_made_the_queue() -> None:
    async def story() -> None:
        async with engine_on(HostileDisk()) as engine:
            config = LogConfig(kind=Kind.QUEUE, max_deliveries=1, dead_letter="dead")
            await engine.logs.put("q", "topics", config, "key")
            await append(engine, "q", "whoever")
            claimed = await engine.queues.claim("q", "node", 1, 1000, Timings())
            assert len(claimed.jobs) == 1
            await asyncio.sleep(2)
            await engine.queues.claim("q", "node", 1, 1000, Timings())
            assert engine.state.by_name["dead"].created_by == "key"

    run(story())


def test_what_was_written_before_keys_were_noted_is_still_read() -> None:
    def older(value: Any, *, without: int = 1) -> bytes:
        fields = msgspec.msgpack.decode(msgspec.msgpack.encode(value))
        return msgspec.msgpack.encode(fields[:-without])

    created = Create(1, "a", "topics", LogConfig(), 0, 8, "key")
    decoded = msgspec.msgpack.decode(older(created), type=Create)
    assert decoded == msgspec.structs.replace(created, created_by="")
    router = Route(1, "r", 2, Rule(), 3, 4, "key")
    assert msgspec.msgpack.decode(older(router), type=Route).created_by == ""
    assert (
        msgspec.msgpack.decode(
            older(InboundRoute(2, Rule(), 3, 4, "key")), type=InboundRoute
        ).cursor
        == 3
    )
    state = State()
    apply(state, created)
    behind = len(Log.__struct_fields__) - Log.__struct_fields__.index("created_by")
    log = msgspec.msgpack.decode(older(state.logs[1], without=behind), type=Log)
    assert (log.name, log.created_by) == ("a", "")
