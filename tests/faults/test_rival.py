"""Another publisher replaces segments between any two disk calls: every record is there once, and
what was deleted stays away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from headrace.storage.objects import LocalObjects
from support.engine_harness import PACE, boot, view_all
from support.hostile import HARMLESS, HostileDisk
from support.oracle import Blow, History, Mark, judge
from support.rival import Rival
from support.virtual import VirtualClock, VirtualLoop

from .test_crash_sweep import Moment, Trials, recover, recover_and_go_on
from .test_crash_verify import problems
from .workload import Client, live

SEEDS = range(2)
Hook = Callable[[int, str, str], None]


class Meddler:
    """A rival on a disk of its own over the same bytes, who acts before calls of the server."""

    def __init__(self, disk: HostileDisk, random: Random, share: float, then: Hook) -> None:
        self.rival = Rival(LocalObjects(HostileDisk(disk.world)), random)
        self._disk, self._random, self._share, self._then = disk, random, share, then
        disk.before = self._before

    def _before(self, number: int, kind: str, path: str) -> None:
        if self._random.random() < self._share:
            torn, self._disk.world.torn = self._disk.world.torn, None
            self.rival.act()
            self._disk.world.torn = torn
        self._then(number, kind, path)


async def run(disk: HostileDisk, clock: VirtualClock, history: History) -> None:
    started = await boot(disk, clock, pace=PACE)
    tasks = [
        asyncio.create_task(work) for work in (started.upkeep.run(), started.upkeep.run_exchange())
    ]
    await live(Client(started, clock, history))
    await asyncio.sleep(20)
    judge(history, history.mark(), None, await view_all(started.engine), clock.now_ms())
    for task in tasks:
        assert not task.done(), task
        task.cancel()


def record(
    loop: VirtualLoop, clock: VirtualClock, history: History, seed: int
) -> tuple[list[Moment], Rival]:
    disk, moments = HostileDisk(), list[Moment]()

    def note(number: int, kind: str, path: str) -> None:
        if kind not in HARMLESS:
            moments.append(Moment(number, f"{kind} {path}", disk.copy(), history.mark()))

    meddler = Meddler(disk, Random(seed), 0.12, note)
    loop.run(run(disk, clock, history))
    return moments, meddler.rival


@pytest.mark.parametrize("seed", SEEDS)
def test_crash_at_every_call_with_a_rival(loop: VirtualLoop, seed: int) -> None:
    clock, history, trials = VirtualClock(loop), History(), Trials(loop)
    moments, rival = record(loop, clock, history, seed)
    assert rival.replacements > 20, "the rival does too little"
    assert rival.erased > 5, "nothing was erased"
    for moment in moments[seed::10]:
        for how, blow, disk in moment.survivors():
            if trials.fresh(moment.mark, blow, disk):
                what = f"call {moment.number} ({moment.call}), {how}"
                check = recover if trials.count % 6 else recover_and_go_on
                trials.run(what, check(disk, clock, history, moment.mark, blow))
    assert trials.count > 100
    trials.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rival_while_recovering(loop: VirtualLoop, seed: int) -> None:
    clock, history, trials = VirtualClock(loop), History(), Trials(loop)
    moments, _ = record(loop, clock, history, seed)
    acted = 0
    for moment in moments[seed::40]:
        for how, blow, disk in moment.survivors():
            meddler = Meddler(disk, Random(moment.number), 0.15, lambda number, kind, path: None)
            what = f"call {moment.number} ({moment.call}), {how}"
            trials.run(what, _recover_and_look(disk, clock, history, moment.mark, blow))
            acted += meddler.rival.replacements
    assert acted > 30
    trials.close()


async def _recover_and_look(
    disk: HostileDisk, clock: VirtualClock, history: History, mark: Mark, blow: Blow
) -> None:
    started = await boot(disk, clock, forwarding=False)
    exchange = asyncio.create_task(started.upkeep.run_exchange())
    judge(history, mark, blow, await view_all(started.engine), clock.now_ms())
    await started.upkeep.checkpoint()
    await asyncio.sleep(5)
    assert not exchange.done(), exchange
    exchange.cancel()
    await started.upkeep.stop()
    disk.before = lambda number, kind, path: None
    assert problems(disk) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_verification_knows_a_rival(loop: VirtualLoop, seed: int) -> None:
    moments, _ = record(loop, VirtualClock(loop), History(), seed)
    for moment in moments[seed::40]:
        for how, _, disk in moment.survivors():
            assert problems(disk) == [], f"{moment.call}, {how}"
