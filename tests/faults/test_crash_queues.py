"""Every disk call of a life of queues as crash point: no job is lost, doubled or miscounted."""

from __future__ import annotations

import asyncio
import errno
from random import Random

from headrace.core.errors import Refused
from headrace.engine.engine import Engine
from headrace.engine.timings import Timings
from support.engine_harness import boot
from support.hostile import HostileDisk, Survival
from support.oracle import Blow, Mark
from support.virtual import VirtualClock, VirtualLoop

from .queue_model import Past, QueueClient, ReadOnly, find_all, judge, live
from .test_crash_sweep import Recorder, Trials
from .test_crash_verify import problems

EVERY = 9
"""Which share of what crashes leave is verified as well."""


class TimedRecorder(Recorder):
    """Keeps the time of each moment too: leases and delays are not over when recovery looks."""

    def __init__(self, disk: HostileDisk, past: Past, loop: VirtualLoop) -> None:
        super().__init__(disk, past.mark)
        self._loop = loop
        self.times: list[float] = []

    def _note(self, number: int, kind: str, path: str) -> None:
        count = len(self.moments)
        super()._note(number, kind, path)
        self.times += [self._loop.now_s] * (len(self.moments) - count)


async def run_story(disk: HostileDisk, clock: VirtualClock, past: Past) -> None:
    started = await boot(disk, clock)
    upkeep = asyncio.create_task(started.upkeep.run())
    try:
        await live(QueueClient(started.engine, clock, past))
    except ReadOnly:
        assert started.engine.journal.failure is not None
    await asyncio.sleep(1)
    upkeep.cancel()


async def recover(
    disk: HostileDisk, clock: VirtualClock, past: Past, mark: Mark, blow: Blow
) -> None:
    """What is found must be what may be found; and all of it can be worked off."""
    engine = (await boot(disk, clock)).engine
    found = await find_all(engine)
    judge(past, mark, blow, found, clock.now_ms())
    again = (await boot(disk.kill(), clock)).engine
    assert await find_all(again) == found, "the second recovery found something else"
    await asyncio.sleep(100)  # every lease and every delay is over
    for name in sorted(found):
        if found[name].places:
            assert await work_off(again, name) == sorted(found[name].data.values())


async def work_off(engine: Engine, name: str) -> list[bytes]:
    """Claim and ack until nothing is left; returns what was done or given up."""
    queues, done = engine.queues, list[bytes]()
    before = await letters_of(engine, name)
    while True:
        claimed = await queues.claim(name, "last", 2, 60_000, Timings())
        jobs = [(p.block.seq_at(at), p.block.data_at(at)) for p in claimed.jobs for at in p.picks]
        if not jobs and not claimed.counters.ready:
            break
        if jobs:
            acked = await queues.ack(name, "last", [seq for seq, _ in jobs], None, Timings())
            assert acked.skipped == []
        done += [data for _, data in jobs]
    return sorted(done + [data for data in await letters_of(engine, name) if data not in before])


async def letters_of(engine: Engine, name: str) -> list[bytes]:
    """What lies where this queue sends its dead letters."""
    place = engine.state.by_name[name].config.dead_letter
    if place is None or place not in engine.state.by_name:
        return []
    return list((await find_all(engine))[place].data.values())


def test_crash_at_every_call(loop: VirtualLoop) -> None:
    clock, past, trials = VirtualClock(loop), Past(), Trials(loop)
    disk = HostileDisk()
    recorder = TimedRecorder(disk, past, loop)
    loop.run(run_story(disk, clock, past))
    assert len(recorder.moments) > 100, "the story is too short"
    assert past.states[-1]["jobs"].queue.dead_lettered == 4, "the story lacks dead letters"
    for moment, at_s in zip(recorder.moments, recorder.times, strict=True):
        for how, blow, left in moment.survivors():
            if trials.fresh(moment.mark, blow, left):
                what = f"call {moment.number} ({moment.call}), {how}"
                if trials.count % EVERY == 0:
                    assert problems(left) == [], what
                loop.now_s = at_s
                trials.run(what, recover(left, clock, past, moment.mark, blow))
    trials.close()


def test_fail_every_call(loop: VirtualLoop) -> None:
    clock, trials = VirtualClock(loop), Trials(loop)
    disk, past = HostileDisk(), Past()
    recorder = Recorder(disk, past.mark)
    loop.run(run_story(disk, clock, past))
    for moment in recorder.moments[::3]:
        trials.run(f"call {moment.number} ({moment.call}) fails", _fail_at(moment.number, clock))
    trials.close()


async def _fail_at(number: int, clock: VirtualClock) -> None:
    disk, past = HostileDisk(), Past()
    disk.faults[number] = errno.EIO
    try:
        await run_story(disk, clock, past)
    except (OSError, Refused):
        assert past.states[-1] == {}, "an error of the disk reached a user"
    # What a failed sync covered may be gone, as if the power had been lost.
    blow = Blow.POWER if disk.sync_failed else Blow.KILL
    kill, power = disk.kill(), disk.lose_power(Survival.PREFIX, Random(number))
    await recover(disk.kill(evicted=Random(number)), clock, past, past.mark(), blow)
    await recover(kill, clock, past, past.mark(), blow)
    await recover(power, clock, past, past.mark(), Blow.POWER)
