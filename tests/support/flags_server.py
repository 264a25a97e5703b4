"""A whole server with flags, without sockets and in virtual time, and tokens of every type."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from headrace.app import App, build_web
from headrace.config import load
from headrace.engine.engine import Engine
from headrace.flags.archive import compress_tar, write_tar
from headrace.surfaces.flags.permissions import TokenType
from headrace.web.responder import Responder
from support.asking import Reply, ask
from support.engine_harness import boot
from support.hostile import HostileDisk
from support.inline_checker import InlineChecker
from support.virtual import VirtualClock, VirtualLoop

ROOT = "root"
"""The token of the superadmin that the environment names."""
BILLING = "/api/v1/tenants/acme/namespaces/billing"
OTHERS = "/api/v1/tenants/other/namespaces/billing"
KEY = "topics-key"
"""A key of the other surfaces, with every scope."""


class FlagsServer:
    """What a test sees of the server: a tenant `acme` with `billing` and `growth`, and `other`."""

    def __init__(
        self, respond: Responder, app: App, engine: Engine, checker: InlineChecker
    ) -> None:
        self.respond = respond
        self.app = app
        self.engine = engine
        self.checker = checker
        self.secrets: dict[TokenType, str] = {}
        """One token of each type; those of namespaces are for `acme/billing`."""

    async def send(
        self, method: str, path: str, body: object = None, *, token: str = ROOT, **headers: str
    ) -> Reply:
        raw = b"" if body is None else json.dumps(body).encode()
        fields = {"host": "localhost", "content_type": "application/json"} | headers
        if token:
            fields["authorization"] = f"Bearer {token}"
        return await ask(self.respond, method, path, raw, **fields)

    async def upload(
        self,
        files: Mapping[str, bytes],
        *,
        token: str = ROOT,
        lint: bool = False,
        namespace: str = BILLING,
        **headers: str,
    ) -> Reply:
        """Upload a manifest, or have it linted."""
        head = b"--x\r\nContent-Disposition: form-data; name=archive\r\n\r\n"
        raw = head + compress_tar(write_tar(files)) + b"\r\n--x--"
        fields = {"host": "localhost", "content_type": "multipart/form-data; boundary=x"} | headers
        fields["authorization"] = f"Bearer {token}"
        method, path = (
            ("POST", f"{namespace}/manifest/lint") if lint else ("PUT", f"{namespace}/manifest")
        )
        return await ask(self.respond, method, path, raw, **fields)

    async def make(self, path: str, **body: object) -> Any:
        """Something that is to be made."""
        reply = await self.send("POST", f"/api/v1/{path}", body)
        assert reply.status == 201, reply
        return reply.json

    async def make_token(self, type: TokenType, tenant: str = "acme", **more: object) -> Any:
        path = "tokens" if type is TokenType.SUPERADMIN else f"tenants/{tenant}/tokens"
        return await self.make(path, **({"type": type.value, "name": "a name"} | more))

    async def fill(self) -> None:
        for tenant, namespaces in {"acme": ("billing", "growth"), "other": ("billing",)}.items():
            await self.make("tenants", slug=tenant)
            for namespace in namespaces:
                await self.make(f"tenants/{tenant}/namespaces", slug=namespace)
        bound: dict[TokenType, dict[str, str]] = {
            TokenType.NAMESPACE_READ: {"namespace": "billing"},
            TokenType.NAMESPACE_WRITE: {"namespace": "billing"},
            TokenType.NAMESPACE_CLIENT: {"namespace": "billing", "environment": "production"},
        }
        for type in TokenType:
            made = await self.make_token(type, **bound.get(type, {}))
            self.secrets[type] = made["secret"]


def run(
    story: Callable[[FlagsServer], Coroutine[Any, Any, None]],
    *,
    filled: bool = True,
    disk: HostileDisk | None = None,
    **environ: str,
) -> None:
    """Tell a story of a server."""
    given = {"HEADRACE_ADMIN_TOKEN": ROOT, "TOPICS_API_KEYS": KEY, "TOPICS_DATA_DIR": "nowhere"}
    app = App(load({name: value for name, value in (given | environ).items() if value}))
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
    checker = InlineChecker()
    app._flags._checker = checker

    async def play() -> None:
        engine = (await boot(disk or HostileDisk(), VirtualClock(loop))).engine
        await app._notifications.open(engine)
        app._flags.open(engine, app.gate.credentials.is_gone)
        app.gate.open(engine)
        server = FlagsServer(respond, app, engine, checker)
        if filled:
            await server.fill()
        await story(server)

    try:
        loop.run(play())
    finally:
        loop.close()
