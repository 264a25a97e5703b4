"""`headrace.client.feeds` and a real process: with hints, without, over lines that break."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest

from headrace.client.feeds import AsyncFeed, Feed, FeedGap, FeedPage, FeedRefused, FollowPolicy
from headrace_bench.process import ServerProcess
from support.feed_grpc import ANSWER_S, event, grpc_server

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("feeds-client")]
QUICK = FollowPolicy(pause_s=0.01, pause_s_max=0.05, unknown_s=0.02, limit=100)
EVENTS, BATCH = 10_000, 50
NOWHERE = "127.0.0.1:1"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, str]]:
    with grpc_server(tmp_path_factory.mktemp("feeds")) as found:
        yield found


async def store(client: httpx.AsyncClient, tenant: str, count: int = 1) -> None:
    body = {"events": [event("theme")] * count}
    answer = await client.post(f"/tenants/{tenant}/events", json=body)
    assert answer.status_code == 201, answer.text


async def wait_for_hints(feed: AsyncFeed) -> None:
    while not feed.has_hints:  # noqa: ASYNC110  (nobody but a test waits for that)
        await asyncio.sleep(0.001)


class Line:
    """A line to a server that can be cut."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._ends: set[asyncio.StreamWriter] = set()
        self.connections = 0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        there, back = await asyncio.open_connection(self._host, self._port)
        self._ends |= {writer, back}
        try:
            with suppress(ConnectionError):
                await asyncio.gather(_copy(reader, back), _copy(there, writer))
        finally:
            for end in (writer, back):
                self._ends.discard(end)
                end.transport.abort()

    def cut(self) -> None:
        for end in tuple(self._ends):
            end.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    raise ConnectionError("over")


@asynccontextmanager
async def breakable(target: str) -> AsyncIterator[tuple[Line, str]]:
    line = Line(target)
    server = await asyncio.start_server(line.carry, "127.0.0.1", 0)
    try:
        yield line, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        line.cut()


def test_no_event_is_missed_under_churn(shared: tuple[ServerProcess, str]) -> None:
    """Lines of hints and of requests are cut, and readers end and come again, all the time."""
    server, target = shared
    got: list[int] = []
    ids: set[str] = set()

    async def read(line: Line, hints: Line, url: str, at: str) -> None:
        cursor, pages = 0, 0
        while cursor < EVENTS:
            feed = AsyncFeed(url, "churn", after=cursor, hints=at, policy=QUICK)
            async with feed:
                await wait_for_hints(feed)
                async for item in feed:
                    assert isinstance(item, FeedPage)
                    got.extend(each.sequence_number for each in item.events)
                    ids.update(each.id for each in item.events)
                    pages += 1
                    if pages % 5 == 0:
                        hints.cut()
                    if pages % 7 == 0:
                        line.cut()
                    if pages % 11 == 0:
                        break  # not done with this page: it comes again
                    cursor = item.cursor
                    if cursor >= EVENTS:
                        break

    async def run() -> None:
        async with (
            httpx.AsyncClient(base_url=server.url) as client,
            breakable(target) as (hints, at),
            breakable(server.url.removeprefix("http://")) as (line, address),
            asyncio.timeout(120),
            asyncio.TaskGroup() as tasks,
        ):
            await store(client, "churn", BATCH)  # a tenant is there from its first event on
            tasks.create_task(read(line, hints, f"http://{address}", at))
            for _ in range(1, EVENTS // BATCH):
                await store(client, "churn", BATCH)
        assert hints.connections >= EVENTS // 100 // 11
        assert line.connections >= EVENTS // 100 // 11

    asyncio.run(run())
    assert sorted(set(got)) == list(range(1, EVENTS + 1)), "none is missed"
    assert "Traceback" not in server.output()
    assert len(ids) == EVENTS
    assert len(got) > EVENTS, "pages that were not done with came again"


def test_hints_bring_events_without_polling(shared: tuple[ServerProcess, str]) -> None:
    server, target = shared
    # Were it not for hints, the next request would come in an hour.
    policy = FollowPolicy(wait_s=0, poll_s=3600)

    async def run() -> None:
        async with httpx.AsyncClient(base_url=server.url) as client:
            await store(client, "hinted")
            async with (
                AsyncFeed(server.url, "hinted", hints=target, policy=policy) as feed,
                asyncio.timeout(ANSWER_S),
            ):
                assert (await anext(feed)).cursor == 1
                for number in range(2, 20):
                    waiting = asyncio.create_task(anext(feed))
                    await wait_for_hints(feed)
                    await store(client, "hinted")
                    assert (await waiting).cursor == number

    asyncio.run(run())


@pytest.mark.parametrize("hints", [None, NOWHERE])
def test_without_hints_events_come_all_the_same(
    shared: tuple[ServerProcess, str], hints: str | None
) -> None:
    server, _ = shared
    tenant = "nowhere" if hints else "plain"

    async def run() -> None:
        async with (
            httpx.AsyncClient(base_url=server.url) as client,
            AsyncFeed(server.url, tenant, hints=hints, policy=QUICK) as feed,
            asyncio.timeout(ANSWER_S),
        ):
            for number in range(1, 6):
                waiting = asyncio.create_task(anext(feed))
                await store(client, tenant)  # the first one makes the tenant
                assert (await waiting).cursor == number
                assert not feed.has_hints

    asyncio.run(run())


def test_filters_are_those_of_the_server(shared: tuple[ServerProcess, str]) -> None:
    server, target = shared

    async def run() -> None:
        async with httpx.AsyncClient(base_url=server.url) as client:
            for type in ("theme", "version", "theme", "version"):
                await client.post("/tenants/filtered/events", json=event(type))
            async with (
                AsyncFeed(server.url, "filtered", hints=target, resource_types=["version"]) as feed,
                asyncio.timeout(ANSWER_S),
            ):
                item = await anext(feed)
                assert isinstance(item, FeedPage)
                assert [each.sequence_number for each in item.events] == [2, 4]

    asyncio.run(run())


def test_a_gap_is_told_and_refusals_are_raised(tmp_path: Path) -> None:
    settings = {"HEADRACE_ADMIN_TOKEN": "the-superadmin", "FEEDS_RETENTION_MS": "1"}
    headers = {"authorization": "Bearer the-superadmin"}

    async def run() -> None:
        with grpc_server(tmp_path, **settings) as (server, target):
            async with (
                httpx.AsyncClient(base_url=server.url, headers=headers) as client,
                asyncio.timeout(ANSWER_S),
            ):
                await store(client, "acme", 5)
                while (await client.get("/tenants/acme/events?after=2")).status_code != 410:
                    pass
                key = "the-superadmin"
                async with AsyncFeed(server.url, "acme", after=2, key=key, hints=target) as feed:
                    gap = await anext(feed)
                    assert gap == FeedGap(2, 6)
                    assert (gap.cursor, feed.cursor) == (5, 2)
                async with AsyncFeed(server.url, "acme", key="nonsense", hints=target) as feed:
                    with pytest.raises(FeedRefused) as refused:
                        await anext(feed)
                    assert refused.value.status == 401

    asyncio.run(run())


def test_a_thread_follows_for_who_can_block(shared: tuple[ServerProcess, str]) -> None:
    server, _ = shared
    path = f"{server.url}/tenants/blocking/events"
    httpx.post(path, json=event("theme"))
    with Feed(server.url, "blocking", policy=QUICK) as feed:
        assert next(feed).cursor == 1
        httpx.post(path, json=event("theme"))
        assert next(feed).cursor == 2
        assert feed.cursor == 1
        feed.close()
        assert list(feed) == []


@pytest.mark.parametrize(
    "options",
    [{"key": "two words"}, {"resource_types": "theme"}],
)
def test_what_no_server_would_take_is_said_at_once(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Feed("http://127.0.0.1:1", "acme", **options)
    with pytest.raises(ValueError, match="address"):
        Feed("ftp://127.0.0.1:1", "acme")
