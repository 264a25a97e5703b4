"""One responder for all surfaces: the same rules everywhere, in each surface's own words."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headrace.app import App, build_web
from headrace.config import load
from headrace.core.errors import Code, Refused
from headrace.web.answers import Answer, format_lines
from headrace.web.answers import Reply as OpenReply
from headrace.web.calls import Call, Gate
from headrace.web.concurrency import Slots
from headrace.web.credential_store import CredentialStore
from headrace.web.credentials import Keyring, Scope
from headrace.web.envelope import WORDS, close, refuser
from headrace.web.responder import Responder
from headrace.web.surface import Described, Route, Surface, complete
from support.asking import Reply, ask, make_request
from support.lines import Site, run

SURFACES = {
    surface.name: surface
    for surface in (lambda app: build_web(
        app._settings, app.gate, app._loop_lag, app._control, app._server, app._notifications,
        app._flags, app._feeds, None,
    ))(App(load({"TOPICS_DATA_DIR": "nowhere"})))._surfaces
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "path"),
    [
        *((name, "/") for name in SURFACES),
        *(
            ("notifications", f"/api/v1/{path}")
            for path in (
                "notification",
                "watch",
                "replay",
                "wis2/storm",
                "admin/wipe/all",
                "schema",
            )
        ),
    ],
)
@pytest.mark.parametrize("code", Code)
def test_every_surface_has_words_for_every_refusal(code: Code, name: str, path: str) -> None:
    detail = {"epoch": 1, "expected": 1, "received": 2}
    request = make_request("GET", path)
    answer = SURFACES[name].refuse(Refused(code, "no", **detail), request, 0.0)
    assert answer.status == (500 if code is Code.INTERNAL else answer.status)
    assert 400 <= answer.status < 600
    assert answer.status < 500 or code.status >= 500
    if (name, code) == ("flags", Code.URI_TOO_LONG):
        assert answer.body == b""
        return
    said = msgspec.json.decode(answer.body)  # type: ignore[arg-type]
    error = said["error"] if isinstance(said.get("error"), dict) else said
    assert error["message"] == "no"
    assert error.get("code") or error["success"] is False
    if name == "notifications":
        assert said["request_id"] == request.id
    media = "vnd.epistola.v1+json" if name == "feeds" else "json"
    assert f"content-type: application/{media}\r\n" in answer.lines + format_lines(answer.headers)


# --- an empty surface -----------------------------------------------------------------------------


async def fails(call: Call) -> Answer:
    raise KeyError("a bug")


async def shows(call: Call) -> Answer:
    return Answer(200, [("x-a", "b")], [b"ab", b"", b"cde"])


async def replies(call: Call) -> OpenReply:
    call.principal.require(Scope.READ, call.name)
    return OpenReply([b'{"name":"%b"' % call.name.encode()])


def make(
    keys: str = "", origins: tuple[str, ...] = (), **more: Any
) -> tuple[Gate, Callable[..., Reply]]:
    refusals = complete(WORDS)
    ok = {200: Described(None, "")}
    surface = Surface(
        name="tried",
        title="Tried",
        prefixes=("/t/",),
        routes=[
            Route("GET", "/t/fails", fails, "", ok),
            Route("GET", "/t/shows", shows, "", ok, head=True),
            Route("PATCH", "/t/shows", shows, "", ok),
            Route("GET", "/t/closed", shows, "", ok, cors=False),
            Route("POST", "/t/{name}/of/{other}", replies, "", ok),
        ],
        refusals=refusals,
        refuse=refuser(refusals),
        finish=close,
        headers=[("x-every", "answer")],
        **more,
    )
    keyring = CredentialStore(Keyring.parse(keys) if keys else Keyring())
    gate = Gate(keyring, Slots(), Slots(), 1 << 20, origins)
    respond = Responder(gate, [surface])

    def asked(method: str, target: str, body: bytes = b"", **fields: str) -> Reply:
        return asyncio.run(ask(respond, method, target, body, **fields))

    return gate, asked


def test_an_answer_is_what_its_handler_gave_and_what_every_answer_says() -> None:
    _, asked = make()
    reply = asked("GET", "/t/shows")
    assert (reply.status, reply.body) == (200, b"abcde")
    assert (reply.headers["x-a"], reply.headers["x-every"]) == ("b", "answer")
    assert asked("PATCH", "/t/shows").status == 200
    assert asked("HEAD", "/t/shows").status == 200


def test_an_open_reply_is_closed_by_its_surface() -> None:
    _, asked = make()
    reply = asked("POST", "/t/a%2Fb/of/c")
    assert reply.json["name"] == "a/b"
    assert "server_total_ms" in reply.json["performance"]


def test_what_is_not_there_or_not_allowed_is_told_in_the_envelope() -> None:
    _, asked = make()
    reply = asked("GET", "/t/nothing")
    assert (reply.status, reply.json["error"]["code"]) == (404, "not_found")
    reply = asked("DELETE", "/t/shows")
    assert (reply.status, reply.json["error"]["code"]) == (405, "method_not_allowed")
    assert reply.headers["allow"] == "GET, HEAD, PATCH, OPTIONS"
    assert reply.headers["x-every"] == "answer"
    reply = asked("OPTIONS", "/t/shows")
    assert (reply.status, reply.headers["allow"]) == (200, "GET, HEAD, PATCH, OPTIONS")


def test_a_bug_is_told_in_the_envelope_and_the_log(caplog: pytest.LogCaptureFixture) -> None:
    _, asked = make()
    reply = asked("GET", "/t/fails", x_request_id="mine")
    assert (reply.status, reply.json["error"]["code"]) == (500, "internal")
    assert reply.headers["x-request-id"] == "mine"
    (line,) = caplog.records
    assert line.fields["request_id"] == "mine"  # type: ignore[attr-defined]
    assert "a bug" in caplog.text


@pytest.mark.parametrize("given", ["", "a\tb", "x" * 129, "é"])
def test_a_request_has_an_id_that_can_be_told(given: str) -> None:
    _, asked = make()
    reply = asked("GET", "/t/shows", x_request_id=given)
    assert re.fullmatch(r"[0-9A-HJKMNP-TV-Z]{26}", reply.headers["x-request-id"])
    assert make_request("GET", "/").id != make_request("GET", "/").id


def test_who_asks_is_known_before_a_handler_is() -> None:
    _, asked = make("secret:read:a")
    reply = asked("POST", "/t/a/of/b")
    assert (reply.status, reply.json["error"]["code"]) == (401, "unauthorized")
    assert reply.headers["www-authenticate"] == "Bearer"
    assert asked("POST", "/t/a/of/b", authorization="Bearer secret").status == 200
    assert asked("POST", "/t/b/of/b", authorization="Bearer secret").status == 403


LISTED = ("https://a.example", "https://b.example")


def test_a_listed_origin_is_named() -> None:
    _, asked = make(origins=LISTED)
    reply = asked("GET", "/t/shows", origin="https://b.example")
    assert (reply.status, reply.headers["x-a"]) == (200, "b")
    assert reply.headers["access-control-allow-origin"] == "https://b.example"
    assert reply.headers["vary"] == "origin"


@pytest.mark.parametrize("origin", [{}, {"origin": "https://evil.example"}, {"origin": "null"}])
def test_nobody_else_is(origin: dict[str, str]) -> None:
    _, asked = make(origins=LISTED)
    reply = asked("GET", "/t/nothing", **origin)
    assert "access-control-allow-origin" not in reply.headers
    assert reply.headers["vary"] == "origin"


def test_a_star_is_for_everybody_and_the_same_for_all() -> None:
    _, asked = make(origins=("*",))
    reply = asked("GET", "/t/shows", origin="https://any.example")
    assert reply.headers["access-control-allow-origin"] == "*"
    assert "vary" not in reply.headers


def test_a_browser_that_asks_first_gets_an_empty_answer() -> None:
    _, asked = make(origins=LISTED)
    reply = asked(
        "OPTIONS",
        "/t/nothing",
        origin="https://a.example",
        access_control_request_method="POST",
        access_control_request_headers="authorization, content-type",
    )
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (204, LISTED[0])
    assert reply.headers["access-control-allow-headers"] == "authorization, content-type"
    assert "POST" in reply.headers["access-control-allow-methods"]
    assert "x-a" not in reply.headers


@pytest.mark.parametrize("origins", [LISTED, ("*",)])
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_no_origin_is_named_where_pages_are_never_to_call(
    method: str, origins: tuple[str, ...]
) -> None:
    _, asked = make(origins=origins)
    asks_first = {"access_control_request_method": "GET"} if method == "OPTIONS" else {}
    reply = asked(method, "/t/closed", origin=LISTED[0], **asks_first)
    assert reply.status == {"GET": 200, "POST": 405, "OPTIONS": 200}[method]
    assert not [name for name in reply.headers if name.startswith("access-control")]


def test_an_answer_that_cannot_be_written_is_a_failure_that_is_told() -> None:
    async def breaks_a_line(call: Call) -> Answer:
        return Answer(200, [("x-a", "b\r\nset-cookie: c")], b"ok")

    async def story(site: Site) -> None:
        line = site.connect()
        await line.send(b"GET /t/breaks HTTP/1.1\r\nhost: here\r\n\r\n")
        assert line.statuses == [500]
        assert b"set-cookie" not in line.heard
        await line.send(b"GET /t/breaks HTTP/1.1\r\nhost: here\r\n\r\n")
        assert line.statuses == [500, 500]

    refusals = complete(WORDS)
    route = Route("GET", "/t/breaks", breaks_a_line, "", {200: Described(None, "")})
    surface = Surface(
        name="tried", title="Tried", prefixes=("/t/",), routes=[route],
        refusals=refusals, refuse=refuser(refusals),
    )  # fmt: skip
    gate = Gate(CredentialStore(), Slots(), Slots(), 1 << 20)
    run(story, Responder(gate, [surface]))
