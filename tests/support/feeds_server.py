"""A whole server with feeds, without sockets and in virtual time, and receivers of its events."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from headrace.app import App, build_web
from headrace.config import load
from headrace.engine.engine import Engine
from headrace.surfaces.feeds.delivery_format import FeedDeliveryFormat
from headrace.web.responder import Responder
from support.asking import Reply, ask
from support.engine_harness import boot
from support.hostile import HostileDisk
from support.receivers import ScriptedReceivers
from support.virtual import VirtualClock, VirtualLoop

ACME = "/tenants/acme-corp"
RECEIVER = "https://my-app.example.com/epistola/events"


class FeedsServer:
    """What a test sees of the server: the tenant `acme-corp`, who has had one event."""

    def __init__(self, respond: Responder, engine: Engine, receivers: ScriptedReceivers) -> None:
        self.respond = respond
        self.engine = engine
        self.receivers = receivers

    async def send(self, method: str, path: str, body: object = None, **headers: str) -> Reply:
        raw = b"" if body is None else json.dumps(body).encode()
        fields = {"host": "localhost", "content_type": "application/json"} | headers
        return await ask(self.respond, method, ACME + path, raw, **fields)

    async def get(self, path: str) -> Any:
        """What is there, and is shown."""
        reply = await self.send("GET", path)
        assert reply.status == 200, reply
        return reply.json

    async def store(self, count: int = 1, type: str = "version", **parents: str) -> None:
        """Events about as many resources, in one batch."""
        refs = [
            {"resourceType": type, "resourceId": str(at), "parentRefs": parents}
            for at in range(count)
        ]
        events = [{"type": f"{type}.changed", "resourceRef": ref} for ref in refs]
        assert (await self.send("POST", "/events", {"events": events})).status == 201

    async def subscribe(self, **more: object) -> str:
        """The path of a new subscription; its events wait for no others."""
        wanted = {"callbackUrl": RECEIVER, "batchSettings": {"maxDelaySeconds": 0}, **more}
        reply = await self.send("POST", "/event-subscriptions", wanted)
        assert reply.status == 201, reply
        return f"/event-subscriptions/{reply.json['id']}"


def run(story: Callable[[FeedsServer], Coroutine[Any, Any, None]]) -> None:
    """Tell a story of a server."""
    app = App(load({"TOPICS_DATA_DIR": "nowhere"}))
    respond = build_web(
        app._settings,
        app.gate,
        app._loop_lag,
        app._control,
        app._server,
        app._notifications,
        app._flags,
        app._feeds,
        None,
    )
    loop = VirtualLoop()

    async def play() -> None:
        receivers = ScriptedReceivers()
        started = await boot(
            HostileDisk(),
            VirtualClock(loop),
            receivers=receivers,
            webhook_formats={"feeds": FeedDeliveryFormat()},
        )
        engine = started.engine
        await engine.webhooks.delivery.run()
        await app._feeds.open(engine)
        app.gate.open(engine)
        server = FeedsServer(respond, engine, receivers)
        await server.store()
        await story(server)

    try:
        loop.run(play())
    finally:
        loop.close()
