"""Every disk call of a workload as crash point, however it is survived; and every call failing."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from headrace.core.errors import Refused
from headrace.engine.upkeep.cycle import UpkeepPace
from support.engine_harness import boot, go_on, view_all
from support.hostile import HARMLESS, HostileDisk, Survival
from support.oracle import Blow, History, Mark, judge
from support.virtual import VirtualClock, VirtualLoop

from .workload import Client, ReadOnly, forward, live, probe, stay_read_only, supersede


@dataclass
class Moment:
    """A call at which the process may die: the disk as it is, and what was promised until then."""

    number: int
    call: str
    disk: HostileDisk
    mark: Mark

    def survivors(self) -> Iterator[tuple[str, Blow, HostileDisk]]:
        yield "kill", Blow.KILL, self.disk.kill()
        yield "kill inside", Blow.KILL, self.disk.kill(torn=Random(self.number))
        for survival in Survival:
            left = self.disk.lose_power(survival, Random(self.number))
            yield f"power loss, {survival.value} survives", Blow.POWER, left


class Recorder:
    """Keeps every moment at which a process could have ended."""

    def __init__(self, disk: HostileDisk, mark: Callable[[], Mark]) -> None:
        self.moments: list[Moment] = []
        self._disk = disk
        self._mark = mark
        disk.before = self._note

    def _note(self, number: int, kind: str, path: str) -> None:
        if kind not in HARMLESS:
            moment = Moment(number, f"{kind} {path}", self._disk.copy(), self._mark())
            self.moments.append(moment)


class Trials:
    """Many small runs on one loop; says of all of them together which went wrong."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._known: set[object] = set()
        self._problems: list[str] = []
        self.count = 0

    def fresh(self, mark: Mark, blow: Blow, disk: HostileDisk) -> bool:
        """Whether there was no such case before."""
        case = (mark.offered, mark.promised(blow), blow, disk.world.contents())
        if case in self._known:
            return False
        self._known.add(case)
        return True

    def run(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        self.count += 1
        try:
            self._loop.run(work)
        except Exception as problem:  # noqa: BLE001  (reported below, all together)
            self._problems.append(f"{what}: {type(problem).__name__}: {problem}")

    def close(self) -> None:
        head = f"{len(self._problems)} of {self.count} went wrong\n"
        assert not self._problems, head + "\n".join(self._problems[:10])


Story = Callable[[Client], Awaitable[None]]
SHORT = UpkeepPace(seal_bytes=500, disk_sync_ms=200, seal_ms=2000)
LONG = UpkeepPace(seal_bytes=1500, disk_sync_ms=200, seal_ms=500)
"""Copies fill a segment without filling the journal."""
stories = pytest.mark.parametrize("story", [live, forward, supersede])


async def run_workload(
    disk: HostileDisk, clock: VirtualClock, history: History, story: Story
) -> None:
    started = await boot(disk, clock, pace=LONG if story is forward else SHORT)
    upkeep = asyncio.create_task(started.upkeep.run())
    client = Client(started, clock, history)
    try:
        await story(client)
    except ReadOnly:
        await stay_read_only(client)
    await asyncio.sleep(1)
    if upkeep.done():
        upkeep.result()
        assert started.engine.journal.failure is not None, "upkeep ended for no reason"


async def recover(
    disk: HostileDisk, clock: VirtualClock, history: History, mark: Mark, blow: Blow
) -> None:
    """What is found must be what may be found."""
    views = await view_all((await boot(disk, clock, forwarding=False)).engine)
    judge(history, mark, blow, views, clock.now_ms())


async def recover_and_go_on(
    disk: HostileDisk, clock: VirtualClock, history: History, mark: Mark, blow: Blow
) -> None:
    """Recover, recover again, go on, lose power: nothing that was ever found is lost."""
    views = await view_all((await boot(disk, clock, forwarding=False)).engine)
    index = judge(history, mark, blow, views, clock.now_ms())
    disk = disk.kill()
    started = await boot(disk, clock, forwarding=False)
    upkeep = asyncio.create_task(started.upkeep.run())
    assert await view_all(started.engine) == views, "the second recovery found something else"
    then = history.after(mark, index, views)
    client = Client(started, clock, then)
    go_on(started)
    await probe(client, history.states[index])
    upkeep.cancel()
    disk = disk.lose_power(Survival.NOTHING, Random(0))
    later = await view_all((await boot(disk, clock, forwarding=False)).engine)
    judge(then, then.mark(), Blow.POWER, later, clock.now_ms())


def record(
    loop: VirtualLoop, clock: VirtualClock, history: History, story: Story = live
) -> list[Moment]:
    disk = HostileDisk()
    recorder = Recorder(disk, history.mark)
    loop.run(run_workload(disk, clock, history, story))
    return recorder.moments


@stories
def test_crash_at_every_call(loop: VirtualLoop, story: Story) -> None:
    clock, history, trials = VirtualClock(loop), History(), Trials(loop)
    moments = record(loop, clock, history, story)
    assert len(moments) > (100 if story is supersede else 200), "the workload does too little"
    reused = [moment.call for moment in moments if moment.call.startswith("rename journal/spare")]
    assert len(reused) > 2 or story is not live, "journal files are not written over"
    for moment in moments:
        for how, blow, disk in moment.survivors():
            if trials.fresh(moment.mark, blow, disk):
                what = f"call {moment.number} ({moment.call}), {how}"
                check = recover if trials.count % 6 else recover_and_go_on
                trials.run(what, check(disk, clock, history, moment.mark, blow))
    trials.close()


@stories
def test_crash_again_while_recovering(loop: VirtualLoop, story: Story) -> None:
    clock, history, trials = VirtualClock(loop), History(), Trials(loop)
    for moment in record(loop, clock, history, story)[5::60]:
        for how, blow, disk in moment.survivors():
            recorder = Recorder(disk, lambda moment=moment: moment.mark)
            loop.run(_discard(boot(disk, clock, forwarding=False)))
            for inner in recorder.moments:
                for again, second, left in inner.survivors():
                    worst = Blow.POWER if Blow.POWER in (blow, second) else Blow.KILL
                    if trials.fresh(moment.mark, worst, left):
                        what = f"call {moment.number} ({moment.call}), {how}, then recovery's call "
                        what += f"{inner.number} ({inner.call}), {again}"
                        check = recover if trials.count % 5 else recover_and_go_on
                        trials.run(what, check(left, clock, history, moment.mark, worst))
    trials.close()


async def _discard(work: Coroutine[Any, Any, object]) -> None:
    await work


@stories
def test_fail_every_call(loop: VirtualLoop, story: Story) -> None:
    clock, trials = VirtualClock(loop), Trials(loop)
    moments = record(loop, clock, History(), story)
    for moment in moments[::4]:
        kind = moment.call.split()[0]
        for code in (errno.EIO, errno.ENOSPC) if kind in ("append", "write") else (errno.EIO,):
            what = f"call {moment.number} ({moment.call}) fails with {errno.errorcode[code]}"
            trials.run(what, _fail_at(moment.number, code, clock, story))
    trials.close()


PASSING = {
    "append": errno.ENOSPC,
    "create_append": errno.EMFILE,
    "open_blank": errno.EMFILE,
    "sync_folder": errno.EMFILE,
    "truncate": errno.EMFILE,
    "write": errno.ENOSPC,
    "open": errno.ENFILE,
    "blank": errno.ENOSPC,
    "rename": errno.ENOSPC,
    "link": errno.ENOSPC,
    "remove": errno.ENOMEM,
}
"""How each kind of call may fail before it has changed anything that counts."""


@stories
def test_what_passes_ends_nothing(loop: VirtualLoop, story: Story) -> None:
    clock, trials = VirtualClock(loop), Trials(loop)
    disk = HostileDisk()
    loop.run(run_workload(disk, clock, History(), story))
    calls = [(at, kind) for at, (kind, _) in enumerate(disk.trace) if kind in PASSING]
    begun = next(at for at, kind in calls if kind == "append")
    for number, kind in [call for call in calls if call[0] >= begun][::3]:
        what = f"call {number} ({kind} {disk.trace[number][1]}) fails for a while"
        trials.run(what, _pass_at(number, PASSING[kind], clock, story))
    trials.close()


async def _pass_at(number: int, code: int, clock: VirtualClock, story: Story) -> None:
    disk, history = HostileDisk(), History()
    began = 0.0

    def watch(at: int, kind: str, path: str) -> None:
        """From this call on, all calls of its kind fail for some seconds."""
        nonlocal began, failing
        if at == number:
            began, failing = clock.now_ms(), kind
        if kind == failing and clock.now_ms() < began + 3000:
            disk.faults[at] = code

    failing = ""
    disk.before = watch
    await run_workload(disk, clock, history, story)
    assert failing, "nothing failed"
    mark = history.mark()
    for folder in ("journal", "snapshots", "staged", "objects/segments", "objects/companions"):
        left = [name for name in disk.list(folder, unfinished=True) if "spare" not in name]
        assert left == [], f"{folder} keeps {left}"
    await recover(disk.kill(), clock, history, mark, Blow.KILL)


async def _fail_at(number: int, code: int, clock: VirtualClock, story: Story) -> None:
    disk, history = HostileDisk(), History()
    disk.faults[number] = code
    try:
        await run_workload(disk, clock, history, story)
    except (OSError, Refused):
        assert history.now == {}, "an error of the disk reached a user"
    mark = history.mark()
    # What a failed sync covered may be gone, as if the power had been lost.
    blow = Blow.POWER if disk.sync_failed else Blow.KILL
    power = disk.lose_power(Survival.PREFIX, Random(number))
    await recover_and_go_on(disk.kill(), clock, history, mark, blow)
    if disk.sync_failed:
        await recover_and_go_on(disk.kill(evicted=Random(number)), clock, history, mark, blow)
    await recover(power, clock, history, mark, Blow.POWER)
