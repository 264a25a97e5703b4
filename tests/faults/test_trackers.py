"""Trackers on a whole engine: every crash leaves what was acknowledged, restarts leave leases."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from headrace.core.config import Durability, LogConfig
from headrace.core.entry import LoseAtRestart
from headrace.core.errors import Code, Refused
from headrace.core.owners import TOPICS
from headrace.core.read import Page
from headrace.core.record import draft
from headrace.engine.consumers.trackers import Polled
from headrace.engine.engine import Engine
from headrace.engine.start import stop
from headrace.storage.checks.findings import Problem
from headrace.storage.verification import Verification
from support.engine_harness import boot, small
from support.hostile import HostileDisk
from support.virtual import VirtualClock, VirtualLoop

from .test_crash_sweep import Recorder

FSYNC = LogConfig(durability=Durability.FSYNC)


async def append(engine: Engine, count: int, config: LogConfig = FSYNC, name: str = "a") -> None:
    datas = [b"%d" % number for number in range(count)]
    await engine.appender.append(name, draft(datas), owner=TOPICS, create=config)


async def poll(
    engine: Engine, node: str = "n", ack: int | None = None, limit: int = 3, **more: int
) -> Polled:
    return await engine.trackers.poll(
        "t", node, ack=ack, fence=more.get("fence"), records_max=limit, bytes_max=1 << 20
    )


def seqs(polled: Polled) -> list[int]:
    return [piece.block.seq_at(at) for piece in polled.page.slices for at in piece.picks]


class Told(NamedTuple):
    asked: int = 0
    acknowledged: int = 0


def test_a_crash_never_takes_an_acknowledgement_back_nor_makes_one(loop: VirtualLoop) -> None:
    clock, disk = VirtualClock(loop), HostileDisk()
    told = Told()

    async def live() -> None:
        nonlocal told
        started = await boot(disk, clock)
        engine = started.engine
        await append(engine, 10)
        await engine.trackers.put("t", "a", "earliest")
        polled = await poll(engine)
        while seqs(polled):
            told = told._replace(asked=polled.page.next)
            polled = await poll(engine, ack=polled.page.next)
            told = told._replace(acknowledged=polled.tracked.state.cursor)
            if told.acknowledged == 6:
                await started.upkeep.snapshot()
        assert told == Told(10, 10)

    async def judge(left: HostileDisk, told: Told) -> None:
        engine = (await boot(left, clock)).engine
        if "t" not in engine.trackers:
            assert told == Told()
            return
        state = engine.trackers.find("t").state
        assert told.acknowledged <= state.cursor <= max(told.asked, told.acknowledged)
        polled = await poll(engine, ack=state.cursor, limit=100)
        assert seqs(polled) == list(range(state.cursor + 1, 11))

    recorder = Recorder(disk, lambda: told)  # type: ignore[arg-type, return-value]
    with small():
        loop.run(live())
        known: set[object] = set()
        for moment in recorder.moments:
            for how, _, left in moment.survivors():
                case = (moment.mark, left.world.contents())
                if case not in known:
                    known.add(case)
                    try:
                        loop.run(judge(left, moment.mark))  # type: ignore[arg-type]
                    except AssertionError as problem:
                        raise AssertionError(f"{moment.call}, {how}: {problem}") from None
    assert len(known) > 50, "the story does too little"


@pytest.mark.parametrize("how", ["journal", "snapshot"])
def test_a_lease_outlives_a_restart(loop: VirtualLoop, how: str) -> None:
    async def script() -> None:
        disk, clock = HostileDisk(), VirtualClock(loop)
        started = await boot(disk, clock)
        await append(started.engine, 4)
        await started.engine.trackers.put("t", "a", "earliest", "key")
        before = await poll(started.engine)
        if how == "snapshot":
            await started.upkeep.snapshot()
        await stop(started)
        disk.world.locked.clear()
        started = await boot(disk, clock)
        assert started.engine.trackers.find("t").state == before.tracked.state
        with pytest.raises(Refused) as refused:
            await poll(started.engine, "other")
        assert refused.value.code is Code.TRACKER_LEASED
        assert seqs(await poll(started.engine, ack=3, fence=1)) == [4]
        await stop(started)
        problems = [found for found in Verification(disk).run() if isinstance(found, Problem)]
        assert problems == []

    with small():
        loop.run(script())


def test_what_was_not_acknowledged_goes_to_who_takes_over(loop: VirtualLoop) -> None:
    async def script() -> None:
        clock = VirtualClock(loop)
        engine = (await boot(HostileDisk(), clock)).engine
        await append(engine, 5)
        await engine.trackers.put("t", "a", "earliest")
        assert seqs(await poll(engine, "one")) == [1, 2, 3]
        assert seqs(await poll(engine, "one", ack=2)) == [3, 4, 5]
        loop.now_s += 60
        assert seqs(await poll(engine, "two")) == [3, 4, 5]
        with pytest.raises(Refused) as refused:
            await poll(engine, "one", ack=5)
        assert refused.value.code is Code.TRACKER_LEASED
        loop.now_s += 60
        with pytest.raises(Refused) as refused:
            await poll(engine, "one", ack=5, fence=1)
        assert refused.value.code is Code.FENCED

    with small():
        loop.run(script())


def test_who_lost_the_lease_while_reading_gets_nothing(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        await append(engine, 3)
        await engine.trackers.put("t", "a", "earliest")
        reader = engine.reader

        class SlowReader:
            async def read(self, *args: Any, **more: Any) -> Page:
                monkeypatch.undo()
                loop.now_s += 60
                await poll(engine, "two")
                return await reader.read(*args, **more)

        monkeypatch.setattr(engine.trackers, "_reader", SlowReader())
        with pytest.raises(Refused) as refused:
            await poll(engine, "one")
        assert refused.value.code is Code.FENCED
        assert engine.trackers.find("t").state.node == "two"

    with small():
        loop.run(script())


def test_records_that_are_gone_must_be_acknowledged_as_such(loop: VirtualLoop) -> None:
    async def script() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        config = LogConfig(durability=Durability.FSYNC, cap_records=4)
        await append(engine, 3, config)
        await engine.trackers.put("t", "a", "earliest")
        await append(engine, 5, config)
        with pytest.raises(Refused) as refused:
            await poll(engine)
        assert refused.value.code is Code.CURSOR_EXPIRED
        assert refused.value.detail["lost_to_seq"] == 4
        assert refused.value.detail["earliest_seq"] == 5
        assert engine.trackers.find("t").state.node == "", "nothing has changed"
        with pytest.raises(Refused) as refused:
            await poll(engine, ack=5)
        assert refused.value.code is Code.INVALID
        assert seqs(await poll(engine, ack=4)) == [5, 6, 7]

    with small():
        loop.run(script())


def test_records_grow_old_under_a_tracker(loop: VirtualLoop) -> None:
    async def script() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        config = LogConfig(durability=Durability.FSYNC, ttl_ms=1000)
        await append(engine, 3, config)
        await engine.trackers.put("t", "a", "earliest")
        loop.now_s += 2  # and nobody has looked at what is too old
        with pytest.raises(Refused) as refused:
            await poll(engine)
        assert refused.value.code is Code.CURSOR_EXPIRED
        assert engine.trackers.find("t").state.node == "", "nothing has changed"
        assert seqs(await poll(engine, ack=3)) == []
        await append(engine, 1, config)
        assert seqs(await poll(engine)) == [4]

    with small():
        loop.run(script())


def test_a_loss_in_the_middle_can_be_passed(loop: VirtualLoop) -> None:
    async def script() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        await append(engine, 3)
        log = engine.state.by_name["a"]
        engine.commit([LoseAtRestart(log.id, [4, 6], 6, log.size_bytes)], sync=True)
        await append(engine, 2)
        await engine.trackers.put("t", "a", "earliest")
        assert seqs(await poll(engine, limit=10)) == [1, 2, 3]
        with pytest.raises(Refused) as refused:
            await poll(engine, ack=3)
        assert refused.value.code is Code.CURSOR_EXPIRED
        assert refused.value.detail["lost_to_seq"] == 6
        assert engine.trackers.find("t").state.cursor == 3, "what was acknowledged is"
        assert seqs(await poll(engine, ack=6)) == [7, 8]

    with small():
        loop.run(script())


def test_a_tracker_knows_that_its_log_is_gone(loop: VirtualLoop) -> None:
    async def script() -> None:
        engine = (await boot(HostileDisk(), VirtualClock(loop))).engine
        await append(engine, 3)
        await append(engine, 1, name="b")
        await engine.trackers.put("t", "a", "latest")
        assert seqs(await poll(engine)) == []
        with pytest.raises(Refused) as refused:
            await engine.trackers.put("t", "b", "latest")
        assert refused.value.code is Code.CONFLICT
        await engine.logs.drop("a", if_empty=False)
        await append(engine, 2)
        with pytest.raises(Refused) as refused:
            await poll(engine)
        assert refused.value.code is Code.SOURCE_DELETED
        _, created = await engine.trackers.put("t", "a", "earliest")
        assert not created
        assert seqs(await poll(engine)) == [1, 2]
        await engine.trackers.delete("t")
        with pytest.raises(Refused) as refused:
            await poll(engine)
        assert refused.value.code is Code.TRACKER_NOT_FOUND

    with small():
        loop.run(script())
