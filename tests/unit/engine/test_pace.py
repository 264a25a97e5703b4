"""Sealing makes way for others until too much waits for it."""

from __future__ import annotations

import asyncio

from headrace.core.config import LogConfig
from headrace.core.record import draft
from headrace.engine.caps import Caps
from headrace.engine.engine import EngineParts
from headrace.engine.ports import SystemClock
from headrace.engine.start import start
from headrace.engine.upkeep.cycle import UpkeepPace
from headrace.formats.manifest import Segment
from headrace.storage.journal import WriterThread
from headrace.storage.memory import MemoryDisk
from headrace.storage.objects import LocalObjects
from headrace.storage.sealing import SealJob
from support.inline_ports import CountedIds, Inline, InlineSealer


class ToldSealer(InlineSealer):
    """Remembers whether it was told to hurry."""

    def __init__(self, disk: MemoryDisk, objects: LocalObjects) -> None:
        super().__init__(disk, objects, Inline())
        self.hurried = False
        self.sealed_in_a_hurry: list[bool] = []

    async def seal(self, job: SealJob) -> Segment | None:
        self.sealed_in_a_hurry.append(self.hurried)
        return await super().seal(job)

    def hurry(self, hurried: bool) -> None:
        self.hurried = hurried


def test_sealing_hurries_while_much_waits_for_it() -> None:
    async def work() -> None:
        disk = MemoryDisk()
        objects = LocalObjects(disk)
        sealer = ToldSealer(disk, objects)
        started = await start(
            EngineParts(
                disk=disk,
                objects=objects,
                clock=SystemClock(),
                pool=Inline(),
                sealer=sealer,
                ids=CountedIds(),
                writer=WriterThread,
                caps=Caps(),
                pace=UpkeepPace(seal_bytes=1000),
            )
        )
        told = []
        for _ in range(4):
            await started.engine.appender.append(
                "a", draft([b"x" * 1000]), owner="topics", create=LogConfig()
            )
            told.append(sealer.hurried)
        assert told == [False, False, True, True]
        await started.upkeep.checkpoint()
        assert sealer.sealed_in_a_hurry == [True, True, False, False]
        await started.engine.journal.close()

    asyncio.run(work())
