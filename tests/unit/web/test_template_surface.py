"""An empty surface in six small files: it mounts, refuses, authenticates, follows and documents
itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import support.template_surface
from headrace.web import openapi
from headrace.web.calls import Gate
from headrace.web.concurrency import Slots
from headrace.web.connection import Connections
from headrace.web.credential_store import CredentialStore
from headrace.web.credentials import Keyring
from headrace.web.responder import Responder
from support.engine_harness import boot
from support.hostile import HostileDisk
from support.lines import Line, Site
from support.template_surface.routes import surface
from support.virtual import VirtualClock, VirtualLoop

LINES = b"/diaries/d/lines HTTP/1.1\r\nhost: here\r\n"
KEY = b"authorization: Bearer secret\r\n"


def tell(story: Callable[[Site, Gate], Coroutine[Any, Any, None]], keys: str = "") -> None:
    loop = VirtualLoop()

    async def begin() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        gate = Gate(
            CredentialStore(Keyring.parse(keys) if keys else Keyring()), Slots(), Slots(), 1 << 20
        )
        gate.open(engine)
        await story(Site(Responder(gate, [surface()]), Connections()), gate)

    asyncio.set_event_loop(loop)
    try:
        loop.run(begin())
        assert not loop.complaints
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def ask(site: Site, raw: bytes) -> Line:
    line = site.connect()
    await line.send(raw)
    await asyncio.sleep(1)
    return line


def post(text: str, more: bytes = b"") -> bytes:
    body = json.dumps({"text": text}).encode()
    head = b"POST " + LINES + more + b"content-type: application/json\r\n"
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


def test_it_takes_at_most_six_files() -> None:
    (folder,) = support.template_surface.__path__
    names = {path.name for path in Path(folder).glob("*.py")} - {"__init__.py"}
    assert names <= {"names.py", "wire.py", "errors.py", "events.py", "routes.py", "mount.py"}


def test_lines_are_written_and_followed() -> None:
    async def story(site: Site, gate: Gate) -> None:
        assert (await ask(site, post("one"))).heard.endswith(b'{"line":1}')
        reader = await ask(site, b"GET " + LINES + b"\r\n")
        assert reader.statuses == [200]
        assert len(gate.streams) == 1
        await ask(site, post("two"))
        assert reader.heard.count(b"event: line") == 2
        assert b'data: "one"' in reader.heard
        assert b'data: "two"' in reader.heard
        reader.close()
        await reader.settle()
        assert len(gate.streams) == 0

    tell(story)


def test_it_refuses_in_its_own_words() -> None:
    async def story(site: Site, gate: Gate) -> None:
        for raw, status, word in (
            (b"GET " + LINES + b"\r\n", 404, b"no_such_diary"),
            (b"GET /diaries/d HTTP/1.1\r\nhost: here\r\n\r\n", 404, b"not_found"),
            (b"DELETE " + LINES + b"\r\n", 405, b"method_not_allowed"),
            (b"GET " + LINES + b"accept: a/b\r\n\r\n", 406, b"not_acceptable"),
            (b"POST " + LINES + b"content-length: 1\r\n\r\nx", 415, b"media_type"),
        ):
            line = await ask(site, raw)
            assert line.statuses == [status]
            assert b'"problem":"%b"' % word in line.heard
            assert b"x-request-id: " in line.heard

    tell(story)


def test_it_knows_who_asks() -> None:
    async def story(site: Site, gate: Gate) -> None:
        refused = await ask(site, post("one"))
        assert refused.statuses == [401]
        assert b"who_are_you" in refused.heard
        assert (await ask(site, post("one", KEY))).statuses == [201]
        assert (await ask(site, b"GET " + LINES + KEY + b"\r\n")).statuses == [403]

    tell(story, "secret:write")


def test_it_documents_itself() -> None:
    document = openapi.build("Diaries", "1", [surface()])
    operations = document["paths"]["/diaries/{name}/lines"]
    assert set(operations) == {"get", "post"}
    assert operations["post"]["security"] == [{"bearer": ["write"]}]
    assert {"WriteRequest", "WriteReply"} == set(document["components"]["schemas"])
    assert {"no_such_diary", "who_are_you"} == {row["code"] for row in document["x-error-codes"]}
