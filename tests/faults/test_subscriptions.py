"""Subscriptions on a whole engine: retries, leases and wakes, on a virtual clock."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from itertools import pairwise
from typing import Any

import pytest

from headrace.core.glob import Glob
from headrace.core.limits import WEBHOOKS_AT_ONCE
from headrace.core.subscription import PULL, WEBHOOK, LinkWork, StreamEnd
from headrace.engine.callbacks.sender import DeliveryFailed
from headrace.engine.caps import Caps, KeyCaps
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog
from headrace.engine.start import stop
from support.engine_harness import boot, small
from support.hostile import HostileDisk
from support.state_journal import JSON, Client, StateJournal
from support.virtual import VirtualClock, VirtualLoop

Story = Callable[[Engine, Client], Coroutine[Any, Any, None]]
PER_KEY = 4
CAPS = Caps(tail_bytes=600, per_key=KeyCaps(webhooks=PER_KEY))


@pytest.fixture
def tell() -> Iterator[Callable[[Story], None]]:
    """Runs a story on an engine in operation."""
    loop = VirtualLoop()

    def run(story: Story) -> None:
        async def live() -> None:
            started = await boot(HostileDisk(), VirtualClock(loop), caps=CAPS)
            state_journal = StateJournal()
            state_journal.watch(started.engine)
            beside = asyncio.create_task(started.engine.subscriptions.run())
            await story(started.engine, Client(started.engine, state_journal))
            beside.cancel()

        loop.run(live())

    with small():
        yield run
    loop.close()


class Hook:
    """A webhook that answers as told and remembers when it was called, for what."""

    def __init__(self, *answers: bool | str) -> None:
        self._answers = list(answers)
        self.calls: list[tuple[float, int, list[tuple[str, int, int]]]] = []

    async def __call__(self, live: OpenLog, works: list[LinkWork]) -> bool:
        assert live.log.subscription is not None
        told = [(work.path, work.done, work.tail.seq) for work in works]
        now_s = asyncio.get_running_loop().time()
        self.calls.append((now_s, live.log.subscription.generation, told))
        answer = self._answers.pop(0) if self._answers else True
        if isinstance(answer, str):
            raise DeliveryFailed(answer)
        return answer


def test_a_webhook_is_told_of_what_comes_after(tell: Callable[[Story], None]) -> None:
    async def story(engine: Engine, client: Client) -> None:
        hook = engine.subscriptions.deliver = Hook()
        await client.create("a", b"before")
        await client.subscribe("s", WEBHOOK, pattern="*", url="http://x")
        await asyncio.sleep(1)
        assert hook.calls == []
        await client.write("a", b"after", b"and more")
        await asyncio.sleep(1)
        await client.create("b", b"new")
        await asyncio.sleep(1)
        assert [told for _, _, told in hook.calls] == [[("a", 1, 3)], [("b", 0, 1)]]
        subscription = engine.subscriptions.find("s").subscription
        assert subscription.idle
        assert subscription.links == {}, "what is done needs no note"

    tell(story)


def test_a_failing_webhook_is_tried_again_ever_more_slowly(tell: Callable[[Story], None]) -> None:
    async def story(engine: Engine, client: Client) -> None:
        hook = engine.subscriptions.deliver = Hook("no", "no", "no")
        await client.subscribe("s", WEBHOOK, pattern="*", url="http://x")
        await client.create("a", b"1")
        await asyncio.sleep(0.5)
        assert engine.subscriptions.find("s").subscription.failures == 1
        await asyncio.sleep(30)
        times = [at for at, _, _ in hook.calls]
        waits = [later - at for at, later in pairwise(times)]
        assert len(waits) == 3
        for wait_s, wanted_s in zip(waits, (1, 2, 4), strict=True):
            assert 0.8 * wanted_s <= wait_s <= 1.2 * wanted_s + 0.3
        assert {generation for _, generation, _ in hook.calls} == {1}
        assert engine.subscriptions.find("s").subscription.failures == 0

    tell(story)


def test_a_webhook_that_says_nothing_more_loses_its_lease(tell: Callable[[Story], None]) -> None:
    async def story(engine: Engine, client: Client) -> None:
        hook = engine.subscriptions.deliver = Hook(False, True)
        await client.subscribe("s", WEBHOOK, pattern="*", url="http://x")
        await client.create("a", b"1")
        await asyncio.sleep(2)
        assert len(hook.calls) == 1
        await asyncio.sleep(2)
        assert [generation for _, generation, _ in hook.calls] == [1, 2]

    tell(story)


def test_what_comes_meanwhile_is_told_afterwards(tell: Callable[[Story], None]) -> None:
    async def story(engine: Engine, client: Client) -> None:
        async def slow(live: OpenLog, works: list[LinkWork]) -> bool:
            calls.append([work.tail.seq for work in works])
            await asyncio.sleep(1)
            return True

        calls: list[list[int]] = []
        engine.subscriptions.deliver = slow
        await client.subscribe("s", WEBHOOK, pattern="*", url="http://x")
        await client.create("a", b"1")
        await asyncio.sleep(0.5)
        await client.write("a", b"2")
        await asyncio.sleep(3)
        assert calls == [[1], [2]]

    tell(story)


def test_a_wake_stream_may_come_later(tell: Callable[[Story], None]) -> None:
    async def story(engine: Engine, client: Client) -> None:
        await client.subscribe("s", PULL, pattern="**", wake_stream="wakes")
        await client.create("a", b"1")
        await asyncio.sleep(1)
        assert engine.subscriptions.find("s").subscription.idle
        await client.create("wakes", content_type=JSON)
        await asyncio.sleep(1)
        assert engine.state.by_name["wakes"].head == 1, "what was due before is told now"
        await client.write("a", b"2")
        await asyncio.sleep(1)
        assert engine.state.by_name["wakes"].head == 1, "and its own wakes wake nobody"
        await client.work("s")
        await asyncio.sleep(1)
        assert engine.state.by_name["wakes"].head == 1

    tell(story)


def test_a_named_stream_is_followed_without_a_pattern(tell: Callable[[Story], None]) -> None:
    async def story(engine: Engine, client: Client) -> None:
        hook = engine.subscriptions.deliver = Hook()
        await client.subscribe("s", WEBHOOK, streams=["a"], url="http://x")
        await client.create("a", b"1")
        await client.create("b", b"1")
        await asyncio.sleep(1)
        assert [told for _, _, told in hook.calls] == [[("a", 0, 1)]]
        await engine.subscriptions.unlink("s", "a")
        await engine.subscriptions.link("s", ["b"])
        await client.write("a", b"2")
        await client.write("b", b"2")
        await asyncio.sleep(1)
        assert [told for _, _, told in hook.calls][1:] == [[("b", 1, 2)]]

    tell(story)


def test_a_stream_that_is_followed_no_more_stays_so(tell: Callable[[Story], None]) -> None:
    """It is taken out while a webhook is told of it."""

    async def story(engine: Engine, client: Client) -> None:
        calls: list[list[str]] = []

        async def slow(live: OpenLog, works: list[LinkWork]) -> bool:
            calls.append([work.path for work in works])
            await asyncio.sleep(1)
            return True

        engine.subscriptions.deliver = slow
        await client.create("a", b"1")
        await client.create("b", b"1")
        await client.subscribe("s", WEBHOOK, streams=["a", "b"], url="http://x")
        await client.write("a", b"2")
        await asyncio.sleep(0.5)
        await engine.subscriptions.unlink("s", "a")
        await client.write("a", b"3")
        await asyncio.sleep(1)
        await client.write("b", b"2")
        await asyncio.sleep(3)
        assert calls == [["a"], ["b"]]
        assert list(engine.subscriptions.find("s").subscription.links) == ["b"]

    tell(story)


def test_a_wake_that_went_with_its_stream_is_written_again(tell: Callable[[Story], None]) -> None:
    async def story(engine: Engine, client: Client) -> None:
        await client.create("wakes", content_type=JSON)
        await client.subscribe("s", PULL, pattern="a", wake_stream="wakes")
        await client.create("a", b"1")
        await asyncio.sleep(1)
        assert engine.streams.find("wakes").visible == 1
        await client.delete("wakes")
        await client.create("wakes", content_type=JSON)
        await asyncio.sleep(1)
        assert engine.streams.find("wakes").visible == 1, "nobody would ever hear of the work"
        await client.work("s")
        await client.delete("wakes")
        await client.create("wakes", content_type=JSON)
        await asyncio.sleep(1)
        assert engine.streams.find("wakes").visible == 0, "there is nothing to do"

    tell(story)


def test_a_wake_is_not_written_where_nobody_reads(tell: Callable[[Story], None]) -> None:
    """A deleted wake stream that has forks takes nothing."""

    async def story(engine: Engine, client: Client) -> None:
        await client.create("wakes", content_type=JSON)
        await client.create("fork", source="wakes")
        await client.delete("wakes")
        await client.subscribe("s", PULL, pattern="a", wake_stream="wakes")
        await client.create("a", b"1")
        await asyncio.sleep(1)
        assert engine.subscriptions.find("s").subscription.idle
        await client.delete("fork")
        await client.create("wakes", content_type=JSON)
        await asyncio.sleep(1)
        assert engine.streams.find("wakes").visible == 1

    tell(story)


def test_a_wake_stream_lives_on_with_its_wakes(tell: Callable[[Story], None]) -> None:
    async def story(engine: Engine, client: Client) -> None:
        await client.create("wakes", content_type=JSON, ttl_ms=10_000)
        await client.subscribe("s", PULL, pattern="a*", wake_stream="wakes")
        for number in range(4):
            await asyncio.sleep(7)
            await client.create(f"a{number}", b"1")
            await asyncio.sleep(0.1)
            engine.streams.expiry.sweep()
            await client.work("s")
        assert engine.state.by_name["wakes"].head == 4

    tell(story)


class Gate:
    """Webhooks that answer when they are let; counts who is called at a time."""

    def __init__(self, slow: str = "") -> None:
        self.open = asyncio.Event()
        self.calls: Counter[str] = Counter()
        self.under_way: Counter[str] = Counter()
        self._slow = slow

    async def __call__(self, live: OpenLog, works: list[LinkWork]) -> bool:
        name = live.log.name.rpartition("/")[2]
        self.calls[name] += 1
        self.under_way[name] += 1
        assert self.under_way[name] == 1, "one call of a subscription at a time"
        try:
            if name.startswith(self._slow):
                await self.open.wait()
        finally:
            self.under_way[name] -= 1
        return True


def test_a_subscription_has_one_call_at_a_time(tell: Callable[[Story], None]) -> None:
    """A receiver that says by callback that all is done, and goes on with its answer."""

    async def story(engine: Engine, client: Client) -> None:
        gate = engine.subscriptions.deliver = Gate()
        await client.subscribe("s", WEBHOOK, pattern="*", url="http://x")
        await client.create("a", b"1")
        await asyncio.sleep(0.5)
        for _ in range(3):
            active = engine.subscriptions.find("s")
            subscription = active.subscription
            if not subscription.idle:
                acks = [("a", 0, engine.state.by_name["a"].head)]
                await engine.subscriptions.acknowledge(
                    active, subscription.wake or "", subscription.generation, acks, done=True
                )
            await client.write("a", b"more")
            await asyncio.sleep(0.5)
        assert gate.calls["s"] == 1
        gate.open.set()
        await asyncio.sleep(0.5)
        assert gate.calls["s"] == 2, "what came meanwhile is told afterwards"
        assert engine.subscriptions.find("s").subscription.idle

    tell(story)


def test_a_receiver_that_failed_before_a_restart_counts_as_slow() -> None:
    loop, disk = VirtualLoop(), HostileDisk()

    async def live() -> None:
        started = await boot(disk, VirtualClock(loop))
        started.engine.subscriptions.deliver = Hook("no")
        client = Client(started.engine, StateJournal())
        await client.subscribe("s", WEBHOOK, pattern="*", url="http://x")
        await client.subscribe("other", WEBHOOK, pattern="b", url="http://x")
        await client.create("a", b"1")
        await asyncio.sleep(0.1)
        again = (await boot(disk.kill(), VirtualClock(loop))).engine.subscriptions
        assert [again.find(id).slow for id in ("s", "other")] == [True, False]

    with small():
        loop.run(live())
    loop.close()


def test_receivers_that_never_end_leave_room_for_others(tell: Callable[[Story], None]) -> None:
    async def story(engine: Engine, client: Client) -> None:
        gate = engine.subscriptions.deliver = Gate("slow")
        for number in range(3 * PER_KEY):
            await client.subscribe(f"slow{number}", WEBHOOK, pattern="a", url="x", created_by="k")
        await client.create("a", b"1")
        await asyncio.sleep(0.5)
        assert gate.under_way.total() == PER_KEY
        await client.subscribe("fast", WEBHOOK, pattern="b", url="x", created_by="other")
        await client.create("b", b"1")
        await asyncio.sleep(0.5)
        assert gate.calls["fast"] == 1
        gate.open.set()
        await asyncio.sleep(0.5)
        assert len(gate.calls) == 3 * PER_KEY + 1, "and everybody has a turn"

    tell(story)


def test_a_wait_for_a_slot_is_no_part_of_the_lease(tell: Callable[[Story], None]) -> None:
    async def story(engine: Engine, client: Client) -> None:
        gate = engine.subscriptions.deliver = Gate("slow")
        engine.sender._slots._overdue_max = 0  # nobody lets go
        for number in range(WEBHOOKS_AT_ONCE):
            key = str(number)
            await client.subscribe(f"slow{key}", WEBHOOK, pattern="a", url="x", created_by=key)
        await client.create("a", b"1")
        await client.subscribe("last", WEBHOOK, pattern="b", url="x")
        await client.create("b", b"1")
        await asyncio.sleep(60)
        last = engine.subscriptions.find("last").subscription
        assert (last.generation, gate.calls["last"]) == (0, 0)
        gate.open.set()
        await asyncio.sleep(0.5)
        assert (last.generation, gate.calls["last"]) == (1, 1)

    tell(story)


def test_a_stop_waits_for_no_webhook_and_the_next_start_calls_again() -> None:
    loop, disk = VirtualLoop(), HostileDisk()
    clock = VirtualClock(loop)
    gates = [Gate(), Gate()]

    async def live() -> None:
        started = await boot(disk, clock)
        engine = started.engine
        engine.subscriptions.deliver = gates[0]
        client = Client(engine, StateJournal())
        await client.subscribe("s", WEBHOOK, pattern="*", url="http://x")
        await client.create("a", b"1")
        await asyncio.sleep(0.1)
        assert gates[0].under_way.total() == 1
        await stop(started)
        assert gates[0].under_way.total() == 0

    async def again() -> None:
        started = await boot(disk, clock)
        engine = started.engine
        engine.subscriptions.deliver = gates[1]
        gates[1].open.set()
        beside = asyncio.create_task(engine.subscriptions.run())
        await asyncio.sleep(1)
        subscription = engine.subscriptions.find("s").subscription
        assert gates[1].calls["s"] == 1, "long before its lease is over"
        assert (subscription.generation, subscription.failures) == (1, 0)
        assert subscription.idle
        beside.cancel()

    with small():
        loop.run(live())
        disk.world.locked.clear()
        loop.run(again())
    loop.close()


def test_streams_that_come_and_go_leave_no_notes(tell: Callable[[Story], None]) -> None:
    async def story(engine: Engine, client: Client) -> None:
        await client.subscribe("s", PULL, pattern="a*", streams=["named"], wake_stream="wakes")
        for number in range(20):
            await client.create(f"a{number}", b"1", **({"ttl_ms": 10} if number % 2 else {}))
        assert len(engine.subscriptions.find("s").subscription.links) == 21
        await asyncio.sleep(1)
        engine.streams.expiry.sweep()
        for number in range(0, 20, 2):
            await client.delete(f"a{number}")
        assert list(engine.subscriptions.find("s").subscription.links) == ["named"]
        await client.create("a0", b"1")
        works = engine.subscriptions.pending(engine.subscriptions.find("s"))
        assert [(work.path, work.done, work.tail.seq) for work in works] == [("a0", 0, 1)]

    tell(story)


def test_what_others_subscribe_to_costs_a_stream_no_matching(
    tell: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    matches = Glob.matches

    def counted(self: Glob, name: str) -> bool:
        asked.append(name)
        return matches(self, name)

    async def story(engine: Engine, client: Client) -> None:
        for number in range(50):
            await client.subscribe(f"s{number}", PULL, pattern=f"t{number}/*", wake_stream="w")
        await client.create("t7/a", b"1")
        assert asked == ["t7/a"]
        await engine.subscriptions.link("s1", ["t7/b"])
        await engine.subscriptions.unlink("s1", "t7/b")
        asked.clear()
        await client.write("t7/a", b"2")
        assert asked == [], "what was found before is still true"

    monkeypatch.setattr(Glob, "matches", counted)
    tell(story)


def test_an_append_looks_at_no_other_stream(tell: Callable[[Story], None]) -> None:
    async def story(engine: Engine, client: Client) -> None:
        await client.create("wakes", content_type=JSON)
        names = [f"a{number}" for number in range(50)]
        for name in ("s", "deaf"):
            wakes = "wakes" if name == "s" else "nobody made it"
            await client.subscribe(name, PULL, streams=names, wake_stream=wakes)
        looked: list[str] = []
        tail = engine.subscriptions.tail

        def counted(path: str) -> StreamEnd | None:
            looked.append(path)
            return tail(path)

        engine.subscriptions.tail = counted  # type: ignore[method-assign]
        await client.create("a49", b"1")
        await asyncio.sleep(1)
        assert engine.streams.find("wakes").visible == 1
        assert set(looked) == {"a49"}, "the first append wakes"
        for _ in range(5):
            await client.write("a49", b"more")
        await asyncio.sleep(1)
        assert set(looked) == {"a49"}, "those behind it find somebody at work, or nobody to wake"
        assert len(looked) <= 8

    tell(story)
