"""Streams and subscriptions through crashes: every disk call of a workload as crash point.

There is one journal, and each group in it is true as a whole or not at all. So whatever a crash
leaves must be a state that the engine was in between two commits, not before the last commit that
somebody was told of. What the states themselves may be, the property tests say.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec
import pytest
from hostile import HARMLESS, HostileDisk, Survival
from rig import boot, small
from virtual import VirtualClock, VirtualLoop

from headrace.core.entry import Append, Entry, Following
from headrace.core.errors import Code, Refused
from headrace.core.log import Log
from headrace.core.record import Drafts, draft
from headrace.core.state import State
from headrace.core.stream import Producer, Write
from headrace.core.streaming import Spec
from headrace.core.subscription import PULL, WEBHOOK, Work
from headrace.engine.engine import Engine
from headrace.engine.live import Live
from headrace.formats.snapshot import Captured, encode_part
from headrace.storage.checks.findings import Problem
from headrace.storage.verification import Verification

TEXT = "text/plain"
JSON = "application/json"


def picture(state: State) -> tuple[object, ...]:
    """Everything a state holds, as values: where records lie aside."""
    logs = {log.id: _plain(log) for log in state.logs.values()}
    return logs, dict(state.retired), state.epoch_floor


def _plain(log: Log) -> bytes:
    return encode_part(Captured(0, log.id, msgspec.structs.replace(log, extents=())))


@dataclass
class Diary:
    """The states an engine went through, one for each commit, and how much of it was promised."""

    pages: list[tuple[object, ...]] = field(default_factory=list)
    records: dict[tuple[int, int], bytes] = field(default_factory=dict)
    promised: int = 0
    _writers: dict[int, asyncio.Task[Any] | None] = field(default_factory=dict)

    def watch(self, engine: Engine) -> None:
        commit = engine.commit
        self.pages.append(picture(engine.state))

        def noted(entries: Sequence[Entry], *, sync: bool, together: bool = False) -> int:
            position = commit(entries, sync=sync, together=together)
            self._writers[len(self.pages)] = asyncio.current_task()
            self.pages.append(picture(engine.state))
            for entry in entries:
                if isinstance(entry, Append):
                    block = entry.block
                    for at in range(block.count):
                        self.records[entry.log, block.seq_at(at)] = block.data_at(at)
            return position

        engine.commit = noted  # type: ignore[method-assign]

    def acknowledge(self) -> None:
        """Whoever asked was answered: its commits must survive everything."""
        task = asyncio.current_task()
        mine = [page for page, writer in self._writers.items() if writer is task]
        self.promised = max([self.promised, *mine])

    def judge(self, promised: int, offered: int, found: tuple[object, ...]) -> None:
        assert found in self.pages[promised : offered + 1], (
            f"not a state between {promised} and {offered}: "
            f"{[at for at, page in enumerate(self.pages) if page == found]}"
        )


class Client:
    """Does what writers do; tells the diary what it was told."""

    def __init__(self, engine: Engine, diary: Diary) -> None:
        self.engine = engine
        self._diary = diary

    async def create(self, name: str, *datas: bytes, **spec: Any) -> None:
        wanted = Spec(**{"content_type": None if "source" in spec else TEXT, **spec})
        await self.engine.streams.create(name, wanted, _drafts(datas) if datas else None)
        self._diary.acknowledge()

    async def write(self, name: str, *datas: bytes, **wanted: Any) -> None:
        stream = self.engine.state.by_name[name].stream
        assert stream is not None
        asked = Write(**{"content_type": stream.content_type if datas else None, **wanted})
        await self.engine.streams.write(name, _drafts(datas) if datas else None, asked)
        self._diary.acknowledge()

    async def delete(self, name: str) -> None:
        await self.engine.streams.delete(name)
        self._diary.acknowledge()

    async def subscribe(self, id: str, kind: str, **more: Any) -> None:
        asked = {"pattern": None, "streams": [], "url": None, "wake_stream": None, **more}
        following = Following(
            kind, asked["pattern"], asked["streams"], asked["url"], asked["wake_stream"], 3000,
            None, "", self.engine.clock.now_ms(),
        )  # fmt: skip
        await self.engine.subscriptions.put(id, following)
        self._diary.acknowledge()

    async def work(self, id: str) -> None:
        """Claim, ack all there is, and say that it is done."""
        subscriptions = self.engine.subscriptions
        active, works = await subscriptions.claim(id, "worker")
        self._diary.acknowledge()
        subscription = active.subscription
        acks = [(work.path, work.tail.epoch, work.tail.seq) for work in works]
        await subscriptions.acknowledge(
            active, subscription.wake or "", subscription.generation, acks, done=True
        )
        self._diary.acknowledge()


def _drafts(datas: tuple[bytes, ...]) -> Drafts:
    drafts = draft(datas)
    drafts.media = TEXT
    return drafts


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
    client.engine.streams.sweep()
    client.engine.subscriptions.tick()
    assert sorted(client.engine.state.names("", "", "streams")) == ["done", "jobs/1", "wakes"]
    await client.create("a", b"anew")
    await client.create("b", ttl_ms=500)
    await client.work("pull")
    await client.write("a", b"z" * 300)
    await client.delete("done")


async def done(live: Live, works: list[Work]) -> bool:
    """A webhook that does everything at once."""
    return True


async def run_workload(disk: HostileDisk, clock: VirtualClock, diary: Diary) -> None:
    started = await boot(disk, clock)
    upkeep = asyncio.create_task(started.upkeep.run())
    started.engine.subscriptions.deliver = done
    diary.watch(started.engine)
    try:
        await live(Client(started.engine, diary))
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


def record(loop: VirtualLoop, clock: VirtualClock, diary: Diary) -> list[Moment]:
    moments: list[Moment] = []
    disk = HostileDisk()

    def note(number: int, kind: str, path: str) -> None:
        if kind not in HARMLESS and diary.pages:
            last = len(diary.pages) - 1
            moments.append(Moment(number, f"{kind} {path}", disk.copy(), diary.promised, last))

    disk.before = note
    loop.run(run_workload(disk, clock, diary))
    return moments


async def recover(disk: HostileDisk, clock: VirtualClock, diary: Diary, moment: Moment) -> None:
    engine = (await boot(disk, clock)).engine
    diary.judge(moment.promised, moment.offered, picture(engine.state))
    for live in list(engine.lives.values()):
        await check_records(engine, live, diary)


async def check_records(engine: Engine, live: Live, diary: Diary) -> None:
    """Every record up to the head is there, those of the source before those of its own."""
    page = await engine.read(live, 0, records_max=1000, bytes_max=1 << 20)
    found = {
        piece.block.seq_at(at): piece.block.data_at(at)
        for piece in page.slices
        for at in piece.picks
    }
    assert found == {seq: diary.records[origin(engine, live.log, seq), seq] for seq in found}
    assert len(found) == live.log.head, f"{live.log.name}: {sorted(found)} of {live.log.head}"


def origin(engine: Engine, log: Log, seq: int) -> int:
    """The log that holds this record."""
    while seq <= log.inherited:
        assert log.stream is not None
        assert log.stream.fork is not None
        log = engine.state.logs[log.stream.fork.source]
    return log.id


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    with small():
        yield made
    made.close()


def test_crash_at_every_call(loop: VirtualLoop) -> None:
    clock, diary = VirtualClock(loop), Diary()
    moments = record(loop, clock, diary)
    assert len(moments) > 100, "the workload does too little"
    known: set[object] = set()
    problems: list[str] = []
    for moment in moments:
        for how, disk in moment.survivors():
            case = (moment.promised, moment.offered, disk.world.contents())
            if case in known:
                continue
            known.add(case)
            try:
                loop.run(recover(disk, clock, diary, moment))
            except Exception as problem:  # noqa: BLE001  (reported below, all together)
                problems.append(f"call {moment.number} ({moment.call}), {how}: {problem!r}")
    head = f"{len(problems)} of {len(known)} went wrong\n"
    assert not problems, head + "\n".join(problems[:10])


def test_fail_every_call(loop: VirtualLoop) -> None:
    clock = VirtualClock(loop)
    for moment in record(loop, clock, Diary())[::4]:
        disk, diary = HostileDisk(), Diary()
        disk.faults[moment.number] = errno.EIO
        try:
            loop.run(run_workload(disk, clock, diary))
        except OSError:
            continue  # it failed while starting
        last = len(diary.pages) - 1
        survivors = [disk.kill(), disk.lose_power(Survival.PREFIX, Random(moment.number))]
        for left in survivors:
            then = Moment(0, moment.call, left, diary.promised, last)
            loop.run(recover(left, clock, diary, then))


def test_crashes_leave_nothing_that_verification_minds(loop: VirtualLoop) -> None:
    clock = VirtualClock(loop)
    for moment in record(loop, clock, Diary())[::11]:
        for how, disk in moment.survivors():
            found = Verification(disk).run()
            problems = [str(finding) for finding in found if isinstance(finding, Problem)]
            assert problems == [], f"{moment.call}, {how}"
