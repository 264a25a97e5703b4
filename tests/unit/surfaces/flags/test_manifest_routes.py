"""Uploads and evaluation on a whole server: what is refused before any work, and where work is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace.core.errors import Code, Refused
from headrace.core.limits import (
    MANIFEST_UPLOADS_MAX,
    MANIFEST_UPLOADS_PER_KEY,
    MANIFEST_UPLOADS_PER_TENANT,
)
from headrace.surfaces.flags import evaluation
from headrace.surfaces.flags.permissions import TokenType
from support.flags_server import BILLING, OTHERS, FlagsServer, run

FLAG = b"""
schema_version = "0.1"
[flag]
type = "boolean"
[flag.variants]
on = true
off = false
[flag.environments._]
variant = "off"
[[flag.environments._.rules]]
predicate = { attribute = "plan", op = "eq", value = "pro" }
variant = "on"
"""
FILES = {"flags/a.toml": FLAG, "flags/b.toml": FLAG}


def test_who_has_too_many_uploads_under_way_is_turned_away() -> None:
    async def story(server: FlagsServer) -> None:
        writer, admin = (
            server.secrets[TokenType.NAMESPACE_WRITE],
            server.secrets[TokenType.TENANT_ADMIN],
        )
        ask, held = server.checker.ask, asyncio.Event()

        async def ask_later(*args: Any) -> Any:
            await held.wait()
            return await ask(*args)

        server.checker.ask = ask_later  # type: ignore[method-assign]
        waiting = [
            asyncio.ensure_future(server.upload(FILES, token=writer))
            for _ in range(MANIFEST_UPLOADS_PER_KEY)
        ]
        await asyncio.sleep(1)
        for lint in (False, True):
            reply = await server.upload(FILES, token=writer, lint=lint)
            assert (reply.status, reply.headers["retry-after"]) == (429, "1")
            error = reply.json["error"]
            assert error["code"] == "rate_limit_exceeded"
            assert error["details"]["limit"] == "max_manifest_uploads_per_key"
        another = asyncio.ensure_future(server.upload(FILES, token=admin))
        held.set()
        assert [(await each).status for each in waiting] == [200] * MANIFEST_UPLOADS_PER_KEY
        assert (await another).status == 200
        assert (await server.upload(FILES, token=writer)).status == 200

    run(story)


def test_one_tenant_leaves_room_for_the_uploads_of_others() -> None:
    """Lint takes as long as an upload, and whoever may read may ask for it: with a few tokens a
    tenant could otherwise keep all others from uploading.
    """

    async def story(server: FlagsServer) -> None:
        ask, held = server.checker.ask, asyncio.Event()

        async def ask_later(*args: Any) -> Any:
            await held.wait()
            return await ask(*args)

        server.checker.ask = ask_later  # type: ignore[method-assign]
        tokens = [
            (await server.make_token(TokenType.NAMESPACE_READ, namespace="billing"))["secret"]
            for _ in range(MANIFEST_UPLOADS_MAX // MANIFEST_UPLOADS_PER_KEY)
        ]
        asked = [
            asyncio.ensure_future(server.upload(FILES, token=token, lint=True))
            for token in tokens
            for _ in range(MANIFEST_UPLOADS_PER_KEY)
        ]
        other = await server.make_token(TokenType.NAMESPACE_WRITE, "other", namespace="billing")
        upload = asyncio.ensure_future(
            server.upload(FILES, token=other["secret"], namespace=OTHERS)
        )
        await asyncio.sleep(1)
        held.set()
        assert (await upload).status == 200
        replies = [await each for each in asked]
        assert [each.status for each in replies].count(200) == MANIFEST_UPLOADS_PER_TENANT
        limits = {each.json["error"]["details"]["limit"] for each in replies if each.status == 429}
        assert limits == {"max_manifest_uploads_per_tenant"}

    run(story)


@pytest.mark.parametrize(
    ("refused", "status", "code"),
    [
        (Refused(Code.NOT_READY, "it ended"), 503, "unavailable"),
        (Refused(Code.THROTTLED, "too many wait"), 429, "rate_limit_exceeded"),
        (Refused(Code.BODY_TOO_LARGE, "it takes too long"), 413, "payload_too_large"),
        (Refused(Code.INTERNAL, "nonsense"), 500, "internal_error"),
    ],
)
def test_what_the_process_could_not_do_is_told(refused: Refused, status: int, code: str) -> None:
    async def story(server: FlagsServer) -> None:
        async def fail(tenant: str, talk: object) -> object:
            raise refused

        converse = server.checker.converse
        server.checker.converse = fail  # type: ignore[method-assign, assignment]
        reply = await server.upload(FILES)
        assert (reply.status, reply.json["error"]["code"]) == (status, code)
        assert ("retry-after" in reply.headers) is (status in (429, 503))
        server.checker.converse = converse  # type: ignore[method-assign]
        assert (await server.upload(FILES)).json["version"] == 1

    run(story)


def test_a_version_that_is_not_current_is_refused_before_any_work() -> None:
    async def story(server: FlagsServer) -> None:
        reply = await server.upload(FILES, if_version="1")
        assert (reply.status, reply.json["error"]["details"]) == (409, {"current_version": 0})
        assert server.checker.requests == []
        assert (await server.upload(FILES, if_version="0")).status == 200

    run(story)


def test_of_many_with_the_same_version_one_wins() -> None:
    async def story(server: FlagsServer) -> None:
        uploads = [server.upload(FILES, if_version="0") for _ in range(5)]
        replies = await asyncio.gather(*uploads)
        assert sorted(reply.status for reply in replies) == [200, 409, 409, 409, 409]
        for reply in replies:
            if reply.status == 409:
                assert reply.json["error"]["code"] == "version_conflict"
                assert reply.json["error"]["details"] == {"current_version": 1}

    run(story)


def evaluations(server: FlagsServer) -> list[Callable[[], Awaitable[Any]]]:
    """Every way to evaluate, each with the value that comes of it."""
    context = {"plan": "pro"}

    async def one() -> Any:
        body = {"flag": "a", "context": context}
        return (await server.send("POST", f"{BILLING}/evaluate", body)).json["value"]

    async def every() -> Any:
        reply = await server.send("POST", f"{BILLING}/evaluate/all", {"context": context})
        return reply.json["flags"]["b"]["value"]

    async def ofrep() -> Any:
        path = f"{BILLING}/ofrep/v1/evaluate/flags"
        reply = await server.send("POST", path, {"context": context})
        return reply.json["flags"][1]["value"]

    return [one, every, ofrep]


@pytest.mark.parametrize("inline_bytes", [0, 1 << 20])
def test_small_evaluations_are_made_on_the_loop_and_large_ones_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, inline_bytes: int
) -> None:
    monkeypatch.setattr(evaluation, "EVALUATION_INLINE_BYTES", inline_bytes)

    async def story(server: FlagsServer) -> None:
        await server.upload(FILES)
        pool, runs = server.engine.pool, []
        run_there = pool.run

        async def counted(*args: Any) -> Any:
            runs.append(args)
            return await run_there(*args)

        monkeypatch.setattr(pool, "run", counted)
        for evaluate in evaluations(server):
            assert await evaluate() is True
        assert len(runs) == (0 if inline_bytes else 3)

    run(story)


def test_what_all_flags_are_is_written_where_they_are_evaluated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluation, "EVALUATION_INLINE_BYTES", 0)

    async def story(server: FlagsServer) -> None:
        await server.upload(FILES)
        pool, results = server.engine.pool, []
        run_there = pool.run

        async def noted(*args: Any) -> Any:
            results.append(await run_there(*args))
            return results[-1]

        monkeypatch.setattr(pool, "run", noted)
        for path in ("evaluate/all", "ofrep/v1/evaluate/flags"):
            reply = await server.send("POST", f"{BILLING}/{path}", {"context": {}})
            assert [reply.body] == results
            results.clear()

    run(story)


def test_large_evaluations_of_one_tenant_do_not_hold_up_those_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluation, "EVALUATION_INLINE_BYTES", 0)

    async def story(server: FlagsServer) -> None:
        for namespace in (BILLING, OTHERS):
            await server.upload(FILES, namespace=namespace)
        pool, held, run_there = server.engine.pool, asyncio.Event(), server.engine.pool.run

        async def run_later(*args: Any) -> Any:
            await held.wait()
            return await run_there(*args)

        monkeypatch.setattr(pool, "run", run_later)
        answered: list[str] = []

        async def evaluate(namespace: str) -> None:
            reply = await server.send("POST", f"{namespace}/evaluate/all", {})
            assert reply.status == 200
            answered.append(namespace)

        asked = [asyncio.ensure_future(evaluate(each)) for each in [*[BILLING] * 20, OTHERS]]
        await asyncio.sleep(1)
        held.set()
        await asyncio.gather(*asked)
        assert answered.index(OTHERS) == 2

    run(story)


def test_what_is_at_hand_is_evaluated_without_the_process() -> None:
    async def story(server: FlagsServer) -> None:
        await server.upload(FILES)
        server.checker.requests.clear()
        for evaluate in evaluations(server):
            assert await evaluate() is True
        assert server.checker.requests == []

    run(story)


def test_metrics_tell_what_was_parsed() -> None:
    async def story(server: FlagsServer) -> None:
        for _ in range(2):
            await server.upload(FILES)
        await server.upload(FILES | {"flags/a.toml": FLAG + b"# changed"})
        metrics = (await server.send("GET", "/v0/metrics", accept="application/json")).json
        assert metrics["flags_manifest_files_checked_total"] == 6
        assert metrics["flags_manifest_files_parsed_total"] == 3

    run(story)
