"""What is known of a log beside its records, and who is told when it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import msgspec
import pytest

from headrace.core import limits
from headrace.core.record import draft
from headrace.core.stream_state import JSON, Write
from headrace.engine.search.searching import search
from headrace.engine.streams import top_streams
from headrace.storage.object_store_stats import RequestCounts
from headrace.web.search_requests import parse_search_request
from support.virtual_server import Scene, stage

SEARCH = {
    "primaryTimestampField": "at",
    "fields": {
        "at": {"kind": "date", "column": True, "bindings": [{"version": 1, "jsonPointer": "/at"}]},
        "n": {"kind": "integer", "exact": True, "bindings": [{"version": 1, "jsonPointer": "/n"}]},
        "s": {"kind": "keyword", "exact": True, "bindings": [{"version": 1, "jsonPointer": "/s"}]},
    },
}


class Plot(Scene):
    """Somebody plans, too."""

    async def append(self, name: str, count: int, key: str | None = None) -> None:
        raws = [b'{"n":%d,"s":"x"}' % number for number in range(count)]
        drafts = draft(raws, keys=[key] * count if key else None)
        await self.engine.streams.write(name, drafts, Write(JSON))

    async def plan(self, **more: object) -> None:
        raw = msgspec.json.encode({**SEARCH, **more})
        await self.engine.search_configs.put("a", "streams", raw)
        await self.upkeep._publisher.publish_plans()


Story = Callable[[Plot], Awaitable[None]]


@pytest.fixture
def tell() -> Iterator[Callable[[Story], None]]:
    with stage(Plot) as tell:
        yield tell


def test_a_survey_knows_segments_and_what_is_indexed(tell: Callable[[Story], None]) -> None:
    async def story(scene: Plot) -> None:
        inspection, live = scene.engine.index_status, scene.engine.streams.find("a")
        assert (await inspection.survey(live)).stretches == ()
        await scene.plan()
        for _ in range(3):
            await scene.append("a", 4, "k")
            await scene.seal()
        await scene.append("a", 2)
        before = await inspection.survey(live)
        assert [stretch.rows for stretch in before.stretches] == [4, 4, 4]
        assert before.own_payload_bytes == 12 * 15
        assert before.by_keys() == before.by_plan() == (3, 0, 0, 0, None)
        assert (before.keys_at_ms, before.plan_at_ms) == (None, None)
        await scene.index([1, 3])
        half = await inspection.survey(live)
        covered = half.by_plan()
        assert (covered.total, covered.covered, covered.contiguous, covered.stale) == (3, 2, 1, 0)
        first, last = half.stretches[0].last_ts_ms, half.stretches[2].last_ts_ms
        assert covered.lag_ms == last - first
        assert half.builds == 2
        assert half.share("lex").objects == half.share("exact").objects == 2
        assert half.share("lex").size_bytes > 0
        assert set(half.exact) == {"s"}  # numbers that do not repeat are looked up otherwise
        assert half.plan_at_ms is not None
        await scene.index([2])
        assert (await inspection.survey(live)).by_plan() == (3, 3, 3, 0, 0)
        await scene.plan(aliases={"m": "n"})
        stale = await inspection.survey(live)
        assert stale.by_plan() == (3, 0, 0, 3, None)
        assert stale.by_keys() == (3, 3, 3, 0, 0)
        assert stale.builds == 0

    tell(story)


def test_a_fork_shows_the_segments_of_its_source(tell: Callable[[Story], None]) -> None:
    async def story(scene: Plot) -> None:
        await scene.append("a", 4)
        await scene.seal()
        await scene.append("a", 4)
        await scene.create("b", "a", 3)
        await scene.create("c", "a", 6)
        inspection, find = scene.engine.index_status, scene.engine.streams.find
        assert [inspection.sealed_last(find(name)) for name in "abc"] == [4, 3, 4]
        survey = await inspection.survey(find("b"))
        assert [stretch.rows for stretch in survey.stretches] == [3]
        assert survey.own_payload_bytes == 0
        await scene.append("b", 2)
        await scene.seal()
        assert [inspection.sealed_last(find(name)) for name in "abc"] == [8, 5, 6]
        survey = await inspection.survey(find("b"))
        assert [stretch.rows for stretch in survey.stretches] == [3, 2]
        assert survey.own_payload_bytes == 2 * 15

    tell(story)


def test_whoever_watches_is_woken(tell: Callable[[Story], None]) -> None:
    async def story(scene: Plot) -> None:
        inspection, live = scene.engine.index_status, scene.engine.streams.find("a")

        async def wakes(what: Awaitable[object]) -> bool:
            woken = inspection.watch(live)
            await what
            inspection.forget(live, woken)
            return woken.done()

        await scene.create("b")
        assert await wakes(scene.append("a", 1))
        assert await wakes(scene.plan())
        assert await wakes(scene.seal())
        assert await wakes(scene.index())
        assert not await wakes(scene.append("b", 1))
        assert not live.waiters

    tell(story)


def test_requests_are_counted_for_whom_they_are_made(tell: Callable[[Story], None]) -> None:
    async def story(scene: Plot) -> None:
        await scene.append("a", 2)
        await scene.create("b")
        await scene.append("b", 2)
        engine = scene.engine
        live, other = engine.streams.find("a"), engine.streams.find("b")
        asked = engine.index_status.requests
        assert asked(live) == {}

        await scene.seal()
        stored = {name: RequestCounts(puts=1) for name in ("segment", "segment_index", "manifest")}
        assert asked(live) == asked(other) == stored

        await scene.plan()
        await scene.plan()  # which changes nothing
        assert asked(live) == {
            **stored,
            "plans": RequestCounts(puts=1),
            "manifest": RequestCounts(puts=2),
        }

        for _ in range(2):
            await engine.reader.read(live, 0, records_max=9, bytes_max=999)
        # How long it is, what its end says, and the records.
        assert asked(live)["segment"] == RequestCounts(puts=1, heads=1, gets=2)

        await scene.index()
        assert "companion" not in asked(live)
        for _ in range(2):
            await search(engine, live, partial(parse_search_request, {"q": "n:1"}, int))
            first = asked(live)["companion"]
            assert first.gets > 2
            assert not first.puts
        assert asked(live)["companion"] == first

        await engine.index_status.published(live)
        assert asked(live)["manifest"] == RequestCounts(puts=2, heads=1, gets=1)
        assert asked(other) == stored

    tell(story)


def test_those_who_have_most_are_found(
    tell: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(scene: Plot) -> None:
        await scene.append("a", 3)
        await scene.seal()
        await scene.create("b")
        await scene.append("b", 2)
        await scene.append("a", 1)
        counted = scene.engine.top_streams.take()
        assert counted.stored == [(4 * 31, "a"), (2 * 31, "b")]
        assert counted.unsealed == [(2 * 31, "b"), (31, "a")]
        assert counted.waiters == []
        woken = scene.engine.index_status.watch(scene.engine.streams.find("b"))
        assert scene.engine.top_streams.take().waiters == [(1, "b")]
        woken.cancel()
        monkeypatch.setattr(top_streams, "RANKED_TOP", 1)
        assert scene.engine.top_streams.take().stored == [(4 * 31, "a")]
        monkeypatch.setattr(top_streams, "RANKED_AT_ONCE", 1)
        assert scene.engine.top_streams.take().at_ms is None  # nobody counts for one who asks

    tell(story)


def test_many_are_counted_beside_everything_else(
    tell: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(scene: Plot) -> None:
        monkeypatch.setattr(top_streams, "RANKED_AT_ONCE", 0)
        await scene.append("a", 2)
        counter = scene.engine.top_streams
        running = asyncio.create_task(counter.run())
        assert counter.take().at_ms is None
        await asyncio.sleep(1)
        first = counter.take()
        assert first.stored == [(2 * 31, "a")]
        await scene.append("a", 1)
        await asyncio.sleep(1)
        assert counter.take() is first  # not again so soon
        await asyncio.sleep(limits.RANKED_S + 1)
        assert counter.take().stored == [(3 * 31, "a")]
        running.cancel()

    tell(story)


def test_the_limits_are_what_the_test_believes() -> None:
    assert limits.RECORD_OVERHEAD_BYTES == 16
