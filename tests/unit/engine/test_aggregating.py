"""Aggregates and keys of streams: forks, other plans, other versions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import msgspec
import pytest

from headrace.core.errors import Refused
from headrace.core.record import draft
from headrace.core.stream_state import JSON, Write
from headrace.engine.search import aggregating
from headrace.engine.search.aggregating import Aggregated, aggregate
from headrace.engine.search.keys import list_keys
from headrace.schemas.evolution import parse_update
from headrace.web.search_requests import parse_aggregate_request
from support.virtual_server import Scene, stage


def bound(kind: str, *pointers: str, **more: Any) -> dict[str, Any]:
    bindings = [{"version": at, "jsonPointer": p} for at, p in enumerate(pointers, 1)]
    return {"kind": kind, "bindings": bindings, **more}


def search(*services: str) -> dict[str, Any]:
    return {
        "primaryTimestampField": "at",
        "fields": {
            "at": bound("date", "/at", column=True),
            "service": bound("keyword", *services, exact=True),
        },
        "rollups": {
            "all": {
                "dimensions": ["service"],
                "intervals": ["1s"],
                "measures": {"n": {"kind": "count"}},
            }
        },
    }


FIRST = {
    "schema": {
        "type": "object",
        "properties": {"svc": {"type": "string"}},
        "required": ["svc"],
    },
    "routingKey": {"jsonPointer": "/svc", "required": True},
    "search": search("/svc"),
}
SECOND = {
    "schema": {
        "type": "object",
        "properties": {"service": {"type": "string"}},
        "required": ["service"],
    },
    "lens": {
        "apiVersion": "durable.lens/v1",
        "schema": "a",
        "from": 1,
        "to": 2,
        "ops": [{"op": "rename", "from": "/svc", "to": "/service"}],
    },
    "routingKey": {"jsonPointer": "/service", "required": True},
    "search": search("/svc", "/service"),
}


class Plot(Scene):
    """A schema is there, too, and what is told of it is asked for."""

    async def begin(self) -> None:
        await super().begin()
        await self.install(FIRST)

    async def install(self, update: dict[str, Any]) -> None:
        live = self.engine.streams.own("a")
        await self.engine.ingest.install_schema(live, parse_update(msgspec.json.encode(update)))
        await self.upkeep._publisher.publish_plans()

    async def append(self, name: str, field: str, *services: str) -> None:
        raws = [b'{"at":1500,"%b":"%b"}' % (field.encode(), s.encode()) for s in services]
        await self.engine.streams.write(name, draft(raws), Write(JSON))

    async def archive(self) -> None:
        await self.seal()
        await self.index()

    async def ask(self, name: str, **more: Any) -> Aggregated:
        asked = {"rollup": "all", "from": 0, "to": 10_000, "interval": "1s", **more}
        return await aggregate(
            self.engine, self.engine.streams.find(name), partial(parse_aggregate_request, asked)
        )

    async def counts(self, name: str, **more: Any) -> dict[str, int]:
        found = await self.ask(name, group_by=["service"], **more)
        assert found.coverage.complete
        return {
            group["key"]["service"]: group["measures"]["n"]["count"]
            for bucket in found.buckets
            for group in bucket["groups"]
        }

    async def keys(self, name: str) -> list[str]:
        return (await list_keys(self.engine, self.engine.streams.find(name), None, 100)).keys


Story = Callable[[Plot], Awaitable[None]]


@pytest.fixture
def tell() -> Iterator[Callable[[Story], None]]:
    with stage(Plot) as tell:
        yield tell


def test_windows_are_used_where_they_are_whole(tell: Callable[[Story], None]) -> None:
    async def story(scene: Plot) -> None:
        await scene.append("a", "svc", "x", "y", "x")
        await scene.archive()
        found = await scene.ask("a")
        assert found.used_rollups
        assert found.coverage.families == {"agg", "col"}
        assert found.coverage.indexed == {1}
        assert not (await scene.ask("a", **{"from": 1, "to": 1800})).used_rollups
        assert not (await scene.ask("a", q="NOT service:x")).used_rollups
        assert await scene.counts("a") == {"x": 2, "y": 1}
        assert await scene.counts("a", **{"from": 1, "to": 1800}) == {"x": 2, "y": 1}
        assert await scene.counts("a", q="NOT service:x") == {"y": 1}

    tell(story)


def test_a_fork_counts_what_it_inherited_and_no_more(tell: Callable[[Story], None]) -> None:
    async def story(scene: Plot) -> None:
        await scene.append("a", "svc", "x", "y", "z", "z")
        await scene.archive()
        await scene.create("b", "a", 2)
        await scene.append("b", "svc", "w")
        assert await scene.counts("b") == {"x": 1, "y": 1, "w": 1}
        assert await scene.keys("b") == ["w", "x", "y"]
        await scene.archive()
        assert await scene.counts("b") == {"x": 1, "y": 1, "w": 1}
        assert await scene.keys("b") == ["w", "x", "y"]
        assert await scene.counts("a") == {"x": 1, "y": 1, "z": 2}

    tell(story)


def test_records_of_an_older_version_count_as_they_are_now(tell: Callable[[Story], None]) -> None:
    async def story(scene: Plot) -> None:
        await scene.append("a", "svc", "x", "y")
        await scene.archive()
        await scene.append("a", "svc", "x")
        await scene.install(SECOND)
        await scene.append("a", "service", "x", "z")
        expected = {"x": 3, "y": 1, "z": 1}
        assert await scene.counts("a") == expected  # the build is of another plan
        assert await scene.keys("a") == ["x", "y", "z"]
        await scene.archive()
        found = await scene.ask("a")
        assert found.used_rollups
        assert not found.coverage.scanned
        assert await scene.counts("a") == expected
        assert await scene.counts("a", q="service:x") == {"x": 3}

    tell(story)


def test_an_answer_has_a_bound(
    tell: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(scene: Plot) -> None:
        monkeypatch.setattr(aggregating, "AGGREGATE_GROUPS_MAX", 2)
        monkeypatch.setattr(aggregating, "_COMPACT_CELLS", 1)
        await scene.append("a", "svc", "x", "y", "x", "y")
        await scene.archive()
        await scene.append("a", "svc", "x")
        assert await scene.counts("a") == {"x": 3, "y": 2}
        await scene.append("a", "svc", "z")
        with pytest.raises(Refused, match="more than 2 groups"):
            await scene.ask("a", group_by=["service"])
        assert len((await scene.ask("a")).buckets) == 1

    tell(story)


def test_keys_too_long_for_a_build_are_listed_too(tell: Callable[[Story], None]) -> None:
    async def story(scene: Plot) -> None:
        long = ["k" * 1500 + end for end in ("b", "a")]
        await scene.append("a", "svc", "k", *long, "z")
        await scene.archive()
        await scene.append("a", "svc", "l")
        assert await scene.keys("a") == ["k", long[1], long[0], "l", "z"]
        live = scene.engine.streams.find("a")
        page = await list_keys(scene.engine, live, long[1], 2)
        assert (page.keys, page.more) == ([long[0], "l"], True)

    tell(story)
