"""Development mode ends, on all surfaces, with the first credential that is configured."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from headrace.app import App, build_web
from headrace.config import load
from support.asking import ask

CREDENTIALS = {
    "TOPICS_API_KEYS": "key:read",
    "HEADRACE_ADMIN_TOKEN": "root",
    "HEADRACE_JWT_SECRET": "x" * 32,
    "HEADRACE_USERS": "ann:pass",
}
TARGETS = {
    "notifications": "/api/v1/watch?event_type=storm&identifier=%7B%22region%22:%22north%22%7D",
    "feeds": "/tenants/acme/events",
}
FOREIGN = {"host": "evil.example"}


@pytest.mark.parametrize("name", [None, *CREDENTIALS])
def test_whoever_shows_nothing_is_let_in_without_credentials_only(
    name: str | None, tmp_path: Path
) -> None:
    environ = {name: CREDENTIALS[name]} if name else {}
    app = App(load({"TOPICS_DATA_DIR": str(tmp_path), **environ}))
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

    async def script() -> None:
        for surface in respond._surfaces:
            route = next(each for each in surface.routes if each.scope and each.method == "GET")
            target = TARGETS.get(surface.name) or re.sub(r"\{[^}]*\}", "a", route.path)
            reply = await ask(respond, "GET", target)
            # (503: it was let in, and there is no engine; metrics do without one.)
            assert reply.status in ((401,) if name else (200, 503)), surface.name
            reply = await ask(respond, "GET", target, **FOREIGN)
            assert reply.status == (401 if name else 403), surface.name

    asyncio.run(script())
    assert app._settings.development == (name is None)
    assert bool(app._parts().caps.per_key.routers) == (name is not None)


@pytest.mark.parametrize("name", [None, *CREDENTIALS])
def test_a_server_says_at_its_start_that_nobody_is_asked(
    name: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    environ = {name: CREDENTIALS[name]} if name else {}
    app = App(load({"TOPICS_DATA_DIR": str(tmp_path), "TOPICS_PORT": "0", **environ}))
    app._bind(1).close()
    assert ("authentication is off" in caplog.text) == (name is None)
