"""The client of flags and the server of flags, both whole, in virtual time and without sockets.

Versions come and go, namespaces are made anew, lines are cut or stand still: when things are quiet,
the client has exactly the closures of the newest versions.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, cast
from unittest import mock

import pytest

from headrace.client.flags import AsyncFlagGroup, FlagState, RefreshCheck, RefreshPolicy
from headrace.flags.subscription import EVERY_FLAG, FlagSet
from headrace.surfaces.flags.permissions import TokenType
from headrace.surfaces.flags.versions import Retention
from headrace.web.connection import Connection
from support import flag_streams
from support.flag_streams import ADMIN, FlagsSite
from support.flag_trees import FLAG_KEYS, Files, ManifestMaker, naive_closure
from support.lines import Line
from support.soak import Seeds

STEPS = 60
SLUGS = ("billing", "growth")
CREDENTIALS = {"HEADRACE_ADMIN_TOKEN": ADMIN}
POLICY = RefreshPolicy(pause_s=1, pause_s_max=4)
QUIET_S = 120.0
"""Longer than all pauses that a client may be making."""


class BothEnds(Line):
    """A connection with both of its ends; it can stand still, and be cut."""

    def __init__(self) -> None:
        super().__init__()
        self.reader = asyncio.StreamReader()
        self.stands_still = False
        self._kept: list[bytes] = []

    def write(self, data: Any) -> None:
        if not self.closing:
            super().write(data)
            self._kept.append(bytes(data))
            self.go_on()

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def go_on(self) -> None:
        while self._kept and not self.stands_still and not self.reader.at_eof():
            self.reader.feed_data(self._kept.pop(0))

    def close(self) -> None:
        super().close()
        self._end()

    def abort(self) -> None:
        if not self.closing:
            super().abort()
            self._end()

    def _end(self) -> None:
        self.stands_still = False
        self.go_on()
        self.reader.feed_eof()


class ClientEnd:
    """What the client writes to."""

    def __init__(self, line: BothEnds) -> None:
        self._line = line

    @property
    def transport(self) -> ClientEnd:
        return self

    def write(self, data: bytes) -> None:
        self._line.receive(data)

    def abort(self) -> None:
        self._line.abort()


class Pair:
    """A server, a client, and what is true."""

    def __init__(self, server: FlagsSite, random: Random, seed: int, steps: int = STEPS) -> None:
        self.server = server
        self.random = random
        self.lines: list[BothEnds] = []
        self.histories = {
            slug: ManifestMaker(seed + at).history(steps) for at, slug in enumerate(SLUGS)
        }
        some = FlagSet(tuple(sorted(random.sample(FLAG_KEYS, 2))))
        self.flags = {slug: random.choice([EVERY_FLAG, some]) for slug in SLUGS}
        self.current: dict[str, Files] = {}

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        line = BothEnds()
        line.protocol = Connection(self.server.site.app, self.server.site.shared)
        line.protocol.connection_made(line)
        self.lines = [each for each in self.lines if not each.closing] + [line]
        return line.reader, cast(asyncio.StreamWriter, ClientEnd(line))

    # --- steps ------------------------------------------------------------------------------------

    async def step(self) -> None:
        slug = self.random.choice(SLUGS)
        match self.random.choice(["put"] * 6 + ["cut", "still", "anew", "burst", "wait", "wait"]):
            case "put":
                await self.put(slug)
            case "burst":
                for _ in range(5):
                    await self.put(slug)
            case "cut":
                for line in self.random.sample(self.lines, min(1, len(self.lines))):
                    line.abort()
            case "still":
                for line in self.lines:
                    line.stands_still = self.random.random() < 0.5
                    line.go_on()
            case "anew":
                await self.server.drop(slug)
                await self.server.make(slug)
                self.current.pop(slug, None)
                await self.put(slug)
            case "wait":
                await asyncio.sleep(self.random.choice([0.001, 0.1, 5, 100]))

    async def put(self, slug: str) -> None:
        if self.histories[slug]:
            self.current[slug] = self.histories[slug].pop(0)
            await self.server.put(self.current[slug], slug)

    async def settle(self) -> None:
        for line in self.lines:
            line.stands_still = False
            line.go_on()
        await asyncio.sleep(QUIET_S)

    def check(self, group: AsyncFlagGroup) -> None:
        for slug, files in self.current.items():
            namespace = group.namespace(slug)
            wanted = {path: files[path] for path in naive_closure(files, self.flags[slug])}
            assert namespace.files == wanted, (slug, namespace.last_refresh_error())
            assert namespace.state is FlagState.FRESH
            assert namespace.last_refresh_error() is None


def run(seed: int, steps: int = STEPS) -> None:
    random = Random(seed)
    retention = random.choice([Retention(), Retention(2, 0), Retention(1, 0)])

    async def story(server: FlagsSite) -> None:
        pair = Pair(server, random, seed, steps)
        for slug in SLUGS:
            await server.make(slug)
        token = await server.issue(TokenType.TENANT_ADMIN)
        namespaces = {slug: flags.canonical for slug, flags in pair.flags.items()}
        async with AsyncFlagGroup(
            "http://localhost",
            token=token.authorization.removeprefix("Bearer "),
            namespaces=namespaces,
            policy=POLICY,
            connect=pair.connect,
        ) as group:
            for number in range(1, steps + 1):
                await pair.step()
                if number % 20 == 0:
                    await pair.settle()
                    pair.check(group)

    with mock.patch("headrace.delivery.tasks.log_line") as failures:
        flag_streams.run(story, retention=retention, **CREDENTIALS)
    assert failures.call_args_list == []


@pytest.mark.parametrize("seed", [*range(5), 32, 71, 80])
def test_the_client_has_what_the_server_has(seed: int) -> None:
    run(seed)


@pytest.mark.soak
def test_fresh_seeds(fresh_seeds: Seeds) -> None:
    for seed in fresh_seeds:
        run(seed, 200)


def test_a_token_that_is_revoked_ends_refreshing_but_not_serving() -> None:
    async def story(server: FlagsSite) -> None:
        pair = Pair(server, Random(1), 1)
        await server.make("growth")
        await pair.put("billing")
        token = await server.issue(TokenType.NAMESPACE_READ, "billing")
        pair.flags["billing"] = EVERY_FLAG
        async with AsyncFlagGroup(
            "http://localhost",
            token=token.authorization.removeprefix("Bearer "),
            namespaces={"billing": "*"},
            policy=POLICY,
            connect=pair.connect,
        ) as group:
            billing = group.namespace("billing")
            await billing.wait_ready(10)
            pair.check(group)
            served = billing.files
            await server.engine.tokens.revoke(token.id)
            await pair.put("billing")
            await asyncio.sleep(QUIET_S)
            error = billing.last_refresh_error()
            assert error is not None
            assert (error.check, error.status) == (RefreshCheck.CONNECTION, 401)
            assert billing.state is FlagState.ERROR
            assert billing.files == served

    flag_streams.run(story, **CREDENTIALS)
