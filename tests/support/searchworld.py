"""A whole server in one coroutine, whose segments are sealed, indexed and replaced when told to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from random import Random
from typing import Any, NamedTuple, ParamSpec, TypeVar

import msgspec

from headrace.app import App, build_web
from headrace.config import load
from headrace.engine.caps import Caps
from headrace.engine.start import Started
from headrace.engine.upkeep.cycle import UpkeepPace
from headrace.formats.marks import Marks
from headrace.storage.objects import LocalObjects
from headrace.surfaces.flags.server import Flags
from headrace.surfaces.streams.control import Control
from headrace.web.calls import Gate
from headrace.web.connection import Respond
from support.asking import Reply, ask
from support.engine_harness import boot
from support.fake_indexer import FakeIndexer
from support.hostile import HostileDisk
from support.rival import Rival
from support.virtual import VirtualClock, VirtualLoop

P = ParamSpec("P")
T = TypeVar("T")

NEVER = 1 << 40


class Web(NamedTuple):
    gate: Gate
    respond: Respond
    control: Control
    flags: Flags


@cache
def web() -> Web:
    """The web application of a server that is never started, for one engine after the other."""
    made = App(load({"TOPICS_DATA_DIR": "nowhere"}))
    parts = made._loop_lag, made._control, made._server, made._notifications, made._flags
    routes = *parts, made._feeds, None
    return Web(made.gate, build_web(made._settings, made.gate, *routes), made._control, made._flags)


class Meddler:
    """A pool without threads in which something else may happen before each piece of work."""

    def __init__(self) -> None:
        self.plot: Callable[[], Awaitable[None]] | None = None
        self.busy: Callable[[], bool] = lambda: False
        """Whether whoever plots would wait for this very piece of work."""
        self._at_it = False

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self.plot is not None and not self._at_it and not self.busy():
            self._at_it = True
            try:
                await self.plot()
            finally:
                self._at_it = False
        return work(*args, **kwargs)


class World:
    """Made by `make`, on a virtual loop."""

    def __init__(self, started: Started, disk: HostileDisk, pool: Meddler, random: Random) -> None:
        self.engine, self.upkeep, self.pool = started.engine, started.upkeep, pool
        objects = LocalObjects(HostileDisk(disk.world))
        self.fake_indexer = FakeIndexer(objects)
        self._rival = Rival(objects, random)
        pool.busy = started.upkeep.manifests._changing.locked
        self._web = web()
        self._web.flags.open(started.engine, self._web.gate.credentials.is_gone)
        self._web.gate.open(started.engine)

    @classmethod
    async def make(cls, loop: VirtualLoop, random: Random) -> World:
        disk, pool = HostileDisk(), Meddler()
        caps, pace = Caps(tail_bytes=0), UpkeepPace(seal_bytes=NEVER)
        started = await boot(disk, VirtualClock(loop), caps=caps, pace=pace, pool=pool)
        return cls(started, disk, pool, random)

    async def ask(self, method: str, target: str, body: object = None, **fields: str) -> Reply:
        """One request, by way of the whole web application."""
        raw = (
            body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        )
        if raw or method == "PUT":
            fields["content-type"] = "application/json"
        return await ask(self._web.respond, method, target, raw, **fields)

    async def right(self, method: str, target: str, body: object = None, **fields: str) -> Any:
        """The same of what must succeed; returns what is said."""
        reply = await self.ask(method, target, body, **fields)
        assert reply.status in (200, 201, 204), (method, target, body, reply.status, reply.body)
        return reply.json if reply.body else None

    async def seal(self) -> None:
        """What is in memory goes into a segment, and out of memory."""
        self.upkeep.close_file()
        await self.upkeep.checkpoint()

    async def plan(self) -> None:
        """Tell the pipeline what logs want."""
        await self.upkeep._publisher.publish_plans()

    async def look(self) -> None:
        """Take over what others published."""
        await self.upkeep.manifests.look()

    def replace(self, sources: list[int], outputs: int) -> None:
        """Other segments with the same records; at once, what was replaced is gone."""
        if self._rival.replace(sources, Marks(), outputs):
            self._rival.tidy()
