"""What a surface brings to follow a log: a selector, a view, how it begins and how it ends."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from itertools import count
from unittest import mock

import msgspec
import pytest

from headrace.core.config import LogConfig
from headrace.core.limits import WHEEL_TICK_S
from headrace.core.record import Block, draft
from headrace.core.selector import ColumnFeature, Condition, Features, IsOneOf, Picks
from headrace.delivery.channel import Channel
from headrace.delivery.cohort import Follower
from headrace.delivery.endings import Ending, Expired, Over
from headrace.delivery.events import CaughtUp, Event, Records
from headrace.delivery.hub import Hub
from headrace.delivery.sse import LAST_CHUNK, EventStream, chunk
from headrace.delivery.timer_wheel import TimerWheel
from support.engine_harness import boot
from support.hostile import HostileDisk
from support.plumbing import Pipe
from support.virtual import VirtualClock, VirtualLoop

DEADLINE_S = 20.0


class Above(msgspec.Struct, frozen=True):
    """Picks by what is in the payloads; with a condition or without."""

    least: int
    conditions: tuple[Condition, ...] = ()
    cost: int = 1

    def bind(self, config: LogConfig) -> Above:
        return self

    def takes_all(self, block: Block) -> bool:
        return False

    def pick(self, block: Block, picks: Picks) -> Picks:
        return [at for at in picks if int(block.data_at(at)) >= self.least]

    def takes(self, features: Features) -> bool:
        return int(features.block.data_at(features.at)) >= self.least


class Numbers(msgspec.Struct, frozen=True):
    """A view: numbers in a line."""

    selector: Above
    records_max: int = 100
    bytes_max: int = 1000
    strong: bool = False
    gets_superseded: bool = False
    heartbeat_s: float = 0.0

    def encode(self, name: str, event: Event, position: int) -> bytes:
        match event:
            case Records(page=page):
                found = [one.block.data_at(at) for one in page.slices for at in one.picks]
                return chunk(b"%b: %b\n" % (name.encode(), b" ".join(found)))
            case CaughtUp():
                return chunk(b"now\n")
        return b""


class Replay(EventStream):
    """A sink that ends when it has caught up, or at its deadline."""

    __slots__ = ("live", "replays", "view")

    def preamble(self) -> bytes:
        return chunk(b"hello\n")

    def closing_frame(self, ending: Ending) -> bytes:
        return chunk(b"timeout\n" if isinstance(ending, Expired) else b"end\n") + LAST_CHUNK

    def on_open(self) -> None:
        self.followers.add(Follower(self, self.live, self.view, 0, self.transport.write))

    def on_caught_up(self, follower: Follower) -> None:
        if self.replays:
            self.end(Over())


@pytest.mark.parametrize("conditions", [(), (Condition(ColumnFeature("tags"), IsOneOf(("t",))),)])
@pytest.mark.parametrize("replays", [True, False])
def test_a_surface_follows_in_its_own_words(
    conditions: tuple[Condition, ...], replays: bool
) -> None:
    loop = VirtualLoop()

    async def story() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        hub = Hub(engine, TimerWheel())
        append: Callable[..., Coroutine[None, None, object]] = engine.appender.append

        async def write(*datas: bytes) -> None:
            drafts = draft(datas, None, ["t"] * len(datas))
            await append("n", drafts, owner="topics", create=LogConfig())

        await write(b"5", b"50", b"500")
        pipes: list[Pipe] = []
        for least in range(10, 40):
            sink = Replay(hub, 1e6, DEADLINE_S)
            sink.live, sink.replays = engine.live("n"), replays
            sink.view = Numbers(Above(least, conditions))
            pipe = Pipe()
            pipe.protocol = sink
            sink.attach(pipe, sink.preamble(), lambda: None, lambda: None)
            pipes.append(pipe)
        await asyncio.sleep(0.1)
        await write(b"25", b"1")
        await asyncio.sleep(DEADLINE_S + 2 * WHEEL_TICK_S)
        for least, pipe in enumerate(pipes, 10):
            said = [b"hello\n", b"n: 50 500\n", b"now\n"]
            if not replays:
                said += [b"n: 25\n"] if least <= 25 else []
            said += [b"end\n" if replays else b"timeout\n"]
            assert pipe.take() == b"".join(map(chunk, said)) + LAST_CHUNK
        assert len(hub) == 0

    try:
        loop.run(story())
        assert not loop.complaints
    finally:
        loop.close()


class Counting(msgspec.Struct, frozen=True):
    """Picks one tag, and counts how often it is asked."""

    tag: str
    asked: list[int]
    cost: int = 1

    def __hash__(self) -> int:
        return hash(self.tag)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return (Condition(ColumnFeature("tags"), IsOneOf((self.tag,))),)

    def bind(self, config: LogConfig) -> Counting:
        return self

    def takes_all(self, block: Block) -> bool:
        return False

    def pick(self, block: Block, picks: Picks) -> Picks:
        self.asked.append(len(picks))
        return [at for at in picks if block.tags is not None and block.tags[at] == self.tag]

    def takes(self, features: Features) -> bool:
        return bool(self.pick(features.block, [features.at]))


@pytest.mark.parametrize("followers", [40, 80])
def test_a_burst_is_looked_at_once_for_all_who_wait(followers: int) -> None:
    """However slices of a pass fall between appends, nobody looks at what others want."""
    records = 5 * followers
    loop, asked = VirtualLoop(), list[int]()

    async def story(note_round: Callable[[], None]) -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        hub = Hub(engine, TimerWheel())

        async def write(tag: str, data: bytes) -> None:
            drafts = draft([data], None, [tag])
            await engine.appender.append("n", drafts, owner="topics", create=LogConfig())

        await write("none", b"0")
        pipes: list[Pipe] = []
        for number in range(followers):
            sink = Replay(hub, 1e6, DEADLINE_S)
            sink.live, sink.replays = engine.live("n"), False
            sink.view = Numbers(Counting(f"t{number}", asked))  # type: ignore[arg-type]
            pipe = Pipe()
            pipe.protocol = sink
            sink.attach(pipe, sink.preamble(), lambda: None, lambda: None)
            pipes.append(pipe)
        await asyncio.sleep(0.1)
        asked.clear()
        note_round()
        async with asyncio.TaskGroup() as group:
            for number in range(records):
                group.create_task(write(f"t{number % followers}", b"%d" % number))
        await asyncio.sleep(DEADLINE_S + 2 * WHEEL_TICK_S)
        for number, pipe in enumerate(pipes):
            mine = range(number, records, followers)
            text = pipe.take().decode()
            found = [
                word for line in text.split("\n") if line[:3] == "n: " for word in line[3:].split()
            ]
            assert found == [str(each) for each in mine]

    # One follower for each step of the clock: a pass is cut off after every one of them.
    ticks, rounds, slices = count(), count(), Counter[int]()
    this_round = [-1]

    def note_round() -> None:
        this_round[0] = next(rounds)
        if this_round[0] < 1000:  # while something may happen: then time goes on
            loop.call_soon(note_round)

    def note_slice(channel: Channel) -> None:
        if 0 <= this_round[0] < 1000:
            slices[this_round[0]] += 1
        take_on(channel)

    take_on = Channel._take_on
    try:
        with (
            mock.patch("headrace.delivery.channel.perf_counter", ticks.__next__),
            mock.patch.object(Channel, "_take_on", note_slice),
        ):
            loop.run(story(note_round))
    finally:
        loop.close()
    assert max(slices.values()) == 1
    # The index asks once for each record that somebody wants.
    assert sum(asked) <= 2 * records
