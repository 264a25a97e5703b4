"""Tenants, namespaces and tokens in races, over time and across restarts."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
import pytest

from headrace.core.config import LogConfig
from headrace.core.errors import Code
from headrace.core.owners import FLAGS, TOPICS
from headrace.core.token import Grants, Token
from headrace.formats import layout
from headrace.search.values import format_date
from headrace.surfaces.flags import tokens
from headrace.surfaces.flags.errors import REFUSALS
from headrace.surfaces.flags.permissions import TokenType
from headrace.web.credentials import ADMIN, ALL_SCOPES
from support.flags_server import FlagsServer, run
from support.hostile import HostileDisk
from support.manifests import FLAG_FILE

ACME = "/api/v1/tenants/acme"


@pytest.mark.parametrize("path", ["/api/v1/tenants", f"{ACME}/namespaces"])
def test_of_many_who_make_the_same_one_does(path: str) -> None:
    async def story(server: FlagsServer) -> None:
        asked = [server.send("POST", path, {"slug": "new"}) for _ in range(20)]
        replies = await asyncio.gather(*asked)
        assert Counter(reply.status for reply in replies) == {201: 1, 409: 19}

    run(story)


def test_a_namespace_is_deleted_by_one_of_many() -> None:
    async def story(server: FlagsServer) -> None:
        uploaded = await server.upload({"flags/a.toml": FLAG_FILE.format(said="").encode()})
        assert (uploaded.status, len(server.engine.contents)) == (200, 1)
        asked = [server.send("DELETE", f"{ACME}/namespaces/billing") for _ in range(10)]
        replies = await asyncio.gather(*asked)
        assert Counter(reply.status for reply in replies) == {204: 1, 404: 9}
        assert len(server.engine.contents) == 0

    run(story)


def test_a_token_is_revoked_by_one_of_many() -> None:
    async def story(server: FlagsServer) -> None:
        made = await server.make_token(TokenType.TENANT_ADMIN)
        target = f"{ACME}/tokens/{made['token']['id']}"
        replies = await asyncio.gather(*(server.send("DELETE", target) for _ in range(10)))
        assert Counter(reply.status for reply in replies) == {204: 1, 404: 9}
        reply = await server.send("GET", "/api/v1/tenants", token=made["secret"])
        assert reply.status == 401

    run(story)


def test_a_cap_holds_for_who_come_at_once() -> None:
    async def story(server: FlagsServer) -> None:
        body = {"type": "tenant-admin", "name": "a"}
        asked = [server.send("POST", f"{ACME}/tokens", body) for _ in range(10)]
        replies = await asyncio.gather(*asked)
        assert Counter(reply.status for reply in replies) == {201: 2, 429: 8}

    run(story, FLAGS_MAX_TOKENS_PER_TENANT="6")  # four are there


def test_a_token_that_expires_is_known_no_more_and_makes_room() -> None:
    async def story(server: FlagsServer) -> None:
        now = await server.send("GET", f"{ACME}/tokens")
        count = len(now.json["tokens"])
        at = format_date(server.engine.clock.now_ms() + 10_000)
        made = await server.make_token(TokenType.TENANT_ADMIN, expires_at=at)
        secret = made["secret"]
        assert (await server.send("GET", "/api/v1/tenants", token=secret)).status == 200
        refused = await server.send("POST", f"{ACME}/tokens", {"type": "tenant-admin", "name": "a"})
        assert refused.status == 429
        await asyncio.sleep(11)
        assert (await server.send("GET", "/api/v1/tenants", token=secret)).status == 401
        listed = await server.send("GET", f"{ACME}/tokens")
        assert len(listed.json["tokens"]) == count + 1, "expired ones are listed"
        await server.make_token(TokenType.TENANT_ADMIN)

    run(story, FLAGS_MAX_TOKENS_PER_TENANT="5")


def test_tokens_of_a_tenant_are_found_without_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[Token] = []
    is_of = tokens._is_of

    def noted(token: Token, tenant: str) -> bool:
        looked_at.append(token)
        return is_of(token, tenant)

    monkeypatch.setattr(tokens, "_is_of", noted)

    async def story(server: FlagsServer) -> None:
        for _ in range(20):
            await server.make_token(TokenType.TENANT_ADMIN, "other")
        assert not looked_at  # there is room: nobody has to be counted
        reply = await server.send("GET", "/api/v1/tenants/acme/tokens")
        listed = [each["id"] for each in reply.json["tokens"]]
        assert len(listed) == 4
        assert [token.id for token in looked_at] == listed
        for id in listed:
            await server.send("DELETE", f"/api/v1/tenants/acme/tokens/{id}")
        reply = await server.send("GET", "/api/v1/tenants/acme/tokens")
        assert reply.json["tokens"] == []
        assert "acme" not in server.engine.state.tokens_by_tenant

    run(story)


def test_no_secret_is_on_the_disk() -> None:
    disk = HostileDisk()

    async def story(server: FlagsServer) -> None:
        journal = [f"{layout.JOURNAL}/{name}" for name in disk.list(layout.JOURNAL)]
        stored = b"".join(map(disk.read, journal))
        assert b"tenant-admin" in stored, "the tokens are"
        for secret in server.secrets.values():
            assert secret.encode() not in stored
            assert secret.partition("_")[2].encode() not in stored

    run(story, disk=disk)


def test_a_log_of_somebody_else_is_no_namespace() -> None:
    """One may be older than the surface that its name is kept for now."""

    async def story(server: FlagsServer) -> None:
        server.engine.state.by_name["flags:acme:billing"].owner = TOPICS
        reply = await server.send("POST", f"{ACME}/namespaces", {"slug": "billing"})
        assert (reply.status, reply.json["error"]["code"]) == (409, "conflict")
        body = {"type": "namespace-read", "name": "a", "namespace": "billing"}
        reply = await server.send("POST", f"{ACME}/tokens", body)
        assert (reply.status, reply.json["error"]["code"]) == (404, "namespace_not_found")

    run(story)


def test_a_namespace_is_a_log_that_keeps_everything() -> None:
    async def story(server: FlagsServer) -> None:
        log = server.engine.state.by_name["flags:acme:billing"]
        assert log.owner == FLAGS
        assert log.config.synced
        assert not log.config.trims

    run(story)


def test_without_credentials_everybody_is_a_superadmin() -> None:
    async def story(server: FlagsServer) -> None:
        for token in ("", "anything"):
            reply = await server.send("GET", "/api/v1/tokens", token=token)
            assert reply.status == 200

    run(story, HEADRACE_ADMIN_TOKEN="", TOPICS_API_KEYS="")


def test_every_refusal_has_a_status_and_a_code() -> None:
    assert REFUSALS.keys() == set(Code)
    assert all(400 <= refusal.status < 600 and refusal.code for refusal in REFUSALS.values())


def test_tokens_of_before_are_read() -> None:
    """A journal from before tokens had an environment."""
    grants = msgspec.msgpack.encode((1, ("a.",), ("acme",), ("acme/b",), ("r",), "realm", False))
    read = msgspec.msgpack.decode(grants, type=Grants)
    assert (read.realm, read.environment) == ("realm", "")
    token = Token("tok_1", b"d" * 32, Grants(ALL_SCOPES.value, environment="production"))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(token), type=Token) == token


def test_a_log_of_before_has_no_date() -> None:
    async def story(server: FlagsServer) -> None:
        log, _ = await server.engine.logs.put("t", TOPICS, LogConfig())
        assert log.created_at_ms == 0
        assert server.engine.state.by_name["flags:acme:billing"].created_at_ms > 0

    run(story)


def test_a_namespace_that_is_deleted_while_it_is_made_was_made() -> None:
    async def story(server: FlagsServer) -> None:
        path = "/api/v1/tenants/acme/namespaces"
        made, gone = await asyncio.gather(
            server.send("POST", path, {"slug": "short"}), server.send("DELETE", f"{path}/short")
        )
        assert (made.status, made.json["namespace"]["version"], gone.status) == (201, 0, 204)
        again = await server.send("DELETE", f"{path}/short")
        assert again.json["error"]["code"] == "namespace_not_found"

    run(story)


def test_what_there_is_is_counted() -> None:
    async def story(server: FlagsServer) -> None:
        await server.send("BREW", "/api/v1/tenants")
        samples = server.app._flags.surface.samples
        assert samples is not None
        found = {each.name: each.plain() for each in samples(ADMIN)}
        assert (found["flags_tenants"], found["flags_namespaces"]) == (2, 3)
        assert found["flags_tokens"] == {type.value: 1 for type in TokenType}
        made_up = {"route": "/api/v1/tenants", "method": "other", "status_code": "405", "value": 1}
        assert made_up in found["flags_http_requests_total"]

    run(story)
