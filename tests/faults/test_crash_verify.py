"""Whatever a crash leaves behind verifies clean, before and after the next start."""

from __future__ import annotations

from headrace.storage.checks.findings import Problem
from headrace.storage.verification import Verification
from support.engine_harness import boot, small
from support.hostile import HostileDisk
from support.oracle import History
from support.virtual import VirtualClock, VirtualLoop

from .test_crash_sweep import Story, record, stories

EVERY = 9
"""Which share of the moments is looked at: each way to survive it takes a start and two looks."""


def problems(disk: HostileDisk) -> list[str]:
    found = Verification(disk.copy().kill()).run()
    return [str(finding) for finding in found if isinstance(finding, Problem)]


async def start_and_stop(disk: HostileDisk, clock: VirtualClock) -> None:
    started = await boot(disk, clock)
    await started.upkeep.checkpoint()
    await started.upkeep.stop()


@stories
def test_crashes_leave_nothing_that_verification_minds(story: Story) -> None:
    loop = VirtualLoop()
    clock = VirtualClock(loop)
    known: set[object] = set()
    with small():
        for moment in record(loop, clock, History(), story)[::EVERY]:
            for how, _, disk in moment.survivors():
                if (contents := disk.world.contents()) in known:
                    continue
                known.add(contents)
                assert problems(disk) == [], f"{moment.call}, {how}"
                loop.run(start_and_stop(disk, clock))
                assert problems(disk) == [], f"{moment.call}, {how}, then started and stopped"
    loop.close()
