"""What the engine needs from outside, without threads, processes and chance: for simulations."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from headrace.engine.ports import Load, Pool
from headrace.formats.manifest import Segment
from headrace.storage.disk import Disk
from headrace.storage.objects import Objects
from headrace.storage.sealing import SealJob, seal

P = ParamSpec("P")
T = TypeVar("T")


class CountedIds:
    """One after the other."""

    def __init__(self) -> None:
        self._count = 0

    def token(self) -> str:
        self._count += 1
        return f"{self._count:x}"


class Inline:
    """Runs work where it is asked for."""

    busy = 0.0
    load = Load(1, 0, 0)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return work(*args, **kwargs)


class InlineSealer:
    """Seals in a pool instead of a process."""

    def __init__(self, disk: Disk, objects: Objects, pool: Pool) -> None:
        self._disk = disk
        self._objects = objects
        self._pool = pool

    async def seal(self, job: SealJob) -> Segment | None:
        return await self._pool.run(seal, self._disk, self._objects, job)

    async def blank(self, path: str, size_bytes: int) -> None:
        await self._pool.run(self._disk.blank, path, size_bytes)

    def hurry(self, hurried: bool) -> None:
        pass
