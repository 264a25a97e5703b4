"""Streams and subscriptions through crashes: every disk call of a workload as crash point."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from random import Random

import pytest

from headrace.core.errors import Code, Refused
from headrace.core.stream_state import Producer
from headrace.core.subscription import PULL, WEBHOOK
from headrace.storage.checks.findings import Problem
from headrace.storage.verification import Verification
from support.engine_harness import boot
from support.hostile import HARMLESS, HostileDisk, Survival
from support.state_journal import JSON, Client, StateJournal, check_records, done, picture
from support.virtual import VirtualClock, VirtualLoop


async def live(client: Client) -> None:
    """The whole story: everything that streams and subscriptions can do, once."""
    await client.create("wakes", content_type=JSON)
    await client.subscribe("pull", PULL, pattern="jobs/*", wake_stream="wakes")
    await client.subscribe("push", WEBHOOK, pattern="jobs/**", streams=["a"], url="http://x")
    await client.create("a", b"one", b"two")
    await asyncio.gather(
        *(client.write("a", b"p%d" % seq, producer=Producer("p", 0, seq)) for seq in range(3)),
        client.write("a", b"q", producer=Producer("q", 5, 0), seq="1"),
        client.create("jobs/1", b"x"),
        client.create("b", ttl_ms=2000),
    )
    await client.write("a", b"again", producer=Producer("p", 0, 1))  # a retry: nothing happens
    await client.create("f", source="a", at=3)
    await client.create("g", b"g1", source="a", at=1, sub=2)
    await client.write("f", b"own", seq="7")
    await asyncio.gather(
        client.work("pull"), client.write("g", b"g2", producer=Producer("p", 1, 0))
    )
    await client.write("a", b"last", producer=Producer("p", 0, 3), close=True)
    await client.create("h", source="f")
    await client.delete("a")
    await client.delete("f")
    await client.write("jobs/1", b"y")
    await client.write("b", b"still here")
    await asyncio.sleep(1.5)
    await client.write("b", b"and now")
    await client.delete("g")
    await asyncio.gather(client.delete("h"), client.create("done", b"all", closed=True))
    await asyncio.sleep(4)
    client.engine.streams.expiry.sweep()
    client.engine.subscriptions.tick()
    assert sorted(client.engine.state.names("", "", "streams")) == ["done", "jobs/1", "wakes"]
    await client.create("a", b"anew")
    await client.create("b", ttl_ms=500)
    await client.work("pull")
    await client.write("a", b"z" * 300)
    await client.delete("done")


def schema(*names: str) -> dict[str, object]:
    return {"type": "object", "properties": {n: {} for n in names}, "required": [*names]}


def rename(stream: str, version: int, source: str, to: str) -> dict[str, object]:
    return {
        "apiVersion": "durable.lens/v1", "schema": stream, "from": version, "to": version + 1,
        "ops": [{"op": "rename", "from": f"/{source}", "to": f"/{to}"}],
    }  # fmt: skip


SEARCH = {
    "primaryTimestampField": "at",
    "fields": {"at": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/at"}]}},
}


async def shape(client: Client) -> None:
    """What streams hold: schemas, profiles, and what forks take over of both."""
    await asyncio.gather(
        client.create("s", content_type=JSON), client.create("e", content_type=JSON)
    )
    await client.evolve("s", schema=schema("a"), routingKey={"jsonPointer": "/a"}, search=SEARCH)
    await asyncio.gather(
        client.write("s", b'{"a":"1"}'),
        client.adopt("e", kind="evlog"),
        client.write("s", b'{"a":"2"}', producer=Producer("p", 0, 0)),
    )
    await client.evolve("s", schema=schema("a"))  # once more: nothing happens
    await asyncio.gather(
        client.evolve("s", schema=schema("b"), lens=rename("s", 1, "a", "b"), search=None),
        client.write("e", b'{"service":"x"}'),
    )
    await client.write("s", b'{"b":"3"}')
    await client.create("f", b'{"b":"4"}', source="s", at=1)
    await asyncio.gather(
        client.evolve("f", schema=schema("c"), lens=rename("f", 2, "b", "c"), search=SEARCH),
        client.evolve("s", routingKey=None),
        client.adopt("e", kind="generic"),
    )
    await client.write("f", b'{"c":"5"}', close=True)
    await client.evolve("s", schema=schema("d"), lens=rename("s", 2, "b", "d"))
    await client.delete("f")
    engine = client.engine
    live = engine.open_logs[engine.state.by_name["s"].id]
    page = await engine.reader.read(live, 0, records_max=9, bytes_max=1 << 20)
    read = engine.ingest.promoted(live.log, page)
    found = [piece.block.data_at(at) for piece in read.slices for at in piece.picks]
    assert found == [b'{"d":"1"}', b'{"d":"2"}', b'{"d":"3"}']


Story = Callable[[Client], Awaitable[None]]


async def run_workload(
    disk: HostileDisk, clock: VirtualClock, state_journal: StateJournal, story: Story = live
) -> None:
    started = await boot(disk, clock)
    upkeep = asyncio.create_task(started.upkeep.run())
    started.engine.subscriptions.deliver = done
    state_journal.watch(started.engine)
    try:
        await story(Client(started.engine, state_journal))
    except Refused as refused:
        if refused.code is not Code.READ_ONLY:
            raise
    await asyncio.sleep(1)
    upkeep.cancel()


@dataclass
class Moment:
    number: int
    call: str
    disk: HostileDisk
    promised: int
    offered: int

    def survivors(self) -> Iterator[tuple[str, HostileDisk]]:
        yield "kill", self.disk.kill()
        yield "kill inside", self.disk.kill(torn=Random(self.number))
        for survival in Survival:
            yield survival.value, self.disk.lose_power(survival, Random(self.number))


def record(
    loop: VirtualLoop, clock: VirtualClock, state_journal: StateJournal, story: Story = live
) -> list[Moment]:
    moments: list[Moment] = []
    disk = HostileDisk()

    def note(number: int, kind: str, path: str) -> None:
        if kind not in HARMLESS and state_journal.pages:
            last = len(state_journal.pages) - 1
            moments.append(
                Moment(number, f"{kind} {path}", disk.copy(), state_journal.promised, last)
            )

    disk.before = note
    loop.run(run_workload(disk, clock, state_journal, story))
    return moments


async def recover(
    disk: HostileDisk, clock: VirtualClock, state_journal: StateJournal, moment: Moment
) -> None:
    engine = (await boot(disk, clock)).engine
    state_journal.judge(moment.promised, moment.offered, picture(engine.state))
    for live in list(engine.open_logs.values()):
        await check_records(engine, live, state_journal)


@pytest.mark.parametrize(("story", "least"), [(live, 100), (shape, 40)])
def test_crash_at_every_call(loop: VirtualLoop, story: Story, least: int) -> None:
    clock, state_journal = VirtualClock(loop), StateJournal()
    moments = record(loop, clock, state_journal, story)
    assert len(moments) > least, "the workload does too little"
    known: set[object] = set()
    problems: list[str] = []
    for moment in moments:
        for how, disk in moment.survivors():
            case = (moment.promised, moment.offered, disk.world.contents())
            if case in known:
                continue
            known.add(case)
            try:
                loop.run(recover(disk, clock, state_journal, moment))
            except Exception as problem:  # noqa: BLE001  (reported below, all together)
                problems.append(f"call {moment.number} ({moment.call}), {how}: {problem!r}")
    head = f"{len(problems)} of {len(known)} went wrong\n"
    assert not problems, head + "\n".join(problems[:10])


def test_fail_every_call(loop: VirtualLoop) -> None:
    clock = VirtualClock(loop)
    for moment in record(loop, clock, StateJournal())[::4]:
        disk, state_journal = HostileDisk(), StateJournal()
        disk.faults[moment.number] = errno.EIO
        try:
            loop.run(run_workload(disk, clock, state_journal))
        except OSError:
            continue  # it failed while starting
        last = len(state_journal.pages) - 1
        random = Random(moment.number)
        survivors = [disk.kill(evicted=random), disk.lose_power(Survival.PREFIX, random)]
        for left in survivors:
            then = Moment(0, moment.call, left, state_journal.promised, last)
            loop.run(recover(left, clock, state_journal, then))


def test_crashes_leave_nothing_that_verification_minds(loop: VirtualLoop) -> None:
    clock = VirtualClock(loop)
    for moment in record(loop, clock, StateJournal())[::11]:
        for how, disk in moment.survivors():
            found = Verification(disk).run()
            problems = [str(finding) for finding in found if isinstance(finding, Problem)]
            assert problems == [], f"{moment.call}, {how}"
