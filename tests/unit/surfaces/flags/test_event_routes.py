"""Who may open a stream of changes, for what, and in which order that is refused."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import pytest

from headrace.core.limits import EVENTS_QUERY_BYTES_MAX
from headrace.surfaces.flags.permissions import TokenType
from support.flag_streams import (
    ADMIN,
    Answered,
    FlagsSite,
    answered,
    events,
    flag,
    run,
    settled,
    told,
)
from support.lines import Line

FILES = {"flags/a.toml": flag()}
KEYED = {"HEADRACE_ADMIN_TOKEN": ADMIN}
ROOT = {"authorization": f"Bearer {ADMIN}"}


async def refused(server: FlagsSite, query: str, **headers: str) -> Answered:
    """The answer to a stream that is not opened."""
    return answered(await server.get(f"/api/v1/events?{query}", **headers))


@pytest.mark.parametrize(
    ("query", "code", "details"),
    [
        ("", "invalid_request", {}),
        ("since=billing:1", "invalid_request", {}),
        ("ns=acme/billing", "invalid_subscription", {"reason": "malformed"}),
        ("ns=acme/billing:", "invalid_subscription", {"reason": "malformed"}),
        ("ns=acme/billing:*,a", "invalid_subscription", {"reason": "malformed"}),
        ("ns=acme/billing:A", "invalid_subscription", {"reason": "malformed"}),
        ("ns=billing:*", "invalid_subscription", {"reason": "tenant_required"}),
        ("ns=acme/billing:*&ns=b/x:*", "invalid_subscription", {"reason": "cross_tenant"}),
        (
            "ns=acme/billing:*&ns=acme/billing:a",
            "invalid_subscription",
            {"reason": "duplicate_namespace", "namespace": "billing"},
        ),
        (
            "ns=acme/nothing:*",
            "invalid_subscription",
            {"reason": "unknown_namespace", "namespace": "nothing"},
        ),
        (
            "&".join(f"ns=acme/n{n}:*" for n in range(33)),
            "invalid_subscription",
            {"reason": "too_many_namespaces"},
        ),
        (
            "ns=acme/billing:" + ",".join(f"f{n}" for n in range(65)),
            "invalid_subscription",
            {"reason": "too_many_flags", "namespace": "billing"},
        ),
        ("ns=acme/billing:*&since=billing", "invalid_request", {}),
        ("ns=acme/billing:*&since=billing:-1", "invalid_request", {}),
        ("ns=acme/billing:*&since=billing:1,,", "invalid_request", {}),
    ],
)
def test_what_makes_no_sense_is_refused(query: str, code: str, details: dict[str, str]) -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(FILES)
        reply = await refused(server, query)
        assert (reply.status, reply.code) == (400, code), reply
        found = reply.json["error"]["details"]
        assert {name: found.get(name) for name in details} == details
        assert "problem" not in found

    run(story)


def test_limits_are_allowed_to_be_reached() -> None:
    async def story(server: FlagsSite) -> None:
        for n in range(32):
            await server.make(f"n{n}")
        await server.put(FILES, "n0")
        line = await server.follow(*[f"acme/n{n}:*" for n in range(32)])
        assert told(line) == ["version n0:1 snapshot"]
        keys = ",".join(["a", *(f"f{n}" for n in range(63)), "a"])
        assert told(await server.follow(f"acme/n0:{keys}")) == ["version n0:1 snapshot"]

    run(story)


@pytest.mark.parametrize("authorization", [{}, {"authorization": "Bearer wrong"}, ROOT])
def test_a_query_that_is_too_long_is_refused_first_and_without_a_body(
    authorization: dict[str, str],
) -> None:
    async def story(server: FlagsSite) -> None:
        query = "ns=malformed&x="
        query += "x" * (EVENTS_QUERY_BYTES_MAX - len(query))
        reply = await refused(server, query + "x", **authorization)
        assert (reply.status, reply.body) == (414, b"")
        reply = await refused(server, query, **authorization)
        assert reply.status == (400 if authorization == ROOT else 401)

    run(story, **KEYED)


def test_refusals_come_in_order() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(FILES)
        client = await server.issue(TokenType.NAMESPACE_CLIENT, "billing")
        reader = await server.issue(TokenType.NAMESPACE_READ, "billing")
        admin = await server.issue(TokenType.TENANT_ADMIN)
        codes = {}
        for name, token in (("client", client), ("reader", reader), ("admin", admin)):
            for query in ("ns=billing:*,a", "ns=growth:*", "ns=billing:*&ns=growth:*"):
                reply = await refused(server, query, authorization=token.authorization)
                codes[name, query] = reply.status, reply.code
        assert codes == {
            ("client", "ns=billing:*,a"): (400, "invalid_subscription"),
            ("client", "ns=growth:*"): (403, "forbidden"),
            ("client", "ns=billing:*&ns=growth:*"): (403, "forbidden"),
            ("reader", "ns=billing:*,a"): (400, "invalid_subscription"),
            ("reader", "ns=growth:*"): (403, "forbidden"),
            ("reader", "ns=billing:*&ns=growth:*"): (403, "forbidden"),
            ("admin", "ns=billing:*,a"): (400, "invalid_subscription"),
            ("admin", "ns=growth:*"): (400, "invalid_subscription"),
            ("admin", "ns=billing:*&ns=growth:*"): (400, "invalid_subscription"),
        }
        lines = [
            await server.follow("billing:*", authorization=reader.authorization) for _ in range(16)
        ]
        reply = await refused(server, "ns=billing:*", authorization=reader.authorization)
        assert (reply.status, reply.code) == (429, "rate_limit_exceeded")
        assert int(reply.headers["retry-after"]) >= 1
        for query, status in (("ns=x", 400), ("ns=growth:*", 403)):  # before that is counted
            reply = await refused(server, query, authorization=reader.authorization)
            assert reply.status == status
        assert told(await server.follow("billing:*", authorization=admin.authorization))
        lines[3].close()
        await settled(lines[3])
        line = await server.follow("billing:*", authorization=reader.authorization)
        assert told(line) == ["version billing:1 snapshot"]

    run(story, **KEYED)


@pytest.mark.parametrize(
    ("kind", "may"),
    [
        (TokenType.NAMESPACE_READ, True),
        (TokenType.NAMESPACE_WRITE, True),
        (TokenType.NAMESPACE_CLIENT, False),
        (TokenType.TENANT_ADMIN, True),
    ],
)
def test_types_of_tokens(kind: TokenType, may: bool) -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(FILES)
        bound = () if kind is TokenType.TENANT_ADMIN else ("billing",)
        token = await server.issue(kind, *bound)
        line = await server.follow("billing:*", authorization=token.authorization)
        assert line.statuses == [200 if may else 403]
        # A tenant in the subscription is for superadmins.
        reply = await refused(server, "ns=acme/billing:*", authorization=token.authorization)
        assert (reply.status, reply.json["error"]["details"]["reason"]) == (400, "malformed")

    run(story, **KEYED)


def test_nobody_and_who_is_bound_to_no_tenant() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(FILES)
        assert (await refused(server, "ns=billing:*")).status == 401
        reply = await refused(server, "ns=billing:*", authorization="Bearer topics")
        assert (reply.status, reply.code) == (403, "forbidden")
        assert told(await server.follow("acme/billing:*", **ROOT))

    run(story, **KEYED, HEADRACE_API_KEYS="topics")


@pytest.mark.parametrize("origins", ["", "*", "https://a.example"])
def test_the_head_of_a_stream_and_no_word_to_pages(origins: str) -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(FILES)
        given = {"origin": "https://a.example"} | ROOT
        line = await server.follow("acme/billing:*", **given)
        head = line.heard.partition(b"\r\n\r\n")[0].decode().lower().split("\r\n")
        assert head[0] == "http/1.1 200 ok"
        assert "content-type: text/event-stream" in head
        assert "cache-control: no-cache" in head
        assert "x-accel-buffering: no" in head
        replies = [head, (await refused(server, "ns=x", **given)).headers]
        replies.append(
            answered(
                await server.get(
                    "/api/v1/events", "OPTIONS", access_control_request_method="GET", **given
                )
            ).headers
        )
        assert not any("access-control" in name for reply in replies for name in reply)

    run(story, **KEYED, **({"HEADRACE_CORS_ORIGINS": origins} if origins else {}))


def test_hints_are_checked_counted_and_change_nothing() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(FILES, "billing")
        await server.put(FILES, "growth")
        metrics = server.app._flags.stream_metrics
        hint = "since=billing:1,growth:7&since=unknown:3"
        line = await server.get(
            f"/api/v1/events?ns=acme/billing:*&ns=acme/growth:*&{hint}", last_event_id="billing:0"
        )
        assert sorted(told(line)) == ["version billing:1 snapshot", "version growth:1 snapshot"]
        assert all(event.data["prev_version"] is None for event in events(line))
        assert metrics._hints == {("behind",): 1, ("ahead",): 1}
        reply = await refused(server, "ns=acme/billing:*", last_event_id="billing:x")
        assert (reply.status, reply.code) == (400, "invalid_request")

    run(story)


def test_keys_may_be_percent_encoded() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(FILES)
        line = await server.follow(quote("acme/billing:a,b", safe=""))
        assert told(line) == ["version billing:1 snapshot"]

    run(story)


def test_who_takes_no_events_is_told_so() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(FILES)
        assert (await refused(server, "ns=acme/billing:*", accept="text/html")).status == 406

    run(story)


@pytest.mark.parametrize(
    ("environ", "base"),
    [
        ({}, "http://localhost"),
        ({"HEADRACE_PUBLIC_URL": "https://flags.example"}, "https://flags.example"),
    ],
)
def test_links_are_absolute(environ: dict[str, str], base: str) -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(FILES)
        (first,) = events(await server.follow("acme/billing:*"))
        path = "/api/v1/tenants/acme/namespaces/billing/closure?version=1&subscription=Kg&token="
        assert first.data["snapshot_url"].startswith(base + path)

    run(story, **environ)


def test_an_old_client_gets_no_chunks() -> None:
    async def story(server: FlagsSite) -> None:
        await server.put(FILES)
        line: Line = server.site.connect()
        await line.send(b"GET /api/v1/events?ns=acme/billing:* HTTP/1.0\r\nhost: localhost\r\n\r\n")
        await settled(line)
        await server.put({"flags/a.toml": flag(note="2")})
        await settled(line)
        body = line.heard.partition(b"\r\n\r\n")[2]
        assert [block.split(b"\n")[0] for block in body.split(b"\n\n") if block] == [
            b"id: billing:1",
            b"id: billing:2",
        ]
        line.protocol.shutdown()
        await asyncio.sleep(1)
        assert line.heard.endswith(body)

    run(story)
