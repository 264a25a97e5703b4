"""Who asks: keys, tokens, users, and an authentication service that is slow, wrong or gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import jwt
import pytest

from headrace.core.errors import Code, Refused
from headrace.core.limits import AUTH_AT_ONCE_MAX
from headrace.delivery.http_exchange import HttpReply
from headrace.surfaces.notifications.access import AccessRules
from headrace.surfaces.notifications.auth_service import AuthService
from headrace.surfaces.notifications.authentication import Authentication
from headrace.surfaces.notifications.metrics import NotificationMetrics
from headrace.web.credentials import ADMIN, LOCAL, NO_SCOPE, NOBODY, Principal, Scope
from headrace.web.json_web_tokens import Verifier
from support.notify_server import NotifyServer, run, settled

SECRET = "a secret of at least thirty-two bytes"
TYPE = """
    topic: {base: %s, key_order: [n]}
    identifier: {n: {type: StringHandler, required: true}}
"""
PROXY = f"""
auth: {{enabled: true, mode: trusted_proxy, jwt_secret: "{SECRET}", admin_roles: {{r: [admin]}}}}
notification_schema:
  plain: {TYPE % "plain"}
    auth: {{required: true, read_roles: {{r: [reader]}}, write_roles: {{r: ["*"]}}}}
"""


def sign(**claims: Any) -> str:
    usual = {"username": "ann", "realm": "r", "exp": time.time() + 60}
    return jwt.encode(usual | claims, SECRET, "HS256")


# --- rules ----------------------------------------------------------------------------------------


def user(realm: str, *roles: str) -> Principal:
    return Principal(f"user:{realm}/x", NO_SCOPE, roles=roles, realm=realm)


def key(scopes: Scope, *prefixes: str) -> Principal:
    return Principal("abc", scopes, prefixes)


@pytest.mark.parametrize(
    ("rules", "principal", "reads", "writes"),
    [
        (None, NOBODY, None, None),
        (AccessRules(required=False, write_roles={"r": ("a",)}), NOBODY, None, None),
        (AccessRules(required=True), NOBODY, Code.UNAUTHENTICATED, Code.UNAUTHENTICATED),
        (AccessRules(required=True), user("r"), None, Code.FORBIDDEN),
        (AccessRules(required=True), user("r", "boss"), None, None),
        (AccessRules(required=True), user("", "boss"), None, Code.FORBIDDEN),
        (AccessRules(required=True), key(Scope.READ), None, Code.FORBIDDEN),
        (AccessRules(required=True), key(Scope.READ, "notify:s"), None, Code.FORBIDDEN),
        (AccessRules(required=True), key(Scope.READ, "acme/"), Code.FORBIDDEN, Code.FORBIDDEN),
        (AccessRules(required=True), key(Scope.WRITE), Code.FORBIDDEN, Code.FORBIDDEN),
        (AccessRules(required=False), key(Scope.WRITE, "acme/"), None, None),
        (AccessRules(required=True, read_roles={}, write_roles={}), ADMIN, None, None),
        (AccessRules(required=True, read_roles={}, write_roles={}), LOCAL, None, None),
        (
            AccessRules(required=True, read_roles={"r": ("*",)}, write_roles={"r": ("a",)}),
            user("r", "b"),
            None,
            Code.FORBIDDEN,
        ),
    ],
)
def test_what_rules_say(
    rules: AccessRules | None, principal: Principal, reads: Code | None, writes: Code | None
) -> None:
    authentication = Authentication("static", NotificationMetrics(()), None, {"r": ("boss",)})

    def refusal(require: Callable[..., None], *about: str) -> Code | None:
        try:
            require(principal, rules, *about)
        except Refused as refused:
            return refused.code
        return None

    assert refusal(authentication.require_read, "notify:storm") is reads
    assert refusal(authentication.require_write) is writes


# --- tokens of a proxy ----------------------------------------------------------------------------


def test_tokens_of_a_trusted_proxy(tmp_path: Path) -> None:
    async def story(server: NotifyServer) -> None:
        async def ask(path: str, token: str | None, **more: str) -> int:
            headers = {} if token is None else {"authorization": f"Bearer {token}"}
            body = {"event_type": "plain", "identifier": {"n": "a"}, **more}
            line = await server.send("POST", f"/api/v1/{path}", body, **headers)
            await settled(line)
            return line.statuses[0]

        assert await ask("notification", sign()) == 200
        assert await ask("notification", sign(realm="other")) == 403
        assert await ask("notification", sign(realm="")) == 403
        assert await ask("notification", None) == 401
        assert await ask("notification", sign(exp=time.time() - 60)) == 401
        assert await ask("notification", "x.y.z") == 401
        assert await ask("replay", sign(), from_id="1") == 403
        assert await ask("replay", sign(roles=["reader"]), from_id="1") == 200
        assert await ask("replay", sign(roles=["admin"]), from_id="1") == 200
        outcomes = server.app._notifications.surface.samples(None)[-1]  # type: ignore[misc]
        assert {(each["outcome"], each["value"]) for each in outcomes.plain()} == {
            ("accepted", 6), ("denied", 2)
        }  # fmt: skip

    run(story, tmp_path, PROXY)


# --- the authentication service -------------------------------------------------------------------

Answering = Callable[[bytes], bytes | None]


def ask_service(
    answer: Answering, *headers: str, timeout_ms: int = 2000
) -> tuple[list[Principal | Code], list[bytes]]:
    """What a service that answers so makes of these headers, one after the other; and what it
    heard.
    """
    heard: list[bytes] = []

    async def script() -> list[Principal | Code]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            serving.append(task)
            with suppress(ConnectionError):
                head = await reader.readuntil(b"\r\n\r\n")
                heard.append(head)
                said = answer(head)
                if said is None:
                    await reader.read()  # until the other side has had enough
                else:
                    writer.write(said)
                    await writer.drain()
                writer.close()
                await writer.wait_closed()

        serving: list[asyncio.Task[Any]] = []
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        service = AuthService(
            f"http://127.0.0.1:{port}/a", timeout_ms, Verifier.of_secret(SECRET), time.monotonic
        )
        found: list[Principal | Code] = []
        for header in headers:
            found.append(await outcome(service.identify(header)))
        server.close()
        await asyncio.gather(*serving)
        return found

    return asyncio.run(script()), heard


async def outcome(asked: Awaitable[Principal]) -> Principal | Code:
    try:
        return await asked
    except Refused as refused:
        return refused.code


def reply(status: str, body: str = "", **headers: str) -> bytes:
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{head}\r\n{body}".encode()


@pytest.mark.parametrize(
    "answer",
    [
        lambda token: reply("200 OK", authorization=f"Bearer {token}"),
        lambda token: reply("200 OK", f'{{"token": "{token}"}}'),
        lambda token: reply("200 OK", f'{{"jwt": "{token}", "more": 1}}'),
        lambda token: reply("200 OK", f'{{"access_token": "{token}"}}'),
    ],
)
def test_a_service_says_who_it_is(answer: Callable[[str], bytes]) -> None:
    token = sign(roles=["reader"])
    (found,), (head,) = ask_service(lambda _: answer(token), "Basic YTpi")
    assert isinstance(found, Principal)
    assert (found.realm, found.roles) == ("r", ("reader",))
    assert head.startswith(b"GET /a/authenticate HTTP/1.1\r\n")
    assert b"authorization: Basic YTpi\r\n" in head


def test_what_it_said_is_believed_for_a_moment() -> None:
    token = sign()
    found, heard = ask_service(
        lambda _: reply("200 OK", authorization=f"Bearer {token}"), "Basic YTpi", "Basic YTpi"
    )
    assert found[0] is found[1]
    assert len(heard) == 1


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (reply("401 Unauthorized"), Code.UNAUTHENTICATED),
        (reply("403 Forbidden"), Code.UNAUTHENTICATED),
        (reply("500 Internal Server Error"), Code.NOT_READY),
        (reply("302 Found", location="http://a/"), Code.NOT_READY),
        (reply("200 OK", "{}"), Code.NOT_READY),
        (reply("200 OK", "no JSON"), Code.NOT_READY),
        (reply("200 OK", '{"token": "x.y.z"}'), Code.UNAUTHENTICATED),
        (reply("200 OK", "x" * (1 << 20)), Code.NOT_READY),
        (b"no HTTP", Code.NOT_READY),
        (b"", Code.NOT_READY),
    ],
)
def test_a_service_that_does_not_say_who_it_is(said: bytes, code: Code) -> None:
    assert ask_service(lambda _: said, "Bearer x")[0] == [code]


def test_a_service_that_does_not_answer() -> None:
    assert ask_service(lambda _: None, "Bearer x", timeout_ms=50)[0] == [Code.NOT_READY]


def test_a_burst_of_one_header_is_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    answered = HttpReply(200, {"authorization": f"Bearer {sign()}"}, b"")

    async def script() -> None:
        gate = asyncio.Event()

        async def exchange(service: AuthService, header: str) -> HttpReply:
            asked.append(header)
            await gate.wait()
            return answered if header == "Basic YTpi" else HttpReply(500, {}, b"")

        monkeypatch.setattr(AuthService, "_exchange", exchange)
        service = AuthService("http://127.0.0.1:1", 9000, Verifier.of_secret(SECRET), lambda: 0.0)

        def ask(header: str) -> asyncio.Task[Principal | Code]:
            return asyncio.ensure_future(outcome(service.identify(header)))

        burst = [ask("Basic YTpi") for _ in range(AUTH_AT_ONCE_MAX + 10)]
        others = [ask(f"Basic {number}") for number in range(AUTH_AT_ONCE_MAX)]
        for _ in range(2):  # until they have asked, and their questions have begun
            await asyncio.sleep(0)
        assert asked == ["Basic YTpi", *(f"Basic {n}" for n in range(AUTH_AT_ONCE_MAX - 1))]
        burst[0].cancel()  # who hangs up takes nothing away from others
        gate.set()
        found = set(await asyncio.gather(*burst[1:]))
        assert {each.realm for each in found if isinstance(each, Principal)} == {"r"}
        *down, refused = await asyncio.gather(*others)
        assert set(down) == {Code.NOT_READY}
        assert refused is Code.THROTTLED

    asyncio.run(script())


def test_a_series_of_failures_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    answers = [reply("500 No"), b"no HTTP", reply("401 No"), reply("200 OK", "{}")]
    found, heard = ask_service(lambda _: answers.pop(0), *(f"Basic {n}" for n in range(4)))
    assert len(heard) == 4
    assert found.count(Code.NOT_READY) == 3
    assert caplog.messages == ["the authentication service does not answer"] * 2


def test_a_header_that_cannot_be_sent_on_is_not() -> None:
    found, heard = ask_service(lambda _: reply("200 OK"), "Bearer \u00e9", "Bearer a\r\nb: c")
    assert found == [Code.UNAUTHENTICATED] * 2
    assert heard == []


def test_nobody_listens() -> None:
    async def script() -> Principal | Code:
        service = AuthService(
            "http://127.0.0.1:1", 1000, Verifier.of_secret(SECRET), time.monotonic
        )
        return await outcome(service.identify("Bearer x"))

    assert asyncio.run(script()) is Code.NOT_READY


def test_mode_direct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, HttpReply | OSError] = {
        "Basic cmVhZGVyOnBhc3M=": HttpReply(
            200, {"authorization": f"Bearer {sign(roles=['reader'])}"}, b""
        ),
        "Basic YTpi": HttpReply(401, {}, b""),
        "Bearer down": ConnectionRefusedError("nobody listens"),
    }
    asked: list[str] = []

    async def exchange(service: AuthService, header: str) -> HttpReply:
        asked.append(header)
        found = answers[header]
        if isinstance(found, OSError):
            raise found
        return found

    monkeypatch.setattr(AuthService, "_exchange", exchange)
    direct = PROXY.replace("trusted_proxy", "direct, auth_o_tron_url: http://127.0.0.1:1")

    async def story(server: NotifyServer) -> None:
        async def replay(header: str | None) -> bytes:
            headers = {} if header is None else {"authorization": header}
            body = {"event_type": "plain", "identifier": {"n": "a"}, "from_id": "1"}
            line = await server.send("POST", "/api/v1/replay", body, **headers)
            await settled(line)
            return line.heard

        assert (await replay("Basic cmVhZGVyOnBhc3M=")).startswith(b"HTTP/1.1 200 ")
        unknown = await replay("Basic YTpi")
        assert unknown.startswith(b"HTTP/1.1 401 ")
        assert b"www-authenticate: Bearer\r\nwww-authenticate: Basic" in unknown
        gone = await replay("Bearer down")
        assert gone.startswith(b"HTTP/1.1 503 ")
        assert b'"code":"SERVICE_UNAVAILABLE","error":"service_unavailable"' in gone
        assert b"retry-after: " in gone
        assert b'"details"' not in gone
        assert (await replay(None)).startswith(b"HTTP/1.1 401 ")
        assert (await replay("Bearer root")).startswith(b"HTTP/1.1 200 ")
        # Our own credentials do not depend on another server.
        assert asked == ["Basic cmVhZGVyOnBhc3M=", "Basic YTpi", "Bearer down"]

    run(story, tmp_path, direct, HEADRACE_ADMIN_TOKEN="root")


def test_who_shows_nothing_has_a_bound_like_a_key(tmp_path: Path) -> None:
    public = f"{PROXY}  public: {TYPE % 'public'}"

    async def story(server: NotifyServer) -> None:
        async def notify(**headers: str) -> int | None:
            body = {"event_type": "public", "identifier": {"n": "a"}}
            line = await server.send("POST", "/api/v1/notification", body, **headers)
            await settled(line)
            return line.statuses[0] if line.statuses else None

        for _ in range(2):
            assert await notify(**{"content-length": "999"}) is None  # the rest never comes
        assert await notify() == 429
        assert await notify(authorization=f"Bearer {sign()}") == 200
        assert (await server.send("GET", "/health")).statuses == [200]

    run(story, tmp_path, public, TOPICS_MAX_INFLIGHT_PER_KEY="2")
