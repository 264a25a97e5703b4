"""What a search says of itself: which records it looked at and how, and what it had no time for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import msgspec
import pytest

from headrace.core import limits
from headrace.core.record import draft
from headrace.core.selector import ColumnSelector
from headrace.core.stream_rules import Spec
from headrace.core.stream_state import JSON
from headrace.engine.open_log import OpenLog
from headrace.engine.search import scope as scoping
from headrace.engine.search import searching
from headrace.engine.search.coverage import Coverage
from headrace.engine.search.filtering import Filter
from headrace.engine.search.searching import SearchAnswer, search
from headrace.engine.search.time_slices import Deadline
from headrace.web.search_requests import parse_search_request
from support.engine_harness import small
from support.fake_indexer import Reading, reading
from support.virtual import VirtualClock, VirtualLoop


def field(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "bindings": [{"version": 1, "jsonPointer": f"/{name}"}], **more}


SEARCH: dict[str, Any] = {
    "primaryTimestampField": "at",
    "fields": {
        "at": field("date", "at", column=True),
        "n": field("integer", "n", column=True, sortable=True),
        "k": field("keyword", "k", exact=True, sortable=True),
        "t": field("text", "t", analyzer="unicode_word_v1"),
    },
}


def docs(*numbers: int) -> list[bytes]:
    return [b'{"n":%d,"at":%d,"k":"k%d","t":"word w%d"}' % (n, 1000 * n, n % 3, n) for n in numbers]


Story = Callable[[Reading], Awaitable[None]]


@pytest.fixture
def tell() -> Iterator[Callable[[Story], None]]:
    """Records 1 to 4 in a build, 5 to 8 in a segment, 9 to 12 in memory."""
    loop = VirtualLoop()

    def run(story: Story) -> None:
        async def play() -> None:
            scene = await reading(VirtualClock(loop))
            await scene.append(docs(1, 2, 3, 4))
            await scene.plan(SEARCH)
            await scene.seal()
            await scene.append(docs(5, 6, 7, 8))
            await scene.seal()
            scene.fake_indexer.index([1])
            await scene.take_over()
            await scene.append(docs(9, 10, 11, 12))
            await story(scene)

        loop.run(play())

    with small():
        yield run
    loop.close()


async def ask(scene: Reading, q: str, **more: Any) -> SearchAnswer:
    return await search(
        scene.engine, scene.live, partial(parse_search_request, {"q": q, **more}, int)
    )


def seqs(found: SearchAnswer) -> list[int]:
    return [hit.seq for hit in found.hits]


def test_it_says_where_it_looked(tell: Callable[[Story], None]) -> None:
    async def story(scene: Reading) -> None:
        found = await ask(scene, "n:>=3 n:<=10")
        assert seqs(found) == [10, 9, 8, 7, 6, 5, 4, 3]
        assert (found.total, found.exact, found.head) == (8, True, 12)
        coverage = found.coverage
        assert (coverage.indexed, coverage.scanned, coverage.scanned_tail_docs) == ({1}, {2}, 4)
        assert coverage.families == {"col"}
        assert coverage.newest_ms == 12_000
        assert coverage.complete

    tell(story)


def test_it_goes_by_the_fields_there_are_when_it_looks(
    tell: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(scene: Reading) -> None:
        prepare = scene.engine.reader.prepare

        async def change(live: OpenLog) -> None:
            fields = {**SEARCH["fields"], "n": field("date", "at", column=True)}
            await scene.plan({**SEARCH, "fields": fields})
            await prepare(live)

        assert (await ask(scene, "n:4000")).total == 0
        monkeypatch.setattr(scene.engine.reader, "prepare", change)
        assert (await ask(scene, "n:4000")).total == 1

    tell(story)


@pytest.mark.parametrize(
    ("q", "sort", "families"),
    [
        ("k:k1", ["offset"], {"exact", "col"}),
        ("n:1", ["k:asc"], {"exact", "col"}),
        ("t:word", ["offset"], {"fts", "col"}),
        ("has:k OR t:w1", ["_score"], {"exact", "fts", "col"}),
    ],
)
def test_it_says_which_families_it_used(
    tell: Callable[[Story], None], q: str, sort: list[str], families: set[str]
) -> None:
    async def story(scene: Reading) -> None:
        assert (await ask(scene, q, sort=sort)).coverage.families == families

    tell(story)


@pytest.mark.parametrize(
    ("units", "found", "missing", "through"),
    [
        (0, [], [1, 12], 0),
        (1, [4, 3, 2, 1], [5, 12], 4),
        (2, [6, 5, 4, 3, 2, 1], [7, 12], 6),
        (4, [10, 9, 8, 7, 6, 5, 4, 3, 2, 1], [11, 12], 10),
    ],
)
def test_what_it_had_no_time_for(
    tell: Callable[[Story], None],
    monkeypatch: pytest.MonkeyPatch,
    units: int,
    found: list[int],
    missing: list[int],
    through: int,
) -> None:
    seen: list[object] = []
    for saw in (Coverage.saw_indexed, Coverage.saw_scanned):
        monkeypatch.setattr(Coverage, saw.__name__, _noted(saw, seen))
    monkeypatch.setattr(Deadline, "over", property(lambda _: len(seen) >= units))
    monkeypatch.setattr(scoping, "BATCH_ROWS", 2)

    async def story(scene: Reading) -> None:
        answer = await ask(scene, "n:>0")
        assert (answer.timed_out, answer.exact, answer.total) == (True, False, len(found))
        assert seqs(answer) == found
        coverage = answer.coverage
        assert (coverage.missing, coverage.visible_through) == (missing, through)
        assert coverage.missing_events == 12 - through
        assert coverage.missing_tail == 12 - max(through, 8)
        assert coverage.missing_segments == sum(last > through for last in (4, 8))
        assert coverage.oldest_left_ms is not None

    tell(story)


def _noted(saw: Callable[..., None], seen: list[object]) -> Callable[..., None]:
    def noted(coverage: Coverage, what: object) -> None:
        seen.append(what)
        saw(coverage, what)

    return noted


def test_a_change_of_generations_meanwhile(tell: Callable[[Story], None]) -> None:
    async def story(scene: Reading) -> None:
        before = seqs(await ask(scene, "n:>0"))
        old = scene.fake_indexer.manifest.builds
        scene.fake_indexer.index([2])
        scene.fake_indexer.merge(scene.fake_indexer.manifest.builds)
        scene.fake_indexer.forget(old)
        scene.engine.segments.builds.use(scene.upkeep.manifest.__class__())  # nothing is open
        scene.engine.segments.builds.use(scene.upkeep.manifest)
        found = await ask(scene, "n:>0")
        assert seqs(found) == before
        assert found.coverage.indexed == {1, 2}
        page = await Filter(scene.engine, "n:>0").read(
            scene.live, 0, records_max=100, bytes_max=10_000, selector=ColumnSelector()
        )
        assert page.count == 12

    tell(story)


def test_a_filter_looks_at_so_many_bytes_and_no_more(
    tell: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(docs(9)[0])
    monkeypatch.setattr(limits, "FILTER_SCANNED_BYTES_MAX", 2 * size)

    async def story(scene: Reading) -> None:
        async def read(after: int) -> tuple[list[int], int, bool]:
            page = await Filter(scene.engine, "n:11").read(
                scene.live, after, records_max=100, bytes_max=10_000, selector=ColumnSelector()
            )
            seqs = [piece.block.seq_at(at) for piece in page.slices for at in piece.picks]
            assert page.limited == (page.scanned_bytes >= 2 * size)
            return seqs, page.next, page.limited

        # What the build says is not there is not looked at.
        assert await read(0) == ([], 6, True)
        assert await read(6) == ([], 8, True)
        assert await read(8) == ([], 10, True)
        assert await read(10) == ([11], 12, True)
        assert await read(12) == ([], 12, False)

    tell(story)


def test_a_fork_uses_the_builds_of_its_source(tell: Callable[[Story], None]) -> None:
    async def story(scene: Reading) -> None:
        streams, plans = scene.engine.streams, scene.engine.search_configs
        await streams.create("source", Spec(content_type=JSON), draft(docs(1, 2, 3, 4)))
        await plans.put("source", "streams", msgspec.json.encode(SEARCH))
        await scene.upkeep._publisher.publish_plans()
        await scene.seal()
        scene.fake_indexer.index([3])
        await scene.take_over()
        await streams.create("fork", Spec(source="source", at=3), draft(docs(7, 8)))
        fork = scene.engine.live("fork")
        found = await search(scene.engine, fork, partial(parse_search_request, {"q": "n:>1"}, int))
        assert [hit.fields["n"] for hit in found.hits] == [8, 7, 3, 2]
        coverage = found.coverage
        assert (coverage.indexed, coverage.scanned_tail_docs) == ({3}, 2)
        # By another plan than that of the source its builds say nothing.
        other = msgspec.json.encode({**SEARCH, "aliases": {"m": "n"}})
        await plans.put("fork", "streams", other)
        found = await search(scene.engine, fork, partial(parse_search_request, {"q": "m:>1"}, int))
        assert [hit.fields["n"] for hit in found.hits] == [8, 7, 3, 2]
        assert (found.coverage.indexed, found.coverage.scanned) == (set(), {3})

    tell(story)


def test_an_answer_ends_where_it_is_large_enough(
    tell: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(docs(1)[0])
    monkeypatch.setattr(searching, "SEARCH_ANSWER_BYTES", 3 * size)
    monkeypatch.setattr(searching, "_FETCHED_AT_ONCE", 1)

    async def story(scene: Reading) -> None:
        after, pages = None, []
        while True:
            more = {} if after is None else {"search_after": after}
            found = await ask(scene, "t:word", sort=["offset:asc"], **more)
            assert not found.timed_out
            assert found.total == 12 or after is not None
            if not found.hits:
                break
            pages.append(seqs(found))
            after = found.more
            if after is None:
                break
        assert [seq for page in pages for seq in page] == [*range(1, 13)]
        assert max(map(len, pages)) == 3

    tell(story)
