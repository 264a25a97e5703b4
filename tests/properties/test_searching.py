"""Searching and filtering a log says the same as looking at each of its records, wherever they are:
in builds, in segments without one, in memory; whatever died, was merged or moved meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cmp_to_key, partial
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.core.errors import Refused
from headrace.core.selector import ColumnSelector
from headrace.engine.search import scope as scoping
from headrace.engine.search.filtering import Filter
from headrace.engine.search.search_configs import searchable
from headrace.engine.search.searching import SearchAnswer, search
from headrace.formats.marks import Marks
from headrace.search.config import parse_search
from headrace.search.evaluate import Matcher
from headrace.search.query import Query, Rules, has_text, parse_query
from headrace.web.search_requests import parse_search_request
from support.engine_harness import small
from support.fake_indexer import Reading, reading
from support.rival import Rival
from support.searching import (
    FLAGS,
    POINTERS,
    documents,
    naive_document,
    naive_matches,
    naive_values,
    queries,
    render,
)
from support.virtual import VirtualClock, VirtualLoop

STEPS = ("append", "seal", "index some", "index", "merge", "delete", "delete", "compact", "replan")


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    def field(kind: str, **more: Any) -> dict[str, Any]:
        pointer = draw(st.sampled_from(POINTERS))
        return {"kind": kind, "bindings": [{"version": 1, "jsonPointer": pointer}], **more}

    fields = {"at": field("date", column=True), "unindexed": field("keyword", sortable=True)}
    for at in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(sorted(FLAGS)))
        more = {} if kind == "text" else {"sortable": True}
        fields[f"f{at}"] = field(kind, **FLAGS[kind], **more)
    return {"primaryTimestampField": "at", "fields": fields}


class Story:
    """What happens to a log, and what is in it."""

    def __init__(self, scene: Reading, config: dict[str, Any], random: Random) -> None:
        self.scene, self.config, self.random = scene, config, random
        self.live: dict[int, tuple[bytes, str | None]] = {}
        self.rival = Rival(scene.objects, random)

    async def take(self, step: str, raws: Sequence[bytes]) -> None:
        scene, random = self.scene, self.random
        numbers = [segment.number for segment in scene.fake_indexer.manifest.segments]
        builds = scene.fake_indexer.manifest.builds
        match step:
            case "append":
                keys = [random.choice([None, "k"]) for _ in raws]
                first = scene.live.log.head + 1
                await scene.append(raws, keys)
                self.live |= dict(enumerate(zip(raws, keys, strict=True), first))
            case "seal":
                await scene.seal()
            case "index some":
                there = {number for build in builds for number in build.segments}
                rest = [number for number in numbers if number not in there]
                scene.fake_indexer.index(random.sample(rest, len(rest) // 2))
            case "index":
                scene.fake_indexer.index()
            case "merge" if len(builds) > 1:
                scene.fake_indexer.merge(builds)
            case "delete" if self.live:
                seq = random.choice(sorted(self.live))
                del self.live[seq]
                await scene.delete(seq)
            case "compact" if numbers:
                self.rival.replace(numbers[-2:], Marks(), random.randint(1, 2))
                if random.random() < 0.5:
                    self.rival.tidy()
            case "replan":
                self.config = {**self.config, "aliases": {f"x{random.randrange(3)}": "at"}}
                await scene.plan(self.config)
        if random.random() < 0.6:
            await scene.take_over()

    def naive(self, query: Query) -> list[int]:
        return [
            seq
            for seq, (raw, _) in self.live.items()
            if naive_matches(query, self.config, naive_document(raw))
        ]

    def sorted(self, seqs: list[int], query: Query, sorts: list[tuple[str, str]]) -> list[int]:
        """As sorts say, and then the latest first."""
        matcher = Matcher(query, parse_search(self.config))
        points = {seq: matcher.score([self.live[seq][0]])[0] for seq in seqs}

        def value(seq: int, name: str) -> Any:
            if name in ("offset", "_score"):
                return seq if name == "offset" else points[seq]
            document = naive_document(self.live[seq][0])
            found = naive_values(self.config["fields"][name], document)
            return found[0] if found else None

        def compare(one: int, other: int) -> int:
            for name, direction in [*sorts, ("offset", "desc")]:
                a, b = value(one, name), value(other, name)
                if a != b:
                    less = b is None or (a is not None and a < b)
                    return -1 if less == (direction == "asc") else 1
            return 0

        return sorted(seqs, key=cmp_to_key(compare))


async def pages(story: Story, text: str, sorts: list[tuple[str, str]] | None) -> list[SearchAnswer]:
    """All pages of a search."""
    asked: dict[str, Any] = {"q": text, "size": story.random.choice([1, 3, 500])}
    if sorts is not None:
        asked["sort"] = [":".join(sort) for sort in sorts]
    found: list[SearchAnswer] = []
    while True:
        scene = story.scene
        found.append(
            await search(scene.engine, scene.live, partial(parse_search_request, asked, int))
        )
        if found[-1].more is None:
            return found
        asked["search_after"] = found[-1].more


async def check_search(story: Story, query: Query, text: str, names: Sequence[str]) -> None:
    chosen = story.random.sample(names, story.random.randint(0, min(2, len(names))))
    sorts = [(name, story.random.choice(["asc", "desc"])) for name in chosen]
    naive = story.naive(query)
    default = [("_score", "desc")] * has_text(query) + [("at", "desc")]
    expected = story.sorted(naive, query, sorts or default)
    answers = await pages(story, text, sorts or None)
    assert [hit.seq for answer in answers for hit in answer.hits] == expected, (text, sorts)
    for answer in answers:
        assert (answer.total, answer.exact) == (len(naive), True)
        coverage = answer.coverage
        assert (coverage.missing_events, coverage.visible_through) == (0, answer.head)
        for hit in answer.hits:
            assert hit.source == story.live[hit.seq][0]
    dates = [
        date
        for raw, _ in story.live.values()
        for date in naive_values(story.config["fields"]["at"], naive_document(raw))
    ]
    assert answers[0].coverage.newest_ms == max(dates, default=None)


async def check_filter(story: Story, query: Query, text: str) -> None:
    scene, key = story.scene, story.random.choice([None, "k"])
    naive = [seq for seq in story.naive(query) if key is None or story.live[seq][1] == key]
    after, found = 0, []
    while True:
        page = await Filter(scene.engine, text).read(
            scene.live,
            after,
            records_max=story.random.choice([1, 2, 100]),
            bytes_max=story.random.choice([1, 100, 10_000]),
            selector=ColumnSelector(key=key),
        )
        found += [piece.block.seq_at(at) for piece in page.slices for at in piece.picks]
        assert page.next > after or page.caught_up
        after = page.next
        if page.caught_up:
            break
    assert found == naive, text


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoping, "BATCH_ROWS", 2)


@settings(
    deadline=None,
    max_examples=80,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data())
def test_wherever_records_are(data: st.DataObject) -> None:
    config = data.draw(configs())
    random = Random(data.draw(st.integers(0, 1 << 32)))
    steps = data.draw(st.lists(st.sampled_from(STEPS), max_size=12))
    raws = data.draw(st.lists(documents, min_size=1, max_size=20))
    values: dict[str, list[Any]] = {
        name: [v for raw in raws for v in naive_values(field, naive_document(raw))]
        for name, field in config["fields"].items()
    }
    asked = data.draw(st.lists(queries(config, values), min_size=1, max_size=4))

    async def play(clock: VirtualClock) -> None:
        scene = await reading(clock, random.choice([0, 1 << 20]))
        story = Story(scene, config, random)
        await scene.append(raws[:1])
        story.live[1] = raws[0], None
        await scene.plan(config)
        half = len(raws) // 2
        await story.take("append", raws[1:half])
        rest = raws[max(1, half) :]
        for step in ("seal", random.choice(["index", "index some"])):
            await story.take(step, ())
        await scene.take_over()
        for step in steps:
            count = random.randint(1, 4) if step == "append" else 0
            await story.take(step, rest[:count])
            rest = rest[count:]
        await story.take("append", rest)
        names = [n for n, f in story.config["fields"].items() if f.get("sortable")]
        for one in asked:
            text = render(one, story.config["fields"])
            known = searchable(scene.live.log).search
            try:
                query = parse_query(text, known)
            except Refused:
                continue  # of a field that cannot be asked so
            await check_search(story, query, text, names)
            try:
                query = parse_query(text, known, Rules.FILTER)
            except Refused:
                continue
            await check_filter(story, query, text)

    loop = VirtualLoop()
    with small():
        loop.run(play(VirtualClock(loop)))
    loop.close()
