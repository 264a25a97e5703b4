"""When the time of a request is up: what is read then, and what is told of the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from math import inf
from typing import Any

import pytest

from headrace.core.selector import ColumnSelector
from headrace.engine.search import scope as scoping
from headrace.engine.search import searching
from headrace.engine.search.aggregating import Aggregated, aggregate
from headrace.engine.search.filtering import Filter
from headrace.engine.search.keys import list_keys
from headrace.engine.search.searching import SearchAnswer, search
from headrace.engine.search.time_slices import Deadline
from headrace.search.companions import Sorted
from headrace.storage.segments import Segments
from headrace.web.search_requests import parse_aggregate_request, parse_search_request
from support.engine_harness import small
from support.fake_indexer import Reading, reading
from support.virtual import VirtualClock, VirtualLoop


def field(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "bindings": [{"version": 1, "jsonPointer": f"/{name}"}], **more}


SEARCH = {
    "primaryTimestampField": "at",
    "fields": {
        "at": field("date", "at", column=True),
        "n": field("integer", "n", column=True, sortable=True, aggregatable=True),
        "k": field("keyword", "k", exact=True, sortable=True),
        "t": field("text", "t", analyzer="unicode_word_v1"),
    },
    "rollups": {
        "all": {
            "dimensions": ["k"],
            "intervals": ["4s"],
            "measures": {"n": {"kind": "summary", "field": "n"}, "count": {"kind": "count"}},
        }
    },
}
KEYS = ["x", "y", "z", "x"]


def docs(*numbers: int) -> list[bytes]:
    return [b'{"n":%d,"at":%d,"k":"k%d","t":"word w%d"}' % (n, 1000 * n, n % 3, n) for n in numbers]


class Time:
    """Is up when somebody says so, or when something was done so many times."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.is_up = False
        self.counts: dict[str, int] = {}
        self._limits: dict[str, float] = {}
        self._patch = patch
        limited = property(lambda deadline: self.is_up and deadline.left_s < inf)
        patch.setattr(Deadline, "over", limited)

    def is_up_after(self, kind: type, name: str, times: int) -> None:
        """From then on every more of it is counted."""
        real = getattr(kind, name)
        self._limits[name] = times

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.counts[name] = self.counts.get(name, 0) + 1
            self.is_up = self.is_up or self.counts[name] >= self._limits[name]
            return real(*args, **kwargs)

        self._patch.setattr(kind, name, counted)

    def is_never_up(self) -> None:
        self.is_up = False
        self._limits = dict.fromkeys(self._limits, inf)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


Story = Callable[[Reading], Awaitable[None]]
Tell = Callable[[Story], None]


@pytest.fixture
def tell() -> Iterator[Tell]:
    """Records 1 to 4 in a build, 5 to 8 and 9 to 12 in segments, 13 to 16 in memory."""
    loop = VirtualLoop()

    def run(story: Story) -> None:
        async def play() -> None:
            scene = await reading(VirtualClock(loop))
            for start in (1, 5, 9):
                await scene.append(docs(*range(start, start + 4)), KEYS)
                await scene.plan(SEARCH)
                await scene.seal()
            scene.fake_indexer.index([1])
            await scene.take_over()
            await scene.append(docs(13, 14, 15, 16), KEYS)
            await story(scene)

        loop.run(play())

    with small():
        yield run
    loop.close()


async def find(scene: Reading, q: str, **more: Any) -> SearchAnswer:
    return await search(
        scene.engine, scene.live, partial(parse_search_request, {"q": q, **more}, int)
    )


async def count(scene: Reading, **more: Any) -> Aggregated:
    asked = {"rollup": "all", "from": 0, "to": 100_000, "interval": "4s", **more}
    return await aggregate(scene.engine, scene.live, partial(parse_aggregate_request, asked))


def counted(found: Aggregated) -> int:
    """How many records are in the answer, by each of its measures."""
    measures = [g["measures"] for bucket in found.buckets for g in bucket["groups"]]
    totals = {sum(each[name]["count"] for each in measures) for name in ("n", "count")}
    (total,) = totals
    return total


# --- searches -------------------------------------------------------------------------------------


def test_a_search_reads_no_more_of_a_build(tell: Tell, time: Time) -> None:
    async def story(scene: Reading) -> None:
        time.is_up_after(Sorted, "read", 1)
        found = await find(scene, "n:>0 k:k1 t:word", sort=["n:desc"])
        assert time.counts == {"read": 1}
        assert (found.timed_out, found.exact, found.hits) == (True, False, [])
        assert found.coverage.missing == [1, 16]

    tell(story)


def test_a_search_looks_at_what_it_has_read_and_reads_no_more_segments(
    tell: Tell, time: Time
) -> None:
    async def story(scene: Reading) -> None:
        time.is_up_after(Segments, "read", 1)
        found = await find(scene, "n:>4", size=16)
        assert time.counts == {"read": 1 + 1}  # and one to say how old the rest is
        assert [hit.seq for hit in found.hits] == [8, 7, 6, 5]
        assert (found.timed_out, found.exact) == (True, False)
        assert found.coverage.missing == [9, 16]

    tell(story)


def test_a_search_does_not_wait_for_a_build_that_others_use(tell: Tell) -> None:
    async def story(scene: Reading) -> None:
        builds = scene.engine.segments.builds
        build = builds.of(1)
        assert build is not None
        with builds.open(build, 1):
            found = await find(scene, "n:>0", timeout_ms=1)
        assert found.timed_out
        assert 1 in found.coverage.missing

    tell(story)


def test_hits_come_with_their_documents_or_not_at_all(
    tell: Tell, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "_FETCHED_AT_ONCE", 2)

    async def story(scene: Reading) -> None:
        scene.fake_indexer.index([2, 3])
        await scene.take_over()
        time.is_up_after(Segments, "read", 1)
        found = await find(scene, "n:<=12", sort=["n:asc"], size=12)
        seqs = [hit.seq for hit in found.hits]
        assert 0 < len(seqs) < 12
        assert seqs == list(range(1, len(seqs) + 1))
        assert (found.timed_out, found.exact) == (True, False)
        assert found.more == [len(seqs), len(seqs)]
        time.is_never_up()
        rest = await find(scene, "n:<=12", sort=["n:asc"], size=12, search_after=found.more)
        assert [*seqs, *(hit.seq for hit in rest.hits)] == list(range(1, 13))
        assert not rest.timed_out

    tell(story)


def test_a_batch_has_so_many_bytes(tell: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoping, "BATCH_BYTES", 2 * len(docs(9)[0]))

    async def story(scene: Reading) -> None:
        scope = scoping.SearchScope(scene.engine, scene.live, "no plan")
        batches = [batch.seqs for batch in scope.batches()]
        assert [seq for seqs in batches for seq in seqs] == list(range(1, 17))
        assert max(map(len, batches)) == 2

    tell(story)


def test_a_filtered_page_ends_where_it_is(tell: Tell, time: Time) -> None:
    async def story(scene: Reading) -> None:
        time.is_up = True
        after = 0
        pages = []
        while after < 16:
            page = await Filter(scene.engine, "n:>0").read(
                scene.live, after, records_max=100, bytes_max=10_000, selector=ColumnSelector()
            )
            assert page.next > after  # however little time there is, it comes on
            pages.append(page.count)
            after = page.next
        assert sum(pages) == 16
        assert len(pages) > 2

    tell(story)


# --- aggregates and keys --------------------------------------------------------------------------


def test_an_aggregate_without_time(tell: Tell) -> None:
    async def story(scene: Reading) -> None:
        found = await count(scene, timeout_ms=0)
        assert (found.timed_out, found.buckets) == (True, [])
        assert found.coverage.missing == [1, 16]
        assert found.coverage.oldest_left_ms is not None
        found = await count(scene)
        assert (found.timed_out, found.coverage.complete, counted(found)) == (False, True, 16)

    tell(story)


@pytest.mark.parametrize("reads", range(1, 8))
@pytest.mark.parametrize("q", ["", "n:>0"])
def test_an_aggregate_counts_what_it_says_it_saw(
    tell: Tell, time: Time, reads: int, q: str
) -> None:
    async def story(scene: Reading) -> None:
        time.is_up_after(Sorted, "read", reads)
        found = await count(scene, q=q, group_by=["k"], **{"from": 1, "to": 99_999})
        assert time.counts["read"] <= reads
        seen = 16 - found.coverage.missing_events
        if seen:
            assert counted(found) == seen
        else:
            assert found.buckets == []
        assert found.timed_out == (not found.coverage.complete)

    tell(story)


def test_an_aggregate_counts_what_it_has_read_of_segments(tell: Tell, time: Time) -> None:
    async def story(scene: Reading) -> None:
        time.is_up_after(Segments, "read", 2)
        found = await count(scene)
        assert found.timed_out
        assert found.coverage.missing == [13, 16]
        assert counted(found) == 12

    tell(story)


def test_keys_without_time(tell: Tell, time: Time) -> None:
    async def story(scene: Reading) -> None:
        time.is_up_after(Segments, "read", 1)
        found = await list_keys(scene.engine, scene.live, None, 10)
        assert not found.coverage.complete
        assert found.coverage.missing == [9, 16]
        assert found.keys == ["x", "y", "z"]

    tell(story)
