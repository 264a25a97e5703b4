"""Nobody is told of a version, or of a namespace, before it is on stable storage: not even those
who did not make it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from headrace.core.errors import Code, Refused
from headrace.engine.upkeep.cycle import UpkeepPace
from support.flag_streams import FlagsSite, answered, events, flag, run, settled, told
from support.manifests import upload
from support.searchworld import NEVER

SLOW_S = 5.0
SPACE = "/api/v1/tenants/acme/namespaces/billing"
STAR = "Kg"
BEFORE = {"flags/a.toml": flag(note="before"), "flags/old.toml": flag()}
AFTER = {"flags/a.toml": flag(note="after"), "flags/new.toml": flag()}


class Disk:
    """How long it takes for a sync, unless a file ends there."""

    delay_s = 0.0


def tell(story: Callable[[FlagsSite, Disk], Awaitable[None]]) -> None:
    disk = Disk()

    async def whole(server: FlagsSite) -> None:
        await story(server, disk)

    run(whole, pace=UpkeepPace(seal_bytes=NEVER), delay_s=lambda: disk.delay_s)


async def until(condition: Callable[[], bool]) -> None:
    """Let others have turns, and no time pass."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not happen")


async def ask(server: FlagsSite, target: str, body: object = None) -> tuple[int, str]:
    """The answer to a request that nothing holds up."""
    if body is None:
        reply = await server.fetch(f"{SPACE}{target}")
        return reply.status, reply.body.decode("latin-1")
    raw = json.dumps(body).encode()
    line = server.site.connect()
    head = f"POST {SPACE}{target} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    await line.send(f"{head}content-length: {len(raw)}\r\n\r\n".encode() + raw)
    await settled(line)
    reply = answered(line)
    return reply.status, reply.body.decode()


async def look(server: FlagsSite) -> dict[str, object]:
    """All that can be known of the current version."""
    context = {"context": {}}
    _, versions = await ask(server, "/manifest/versions")
    _, evaluated = await ask(server, "/evaluate/all", context)
    _, by_ofrep = await ask(server, "/ofrep/v1/evaluate/flags", context)
    flags = json.loads(evaluated)
    closure = await server.fetch(f"{SPACE}/closure?version=2&subscription={STAR}")
    return {
        "manifest": (await server.fetch(f"{SPACE}/manifest")).headers["etag"],
        "listed": [each["version"] for each in json.loads(versions)["versions"]],
        "second": (await ask(server, "/manifest/versions/2"))[0],
        "closure": closure.status if closure.status == 200 else closure.code,
        "evaluated": (flags["version"], sorted(flags["flags"])),
        "one": (await ask(server, "/evaluate", {"flag": "new", **context}))[0],
        "ofrep": json.loads(by_ofrep)["metadata"]["version"],
        "stream": told(await server.follow("acme/billing:*")),
    }


def test_nobody_sees_a_version_before_it_is_synced() -> None:
    async def story(server: FlagsSite, disk: Disk) -> None:
        await server.put(BEFORE)
        line = await server.follow("acme/billing:*")
        before = await look(server)
        assert before["closure"] == "namespace_not_found"
        disk.delay_s = SLOW_S
        putting = asyncio.create_task(server.put(AFTER))
        live = server.engine.open_logs[server.engine.state.by_name["flags:acme:billing"].id]
        await until(lambda: live.log.head == 2)
        assert await look(server) == before
        assert len(events(line)) == 1
        with pytest.raises(Refused) as refused:
            await upload(server.versions, live, BEFORE, 1)
        assert refused.value.code is Code.CONFLICT
        assert live.visible == 2, "told of a version that a crash could have taken"
        assert await putting == 2
        disk.delay_s = 0.0
        await settled(line)
        assert await look(server) == {
            "manifest": '"v2"',
            "listed": [2, 1],
            "second": 200,
            "closure": 200,
            "evaluated": (2, ["a", "new"]),
            "one": 200,
            "ofrep": 2,
            "stream": ["version billing:2 snapshot"],
        }
        assert told(line)[1:] == ["version billing:2 inline"]

    tell(story)


def test_no_stream_begins_before_its_namespace_is_there_for_good() -> None:
    async def story(server: FlagsSite, disk: Disk) -> None:
        await server.make("other")
        disk.delay_s = SLOW_S
        making = asyncio.create_task(server.make("billing"))
        await until(lambda: "flags:acme:billing" in server.engine.state.by_name)
        line = await server.follow("acme/billing:*", "acme/other:*")
        assert line.heard == b""
        await making
        await settled(line)
        assert answered(line).status == 200

    tell(story)


def test_a_version_whose_sync_failed_is_never_seen() -> None:
    async def story(server: FlagsSite, disk: Disk) -> None:
        await server.put(BEFORE)
        line = await server.follow("acme/billing:*")
        before = await look(server)
        disk.delay_s = SLOW_S
        putting = asyncio.create_task(server.put(AFTER))
        live = server.engine.open_logs[server.engine.state.by_name["flags:acme:billing"].id]
        await until(lambda: live.log.head == 2)
        server.engine.journal._fail(OSError("the disk is gone"))
        with pytest.raises(Refused) as refused:
            await putting
        assert refused.value.code is Code.READ_ONLY
        assert await look(server) == before
        for if_version in (None, 1, 2):
            with pytest.raises(Refused) as refused:
                await upload(server.versions, live, BEFORE, if_version)
            assert refused.value.code is Code.READ_ONLY
        with pytest.raises(Refused) as refused:
            await server.versions.delete(live)
        assert refused.value.code is Code.READ_ONLY
        assert await look(server) == before
        assert len(events(line)) == 1

    tell(story)
