"""A server in virtual time with a stream, and somebody who indexes what it seals, in stories."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from headrace.core.stream_rules import Spec
from headrace.core.stream_state import JSON
from headrace.engine.start import Started
from headrace.storage.objects import LocalObjects
from support.engine_harness import CAPS, boot, small
from support.fake_indexer import FakeIndexer
from support.hostile import HostileDisk
from support.virtual import VirtualClock, VirtualLoop

S = TypeVar("S", bound="Scene")


class Scene:
    """A stream `a`, a server that seals when it is told to, and somebody who indexes."""

    def __init__(self, started: Started, disk: HostileDisk) -> None:
        self.engine, self.upkeep = started.engine, started.upkeep
        self.fake_indexer = FakeIndexer(LocalObjects(HostileDisk(disk.world)))

    async def begin(self) -> None:
        """What is there when a story begins."""
        await self.create("a")

    async def create(self, name: str, source: str | None = None, at: int | None = None) -> None:
        spec = Spec(content_type=None if source else JSON, source=source, at=at)
        await self.engine.streams.create(name, spec, None)

    async def seal(self) -> None:
        self.upkeep.close_file()
        await self.upkeep.checkpoint()

    async def index(self, numbers: list[int] | None = None) -> None:
        self.fake_indexer.index(numbers)
        await self.upkeep.manifests.look()


@contextmanager
def stage(kind: type[S]) -> Iterator[Callable[[Callable[[S], Awaitable[None]]], None]]:
    """Tells stories that play in scenes of this kind."""
    loop = VirtualLoop()

    def tell(story: Callable[[S], Awaitable[None]]) -> None:
        async def play() -> None:
            disk = HostileDisk()
            caps = CAPS.__class__(tail_bytes=0)
            scene = kind(await boot(disk, VirtualClock(loop), caps=caps), disk)
            await scene.begin()
            await story(scene)

        loop.run(play())

    with small():
        yield tell
    loop.close()
