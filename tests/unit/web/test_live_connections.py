"""Live connections end with the credential that opened them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.app import App, build_web
from headrace.config import load
from headrace.core.config import Kind, LogConfig
from headrace.core.owners import TOPICS
from headrace.core.stream_rules import Spec
from headrace.core.token import Grants
from headrace.engine.open_log import OpenLog
from headrace.engine.tokens import Tokens
from headrace.web.calls import Gate
from headrace.web.connection import Connections
from headrace.web.credential_store import new_secret
from headrace.web.credentials import ALL_SCOPES
from headrace.web.responder import Responder
from support import lines
from support.asking import ask
from support.engine_harness import boot
from support.hostile import HostileDisk
from support.lines import Line, Site
from support.virtual import VirtualClock, VirtualLoop

WORK = "/v0/topics/q/work?node=w"
SSE = "/v1/stream/s?offset=-1&live=sse"
SOCKET = "/v0/ws"
WATCH = "/api/v1/watch?event_type=storm&identifier=%7B%22region%22:%22north%22%7D"
GRANTS = Grants(ALL_SCOPES.value)
UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def make() -> tuple[Responder, App]:
    app = App(load({"TOPICS_DATA_DIR": "nowhere", "HEADRACE_ADMIN_TOKEN": "root"}))
    return build_web(
        app._settings,
        app.gate,
        app._loop_lag,
        app._control,
        app._server,
        app._notifications,
        app._flags,
        app._feeds,
        None,
    ), app


def run(
    script: Callable[[Site, Gate, Tokens], Coroutine[Any, Any, None]],
    respond: Responder | None = None,
    app: App | None = None,
) -> None:
    """A whole server without sockets, with a queue and a stream."""
    if respond is None or app is None:
        respond, app = make()

    async def serve(site: Site) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        await engine.logs.put("q", TOPICS, LogConfig(kind=Kind.QUEUE))
        await engine.streams.create("s", Spec(content_type="application/json"), None)
        app.gate.open(engine)
        await script(site, app.gate, engine.tokens)

    lines.run(serve, respond, Connections())


async def follow(site: Site, target: str, secret: str) -> Line:
    line = site.connect()
    more = UPGRADE if target == SOCKET else "Accept: text/event-stream\r\n"
    head = f"GET {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret}\r\n{more}\r\n"
    await line.send(head.encode())
    return line


def is_over(line: Line) -> bool:
    return line.closing or line.ended


@pytest.mark.parametrize("target", [WORK, SSE, SOCKET, WATCH])
def test_to_revoke_a_token_ends_what_it_opened(target: str) -> None:
    async def script(site: Site, gate: Gate, tokens: Tokens) -> None:
        secret, digest = new_secret()
        token = await tokens.issue(digest, GRANTS)
        mine, other = await follow(site, target, secret), await follow(site, target, "root")
        opened = [101] if target == SOCKET else [200]
        assert mine.statuses == other.statuses == opened
        assert (gate.live.count(token.id), gate.live.count("admin")) == (1, 1)
        assert len(gate.streams) == 2
        await tokens.revoke(token.id)
        await mine.settle()
        assert (is_over(mine), is_over(other)) == (True, False)
        assert (gate.live.count(token.id), gate.live.count("admin")) == (0, 1)
        assert len(gate.streams) == 1
        if target == WORK:
            assert b"revoked" in mine.heard
        assert (await follow(site, target, secret)).statuses == [401]

    run(script)


@pytest.mark.parametrize("target", [WORK, SSE, SOCKET, WATCH])
def test_a_token_that_expires_ends_what_it_opened(target: str) -> None:
    async def script(site: Site, gate: Gate, tokens: Tokens) -> None:
        secret, digest = new_secret()
        now_ms = gate.engine.clock.now_ms()
        token = await tokens.issue(digest, GRANTS, expires_at_ms=now_ms + 10_000)
        line = await follow(site, target, secret)
        await asyncio.sleep(8)
        assert not is_over(line)
        await asyncio.sleep(4)
        assert is_over(line)
        assert gate.live.count(token.id) == 0

    run(script)


POLLS = {
    "diff": ("POST", "/v0/topics/t/diff", b'{"from_seq":0,"wait_ms":30000}'),
    "stream": ("GET", "/v1/stream/s?offset=now&live=long-poll", b""),
    "details": ("GET", "/v1/stream/s/_details?live=long-poll&timeout_ms=30000", b""),
}


async def poll(site: Site, poll: str, secret: str, **headers: str) -> Line:
    line = site.connect()
    method, target, body = POLLS[poll]
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = (
        f"{method} {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret}\r\n{more}"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    await line.send(head.encode() + body)
    return line


@pytest.mark.parametrize("name", POLLS)
def test_to_revoke_a_token_ends_its_long_polls(name: str) -> None:
    """What comes after that is not told to whoever waits with it."""

    async def script(site: Site, gate: Gate, tokens: Tokens) -> None:
        await gate.engine.logs.put("t", TOPICS, LogConfig())
        secret, digest = new_secret()
        token = await tokens.issue(digest, GRANTS)
        etag = {}
        if name == "details":
            told = (await poll(site, name, secret)).heard
            etag = {"if_none_match": re.findall(rb"etag: (.*)\r", told)[0].decode()}
        mine = await poll(site, name, secret, **etag)
        other = await poll(site, name, "root", **etag)
        await asyncio.sleep(1)
        assert mine.statuses == other.statuses == []
        assert (gate.live.count(token.id), gate.live.count("admin")) == (1, 1)
        await tokens.revoke(token.id)
        await mine.settle()
        assert mine.statuses == [401]
        assert other.statuses == []
        await asyncio.sleep(31)
        assert other.statuses in ([200], [204], [304])
        assert (gate.live.count(token.id), gate.live.count("admin")) == (0, 0)
        assert len(gate.slots) == 0

    run(script)


def test_a_token_revoked_before_a_poll_waits_is_told_nothing() -> None:
    async def script(site: Site, gate: Gate, tokens: Tokens) -> None:
        await gate.engine.logs.put("t", TOPICS, LogConfig())
        secret, digest = new_secret()
        token = await tokens.issue(digest, GRANTS)
        method, target, body = POLLS["diff"]
        line = site.connect()
        head = (
            f"{method} {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        await line.send(head.encode() + body[:5])
        await tokens.revoke(token.id)
        await line.send(body[5:])
        assert line.statuses == [401]
        assert gate.live.count(token.id) == 0

    run(script)


def test_a_token_revoked_while_a_stream_opens_opens_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def script(site: Site, gate: Gate, tokens: Tokens) -> None:
        secret, digest = new_secret()
        token = await tokens.issue(digest, GRANTS)
        engine = gate.engine
        settle = engine.settle

        async def revoke_meanwhile(*lives: OpenLog) -> None:
            await tokens.revoke(token.id)
            await settle(*lives)

        monkeypatch.setattr(engine, "settle", revoke_meanwhile)
        line = await follow(site, WORK, secret)
        await asyncio.sleep(1)  # until the disk has it
        assert line.statuses == [401]
        assert len(gate.streams) == 0

    run(script)


def test_who_has_roles_and_no_scopes_gets_nothing_where_scopes_are_asked_for() -> None:
    """Every route that says it needs a scope, with a body that is as good as none."""
    respond, app = make()
    surfaces = [each for each in respond._surfaces if each.name != "operations"]
    routes = [route for each in surfaces for route in each.routes if route.scope]
    assert len(routes) > 80

    async def script(site: Site, gate: Gate, tokens: Tokens) -> None:
        secret, digest = new_secret()
        await tokens.issue(digest, Grants(roles=("reader",), tenants=("*",)))
        sent = {"authorization": f"Bearer {secret}", "content_type": "application/json"}
        for route in routes:
            for name in ("q", "s"):
                target = re.sub(r"\{[^}]*\}", name, route.path)
                reply = await ask(respond, route.method, target, b"{}", **sent)
                assert reply.status >= 400, (route.method, target)

    run(script, respond, app)
