"""A whole server with notifications, without sockets and in virtual time, and its clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from headrace.app import App, build_web
from headrace.config import load
from headrace.engine.engine import Engine
from headrace.web.connection import Connections
from headrace.web.responder import Responder
from support import lines
from support.engine_harness import boot
from support.eventtext import Event, split_events, unchunk
from support.hostile import HostileDisk
from support.lines import Line, Site
from support.virtual import VirtualClock, VirtualLoop


class NotifyServer:
    """What a test sees of the server."""

    def __init__(self, site: Site, app: App, engine: Engine) -> None:
        self.site = site
        self.app = app
        self.engine = engine

    async def send(self, method: str, path: str, body: object = None, **headers: str) -> Line:
        """A request on a connection of its own; what it hears is there, as far as it has come."""
        raw = b"" if body is None else json.dumps(body).encode()
        return await self.send_raw(method, path, raw, **headers)

    async def send_raw(self, method: str, path: str, raw: bytes, **headers: str) -> Line:
        """The same with a body as it is."""
        line = self.site.connect()
        fields = {"host": "localhost", "content-length": str(len(raw))} | headers
        head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
        await line.send(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + raw)
        return line

    async def notify(self, payload: object = None, **identifier: object) -> Line:
        body = {"event_type": "plain", "identifier": identifier, "payload": payload}
        line = await self.send("POST", "/api/v1/notification", body)
        await settled(line)
        assert line.statuses == [200], line.heard
        return line

    async def watch(self, path: str = "watch", **more: object) -> Line:
        body = {"event_type": "plain", "identifier": {"n": "*"}, **more}
        line = await self.send("POST", f"/api/v1/{path}", body)
        await settled(line)
        return line


async def settled(line: Line) -> None:
    """Until everything that needs no more time than a moment has happened."""
    for _ in range(20):
        await asyncio.sleep(0.001)
        await line.settle()


def events(line: Line) -> list[Event]:
    """What came on a stream so far."""
    head, _, raw = line.heard.partition(b"\r\n\r\n")
    assert b" 200 " in head, head
    found, rest = split_events(unchunk(raw)[0])
    assert not rest
    return found


def told(line: Line) -> list[str]:
    """The same in short: ids of notifications, types of control frames, reasons of endings."""
    return [
        event.data.get("type", event.data.get("reason", event.name))
        if event.data.get("specversion") is None
        else event.data["id"].partition("@")[2]
        for event in events(line)
    ]


def run(
    story: Callable[[NotifyServer], Coroutine[Any, Any, None]],
    folder: Path,
    configuration: str = "",
    **environ: str,
) -> None:
    """Tell a story of a server with this configuration."""
    file = folder / "notifications.yaml"
    file.write_text(configuration or "{}")
    app = App(load({"TOPICS_DATA_DIR": "nowhere", "NOTIFICATIONS_CONFIG": str(file), **environ}))
    respond: Responder = build_web(
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

    async def serve(site: Site) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        await app._notifications.open(engine)
        app.gate.open(engine)
        await story(NotifyServer(site, app, engine))

    lines.run(serve, respond, Connections())
