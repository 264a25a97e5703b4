"""Aggregates and keys over any mix of indexed, unindexed and unsealed records, some of them dead,
equal a naive count over all that are live.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from headrace.core.config import LogConfig
from headrace.core.match import TagEq
from headrace.core.record import draft
from headrace.engine.search.aggregating import aggregate
from headrace.engine.search.keys import list_keys
from headrace.engine.start import Started
from headrace.formats import companion
from headrace.formats.companion import Family
from headrace.search.values import format_date
from headrace.storage.objects import LocalObjects
from headrace.web.search_requests import parse_aggregate_request
from support.engine_harness import CAPS, boot, small
from support.fake_indexer import FakeIndexer
from support.hostile import HostileDisk
from support.virtual import VirtualClock, VirtualLoop

from .rollups import CONFIG as ROLLUPS

START = 1_767_225_600_000


CONFIG = {**ROLLUPS, "aliases": {"service": "svc"}}

Document = dict[str, Any]
documents = st.fixed_dictionaries(
    {
        "at": st.integers(0, 300).map(lambda s: START + 1000 * s) | st.none(),
        "svc": st.sampled_from(["a", "A", "b", None, ["a", "b"]]),
        "code": st.sampled_from([200, 500, None]),
        "ok": st.sampled_from([True, False, None]),
        "ms": st.sampled_from([1, 2.5, 0, -8, 73.5, 0.125, None, [1, 2]]),
    }
)
plain = st.fixed_dictionaries(
    {
        "at": st.integers(0, 300).map(lambda s: START + 1000 * s),
        "svc": st.sampled_from(["a", "B", "c"]),
        "code": st.sampled_from([200, 500]),
        "ok": st.booleans(),
        "ms": st.sampled_from([1, 2.5, 8]),
    }
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(documents | plain, min_size=1, max_size=5)),
        st.tuples(st.just("append"), st.lists(plain, min_size=1, max_size=5)),
        st.tuples(st.just("archive"), st.lists(documents | plain, min_size=1, max_size=8)),
        st.tuples(st.just("archive"), st.lists(plain, min_size=1, max_size=8)),
        st.tuples(st.just("archive"), st.lists(plain, min_size=1, max_size=8)),
        st.tuples(st.just("seal"), st.none()),
        st.tuples(st.just("index"), st.integers(0, 3)),
        st.tuples(st.just("merge"), st.none()),
        st.tuples(st.just("delete"), st.integers(0, 40)),
    ),
    min_size=3,
    max_size=14,
)
QUERIES: dict[str, Any] = {
    "": lambda d: True,
    "svc:a": lambda d: "a" in names(d["svc"]),
    "svc:A code:200": lambda d: "a" in names(d["svc"]) and d["code"] == 200,
    "code:>=500": lambda d: d["code"] is not None and d["code"] >= 500,
    "NOT svc:a OR ok:true": lambda d: "a" not in names(d["svc"]) or d["ok"] is True,
    "has:ms": lambda d: d["ms"] is not None,
}


def names(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [] if value is None else [value]
    return [each.lower() for each in values]


class Scene:
    """A topic, somebody who indexes it, and a list of what must be in it."""

    def __init__(self, started: Started, disk: HostileDisk) -> None:
        self.engine, self.upkeep = started.engine, started.upkeep
        self.fake_indexer = FakeIndexer(LocalObjects(HostileDisk(disk.world)))
        self.written: list[Document] = []
        self.dead: set[int] = set()

    async def take(self, step: str, what: Any) -> None:
        if step == "append":
            await self.append(what)
        elif step == "archive":
            await self.append(what)
            await self.take("seal", None)
            await self.take("index", len(self.fake_indexer.manifest.segments) - 1)
        elif step == "seal":
            self.upkeep.close_file()
            await self.upkeep.checkpoint()
        elif step == "index":
            unindexed = [s.number for s in self.fake_indexer.manifest.segments]
            self.fake_indexer.index(unindexed[what : what + 2])
            await self.upkeep.manifests.look()
        elif step == "merge" and len(self.fake_indexer.manifest.builds) > 1:
            self.fake_indexer.merge(self.fake_indexer.manifest.builds)
            await self.upkeep.manifests.look()
        elif step == "delete" and what < len(self.written):
            await self.engine.deleter.delete("t", None, TagEq(str(what)))
            self.dead.add(what)

    async def append(self, found: list[Document]) -> None:
        tags = [str(len(self.written) + at) for at in range(len(found))]
        keys = [names(d["svc"])[0] if names(d["svc"]) else None for d in found]
        await self.engine.appender.append(
            "t",
            draft([json.dumps(d).encode() for d in found], tags=list(tags), keys=list(keys)),
            owner="topics",
            create=LogConfig(),
        )
        self.written += found

    @property
    def live(self) -> list[Document]:
        return [d for at, d in enumerate(self.written) if at not in self.dead]


def naive(live: list[Document], query: str, start: int, stop: int, interval: int, by: list[str]):  # type: ignore[no-untyped-def]
    cells: dict[tuple[int, str], list[float]] = defaultdict(list)
    for d in live:
        odd = d["at"] is None or isinstance(d["ms"], list | None) or isinstance(d["svc"], list)
        if odd or not start <= d["at"] < stop or not QUERIES[query](d):
            continue
        dims = {"svc": names(d["svc"])[0] if d["svc"] else None, "code": d["code"], "ok": d["ok"]}
        key = json.dumps({name: dims[name] for name in by}, separators=(",", ":"))
        cells[d["at"] // interval * interval, key].append(float(d["ms"]))
    return {
        cell: (len(values), sum(values), min(values), max(values), histogram(values))
        for cell, values in cells.items()
    }


def histogram(values: list[float]) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for value in values:
        power = 1
        while power * 2 <= max(1.0, abs(value)):
            power *= 2
        found[str(power)] += 1
    return dict(found)


def told(buckets: list[dict[str, Any]], by: list[str]) -> dict[tuple[int, str], Any]:
    found = {}
    for bucket in buckets:
        keys = [json.dumps(group["key"], separators=(",", ":")) for group in bucket["groups"]]
        assert keys == sorted(keys, key=lambda key: key.encode())
        for key, group in zip(keys, bucket["groups"], strict=True):
            n, ms, bare = (group["measures"][name] for name in ("n", "ms", "plain"))
            assert n["count"] == ms["count"] == bare["count"]
            assert "histogram" not in bare
            assert bare["p50"] is None
            assert ms["min"] <= ms["p50"] <= ms["p95"] <= ms["p99"] <= ms["max"]
            assert ms["avg"] == pytest.approx(ms["sum"] / ms["count"])
            start = next(at for at in range(START - 90_000, START + 400_000, 30_000)
                         if format_date(at) == bucket["start"])  # fmt: skip
            found[start, key] = n["count"], ms["sum"], ms["min"], ms["max"], ms["histogram"]
    return found


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(companion, "ROW_GROUP_ROWS", dict.fromkeys(Family, 4))
    with small():
        yield


@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    steps,
    st.sampled_from(sorted(QUERIES)),
    st.sampled_from([[], ["svc"], ["ok", "code"]]),
    st.sampled_from(["1m", "90s"]),
    st.sampled_from([-30, 0]) | st.integers(-30, 330),
    st.sampled_from([330, 600]) | st.integers(1, 330),
    st.sampled_from([0, 1 << 20]),
)
def test_any_mix_equals_a_naive_count(
    story: list[tuple[str, Any]],
    query: str,
    by: list[str],
    interval: str,
    since_s: int,
    span_s: int,
    tail_bytes: int,
) -> None:
    loop = VirtualLoop()

    async def play() -> None:
        disk = HostileDisk()
        caps = CAPS.__class__(tail_bytes=tail_bytes)
        scene = Scene(await boot(disk, VirtualClock(loop), caps=caps), disk)
        await scene.append([{"at": START, "svc": "z", "code": 1, "ok": True, "ms": 4}])
        await scene.engine.search_configs.put("t", "topics", msgspec.json.encode(CONFIG))
        await scene.upkeep._publisher.publish_plans()
        for step, what in story:
            await scene.take(step, what)
        live = scene.engine.live("t")
        start, stop = START + 1000 * since_s, START + 1000 * (since_s + span_s)
        asked = {"rollup": "latency", "from": start, "to": stop, "interval": interval,
                 "q": query, "group_by": by}  # fmt: skip
        found = await aggregate(scene.engine, live, partial(parse_aggregate_request, asked))
        interval_ms = 60_000 if interval == "1m" else 90_000
        assert told(found.buckets, by) == naive(scene.live, query, start, stop, interval_ms, by)
        assert found.coverage.complete
        event(f"by {sorted(found.coverage.families)}, hot {bool(found.coverage.scanned)}")
        await check_keys(scene)

    try:
        loop.run(play())
    finally:
        loop.close()


async def check_keys(scene: Scene) -> None:
    live = scene.engine.live("t")
    expected = sorted({names(d["svc"])[0] for d in scene.live if d["svc"]})
    paged: list[str] = []
    after: str | None = None
    for _ in range(9):
        page = await list_keys(scene.engine, live, after, 2)
        assert len(page.keys) <= 2
        assert page.coverage.complete
        paged += page.keys
        if not page.more:
            break
        after = page.keys[-1]
    assert paged == expected
