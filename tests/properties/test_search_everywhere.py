"""A server's search, filters, aggregates and routing keys against looking at every record.

Records lie in memory, in segments, in segments that are indexed by the newest plans or by older
ones, all at once; schemas change, and somebody publishes new generations in the middle of answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.engine.search import scope, time_slices
from headrace.formats import companion
from headrace.formats.companion import Family
from headrace.pipeline.kernels import build as building
from headrace.pipeline.kernels import builds as merging
from headrace.search import extraction as reading
from headrace.search.query import (
    All,
    Compares,
    Equals,
    Has,
    Not,
    Query,
    Starts,
    Words,
    clauses,
    has_text,
)
from headrace.search.query import Any as AnyOf
from support.engine_harness import small
from support.evolving import FIRST, Schema, documents, lens, paths, steps
from support.naive_search import Model, Sort, epoch_of, iso, offset_of, require_summary
from support.searching import FLAGS, queries, render
from support.searchworld import World
from support.virtual import VirtualLoop

STREAM = "/v1/stream/app"
KINDS = {
    "string": ["keyword", "text", "date", "integer"],
    "integer": ["integer", "float", "date"],
    "number": ["float", "integer"],
    "boolean": ["bool"],
    "array": ["keyword", "text"],
}
UNDECLARED: list[tuple[str, Schema]] = [("/x", {"type": kind}) for kind in KINDS] + [
    ("/y", {"type": "string"}),
    ("/x/y", {"type": "string"}),
]
EDGES = [1767225600000, 1767225605000, 1767225655001, 1767225660000, 1767225750000, 1767229300000]


@pytest.fixture(autouse=True)
def cramped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits so low that little data crosses all of them."""
    monkeypatch.setattr(reading, "BATCH_ROWS", 3)
    monkeypatch.setattr(building, "CHUNK_ROWS", 1)
    monkeypatch.setattr(merging, "RANGE_ROWS", 4)
    monkeypatch.setattr(companion, "ROW_GROUP_ROWS", dict.fromkeys(Family, 4))
    monkeypatch.setattr(scope, "BATCH_ROWS", 2)
    monkeypatch.setattr(time_slices, "_TURN_S", 0)  # others get a chance after every unit
    monkeypatch.setattr(time_slices, "perf_counter", lambda: 0.0)


@st.composite
def configs(draw: st.DrawFn, schema: Schema, version: int) -> dict[str, Any]:
    """A search configuration for documents of this version."""

    def bindings(pointer: str) -> list[dict[str, Any]]:
        older = [{"version": 1, "jsonPointer": "/x"}] if version > 1 and draw(st.booleans()) else []
        return [*older, {"version": version if older else 1, "jsonPointer": pointer}]

    def make(kind: str, pointer: str) -> dict[str, Any]:
        flags = {} if kind == "text" else {"sortable": True}
        numeric = {"aggregatable": True} if kind in ("integer", "float") else {}
        lower = kind == "keyword" and draw(st.booleans())
        normal = {"normalizer": "lowercase_v1"} if lower else {}
        found = {"kind": kind, "bindings": bindings(pointer), **FLAGS[kind]}
        return {**found, **flags, **numeric, **normal}

    fields = {"at": make("date", "/at")}
    there = [*paths(schema), *UNDECLARED]
    for at in range(draw(st.integers(2, 5))):
        pointer, found = draw(st.sampled_from(there))
        fields[f"f{at}"] = make(draw(st.sampled_from(KINDS[found["type"]])), pointer)
    config: dict[str, Any] = {"primaryTimestampField": "at", "fields": fields}
    dimensions = [name for name, one in fields.items() if one["kind"] in ("keyword", "bool")][:2]
    measures: dict[str, Any] = {"n": {"kind": "count"}}
    for name, one in fields.items():
        if one["kind"] in ("integer", "float"):
            measures[f"of-{name}"] = {"kind": "summary", "field": name}
            measures[f"in-{name}"] = {"kind": "summary", "field": name, "histogram": "log2_v1"}
            break
    rollup = {"dimensions": dimensions, "intervals": ["1m", "90s"], "measures": measures}
    config["rollups"] = {"r": rollup}
    return config


@dataclass
class Told:
    """A stream: what it must answer, and what may be written to it."""

    name: str
    model: Model
    schema: Schema
    epochs: list[int] = field(default_factory=list)
    """In which life of which stream each record was written."""

    @property
    def path(self) -> str:
        return f"/v1/stream/{self.name}"

    def offset(self, at: int) -> str:
        """The offset of the record at this place; of the beginning, if there is none."""
        return offset_of(at, self.epochs[at]) if at >= 0 else offset_of(at)


class Story:
    """A stream and its forks, through whatever is drawn."""

    def __init__(self, world: World, data: st.DataObject) -> None:
        self.world, self.data = world, data
        self.told = [Told("app", Model(), FIRST)]
        self.now = self.told[0]
        """The stream that things happen to."""
        self._fresh = (f"p{n}" for n in count())

    @property
    def model(self) -> Model:
        return self.now.model

    def draw(self, strategy: st.SearchStrategy[Any]) -> Any:
        return self.data.draw(strategy)

    async def begin(self) -> None:
        await self.world.right("PUT", self.now.path)
        self.model.config = self.draw(configs(FIRST, 1))
        routing = {"jsonPointer": "/k", "required": False}
        first = {"schema": FIRST, "routingKey": routing, "search": self.model.config}
        await self.world.right("POST", f"{self.now.path}/_schema", first)

    # --- what happens ---

    async def append(self) -> None:
        raws = self.draw(st.lists(documents(self.now.schema), min_size=1, max_size=5))
        reply = await self.world.ask("POST", self.now.path, b"[" + b",".join(raws) + b"]")
        assert reply.status == 200, (raws, reply.body)
        for raw in raws:
            self.model.append(raw, json.loads(raw)["k"])
            self.now.epochs.append(epoch_of(reply.headers["stream-next-offset"]))

    async def evolve(self) -> None:
        ops = []
        schema = self.now.schema
        for _ in range(self.draw(st.integers(1, 3))):
            op, schema = self.draw(steps(schema, self._fresh))
            ops.append(op)
        version = self.model.version
        update: dict[str, Any] = {"schema": schema, "lens": lens(self.now.name, version, ops)}
        config = self.model.config
        if self.draw(st.booleans()):
            config = update["search"] = self.draw(configs(schema, version + 1))
        await self.world.right("POST", f"{self.now.path}/_schema", update)
        self.now.schema, self.model.config = schema, config
        self.model.version += 1
        self.model.lenses.append(ops)

    async def reconfigure(self) -> None:
        config = self.draw(configs(self.now.schema, self.model.version))
        await self.world.right("POST", f"{self.now.path}/_schema", {"search": config})
        self.model.config = config

    async def fork(self) -> None:
        """Another stream with the first records of this one, which then goes its own way."""
        count = self.draw(st.integers(0, len(self.model.records)))
        made = Told(f"fork{len(self.told)}", deepcopy(self.model), self.now.schema)
        made.model.records = made.model.records[:count]
        made.epochs = self.now.epochs[:count]
        at = self.now.offset(count - 1)
        fields = {"stream_forked_from": self.now.path, "stream_fork_offset": at}
        await self.world.right("PUT", made.path, **fields)
        self.told.append(made)

    async def seal(self) -> None:
        await self.world.seal()

    async def index(self) -> None:
        """All segments or some, by the plans of now or of a while ago."""
        if self.draw(st.booleans()):
            await self.world.plan()
        numbers = sorted(self.world.fake_indexer.manifest.numbers)
        if numbers:
            some = self.draw(st.sets(st.sampled_from(numbers), min_size=1))
            self.world.fake_indexer.index(numbers if self.draw(st.booleans()) else some)
        await self.world.look()

    async def merge(self) -> None:
        manifest = self.world.fake_indexer.manifest
        builds = [b for b in manifest.builds if manifest.numbers.issuperset(b.segments)]
        if len(builds) > 1 and len({b.plans for b in builds}) == 1:
            self.world.fake_indexer.merge(builds[:3])
        await self.world.look()

    async def replace(self) -> None:
        """Other segments with the same records, which no build has seen."""
        numbers = [segment.number for segment in self.world.fake_indexer.manifest.segments]
        if numbers:
            start = self.draw(st.integers(0, len(numbers) - 1))
            run = numbers[start : start + self.draw(st.integers(1, 3))]
            self.world.replace(run, self.draw(st.integers(1, 2)))
        if self.draw(st.booleans()):
            await self.world.look()

    async def happen(self) -> None:
        acts = [
            self.append, self.append, self.append, self.seal, self.seal, self.index, self.index,
            self.evolve, self.reconfigure, self.merge, self.replace, self.fork,
        ]  # fmt: skip
        for act in self.draw(st.lists(st.sampled_from(acts), min_size=2, max_size=9)):
            self.now = self.draw(st.sampled_from(self.told[-3:]))
            await act()

    # --- what is asked ---

    def meddle(self) -> None:
        """Somewhere in the middle of the next answers, a new generation comes."""
        left = self.draw(st.integers(0, 3))
        acts = [self.index, self.replace, self.merge, self.seal]
        act = self.draw(st.sampled_from(acts))

        async def plot() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                await act()

        self.world.pool.plot = plot if left else None

    async def look_closely(self) -> None:
        for told in self.told[-3:]:
            self.now = told
            await self.look_at_one()

    async def look_at_one(self) -> None:
        seen = self.model.seen()
        ask = queries({"fields": self.model.fields()}, seen)
        for query in self.draw(st.lists(ask, min_size=1, max_size=4)):
            query = written(query, self.model.fields())
            self.meddle()
            await self.check_search(query)
            if all(not isinstance(clause, Words | Starts) for clause in clauses(query)):
                await self.check_filter(query)
            await self.check_aggregate(self.draw(st.sampled_from([None, query])))
        await self.check_keys()
        self.world.pool.plot = None

    async def check_search(self, query: Query) -> None:
        sort = self.draw(sorts(self.model))
        default: Sort = (("at", True),)
        expected = self.model.search(
            query, sort or ((("_score", True),) * has_text(query) + default)
        )
        promoted = self.model.documents()
        size = self.draw(st.sampled_from([1, 3, 50]))
        body: dict[str, Any] = {"q": render(query, self.model.fields()), "size": size}
        if sort:
            body["sort"] = [f"{name}:{'desc' if down else 'asc'}" for name, down in sort]
        found: list[tuple[str, float]] = []
        for _ in range(len(expected) + 1):
            answer = await self.world.right("POST", f"{self.now.path}/_search", body)
            self.check_coverage(answer["coverage"])
            assert answer["snapshot_end_offset"] == answer["coverage"]["stream_head_offset"]
            assert answer["total"] == {"value": len(expected), "relation": "eq"}, body
            for hit in answer["hits"]:
                found.append((hit["offset"], hit["score"]))
                assert like(hit["source"], promoted[expected[len(found) - 1][0]]), body
            if answer["next_search_after"] is None:
                break
            assert len(answer["hits"]) == size
            assert answer["next_search_after"] == answer["hits"][-1]["sort"]
            body["search_after"] = answer["next_search_after"]
        assert found == [(self.now.offset(at), score) for at, score in expected], body

    def check_coverage(self, told: dict[str, Any]) -> None:
        head = told["stream_head_offset"]
        assert head[7:] == self.now.offset(len(self.model.records) - 1)[7:]  # of whatever epoch
        assert told["complete"] is True, told
        assert told["mode"] == "complete", told
        assert told["visible_through_offset"] == head, told
        assert all(told[name] == 0 for name in told if name.startswith("possible_missing"))

    async def check_filter(self, query: Query) -> None:
        promoted = self.model.documents()
        expected = [promoted[at] for at in self.model.matching(query)]
        found: list[Any] = []
        offset = "-1"
        text = quote(render(query, self.model.fields()))
        for _ in range(len(promoted) + 2):
            target = f"{self.now.path}?offset={offset}&format=json&filter={text}"
            reply = await self.world.ask("GET", target)
            assert reply.status == 200, (target, reply.body)
            found += reply.json
            offset = reply.headers["stream-next-offset"]
            if reply.headers.get("stream-up-to-date") == "true":
                break
        assert len(found) == len(expected), target
        assert all(map(like, found, expected)), target

    async def check_aggregate(self, query: Query | None) -> None:
        start, stop = sorted(self.draw(st.tuples(st.sampled_from(EDGES), st.sampled_from(EDGES))))
        stop += start == stop
        interval, interval_ms = self.draw(st.sampled_from([("1m", 60_000), ("90s", 90_000)]))
        rule = self.model.config["rollups"]["r"]
        group_by = self.draw(st.sampled_from([[], rule["dimensions"], rule["dimensions"][:1]]))
        expected = self.model.aggregate("r", start, stop, interval_ms, group_by, query)
        body: dict[str, Any] = {
            "rollup": "r", "from": start, "to": iso(stop), "interval": interval,
            "group_by": group_by, "measures": sorted(rule["measures"]),
        }  # fmt: skip
        if query is not None:
            body["q"] = render(query, self.model.fields())
        answer = await self.world.right("POST", f"{self.now.path}/_aggregate", body)
        self.check_coverage(answer["coverage"])
        found: dict[tuple[str, str], Any] = {}
        for bucket in answer["buckets"]:
            for group in bucket["groups"]:
                found[bucket["start"], json.dumps(group["key"])] = group["measures"]
        assert found.keys() == {(iso(window), group) for window, group in expected}, body
        for (window, group), counted in expected.items():
            told = found[iso(window), group]
            assert told.keys() == rule["measures"].keys()
            for name, measure in rule["measures"].items():
                if measure["kind"] == "count":
                    assert told[name] == {"count": len(counted)}, body
                else:
                    values = [one[name] for one in counted]
                    require_summary(told[name], values, "histogram" in measure)

    async def check_keys(self) -> None:
        expected, found = self.model.keys(), []
        target = f"{self.now.path}/_routing_keys?limit=2"
        for _ in range(len(expected) + 1):
            answer = await self.world.right("GET", target)
            found += answer["keys"]
            if answer["next_after"] is None:
                break
            target = f"{self.now.path}/_routing_keys?limit=2&after={quote(answer['next_after'])}"
        assert found == expected


def written(query: Query, fields: dict[str, Any]) -> Query:
    """The same as far as it can be written: no boosts, no empty prefixes, bools as they are."""
    match query:
        case All(items=items):
            return All(tuple(written(item, fields) for item in items))
        case AnyOf(items=items):
            return AnyOf(tuple(written(item, fields) for item in items))
        case Not(item=item):
            return Not(written(item, fields))
        case Words(field=field, words=words):
            phrase = query.phrase or not words
            return Words(field, words, query.open and bool(words), phrase, 1.0)
        case Starts(field=field, text=""):
            return Has(field)
        case Equals(field=field, value=value) if fields[field]["kind"] == "bool":
            return Equals(field, min(value, 1))
        case Compares(field=field, value=value) if fields[field]["kind"] == "bool":
            return Compares(field, query.operator, min(value, 1))
    return query


def sorts(model: Model) -> st.SearchStrategy[Sort]:
    names = [name for name, one in model.config["fields"].items() if one["kind"] != "text"]
    item = st.tuples(st.sampled_from([*names, "offset", "_score"]), st.booleans())
    return st.just(()) | st.lists(item, max_size=2, unique_by=lambda i: i[0]).map(tuple)


def like(found: Any, expected: Any) -> bool:
    """Equal as JSON values: 1 and 1.0 are the same, true and 1 are not."""
    return json.dumps(found, sort_keys=True) == json.dumps(expected, sort_keys=True)


def tell(story: Callable[[VirtualLoop], Coroutine[Any, Any, None]]) -> None:
    with small(), closing(VirtualLoop()) as loop:
        loop.run(story(loop))


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data())
def test_answers_are_those_of_looking_at_every_record(data: st.DataObject) -> None:
    async def story(loop: VirtualLoop) -> None:
        told = Story(await World.make(loop, Random(1)), data)
        await told.begin()
        for _ in range(2):
            await told.happen()
            await told.look_closely()

    tell(story)


def test_a_keyword_that_no_indexed_record_has() -> None:
    """Found by the test above: nothing to sort or to group by."""

    def bound(kind: str, name: str, **flags: bool) -> dict[str, Any]:
        bindings = [{"version": 1, "jsonPointer": f"/{name}"}]
        return {"kind": kind, "bindings": bindings, **FLAGS[kind], **flags}

    rollup = {"dimensions": ["w"], "intervals": ["1m"], "measures": {"n": {"kind": "count"}}}
    search = {
        "primaryTimestampField": "at",
        "fields": {"at": bound("date", "at"), "w": bound("keyword", "w", sortable=True)},
        "rollups": {"r": rollup},
    }

    async def story(loop: VirtualLoop) -> None:
        world = await World.make(loop, Random(1))
        await world.right("PUT", STREAM)
        update = {"schema": {"type": "object"}, "search": search}
        await world.right("POST", f"{STREAM}/_schema", update)
        await world.right("POST", STREAM, [{"at": 1, "w": 7}, {"at": 2}])
        await world.plan()
        await world.seal()
        world.fake_indexer.index()
        await world.look()
        await world.right("POST", STREAM, [{"at": 3, "w": "a"}])
        body: dict[str, Any] = {"q": "NOT w:b", "sort": ["w:asc"]}
        answer = await world.right("POST", f"{STREAM}/_search", body)
        assert answer["coverage"]["indexed_segments"] == 1
        assert [hit["sort"][0] for hit in answer["hits"]] == ["a", None, None]
        body = {"rollup": "r", "from": 1, "to": 4, "interval": "1m", "group_by": ["w"]}
        answer = await world.right("POST", f"{STREAM}/_aggregate", {**body, "measures": ["n"]})
        (bucket,) = answer["buckets"]
        found = {group["key"]["w"]: group["measures"]["n"]["count"] for group in bucket["groups"]}
        assert found == {"a": 1, None: 2}

    tell(story)
