"""Publishing plans and marks: what the pipeline must know of the logs, told through the store.

Plans say which logs want companions; marks say what is dead in the segments. The manifest names the
newest of both.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import msgspec
from xxhash import xxh3_64_hexdigest

from headrace.core import ranges
from headrace.core.entry import Drop, Plan, Register
from headrace.core.log import Log
from headrace.core.ranges import Ranges
from headrace.engine.flow.time_slices import slices
from headrace.engine.kernel import Kernel
from headrace.engine.open_log import OpenLog
from headrace.engine.ports import Pool
from headrace.engine.search.search_configs import plan_of
from headrace.engine.upkeep.manifest_follower import ManifestFollower
from headrace.formats import layout
from headrace.formats.index_plans import IndexPlans, encode_plans
from headrace.formats.manifest import Manifest, Named
from headrace.formats.marks import ID_MAX, Marks, encode_marks
from headrace.storage.object_store_stats import PUT, Artifact, ObjectStoreStats
from headrace.storage.objects import Objects
from headrace.storage.ownership import NotOurs

_KEEP = 4
"""Older ones may still be read by who goes by an older manifest."""


class ManifestPublisher:
    """Publishes plans and marks when they have changed."""

    def __init__(
        self,
        kernel: Kernel,
        objects: Objects,
        pool: Pool,
        manifests: ManifestFollower,
        requests: ObjectStoreStats,
    ) -> None:
        self._kernel = kernel
        self._objects = objects
        self._pool = pool
        self._manifests = manifests
        self._requests = requests
        # What was journaled before this start may not have been published.
        self._planned = self._died = -1
        self._marking = asyncio.Lock()
        """Who began later must not be overtaken: it knows of more that died."""
        self._hashes: dict[int, str] = {}
        """Of the plans that are published, by log."""
        self._plan_changes = 0
        """How often it changed which logs can be searched, and how."""
        kernel.observe(self._note_plan, Plan, Register, Drop)

    def _note_plan(self, live: OpenLog, entry: Plan | Register | Drop) -> None:
        if live.log.search is not None or not isinstance(entry, Drop):
            self._plan_changes += 1

    async def publish_plans(self) -> None:
        """Publish the plans of all logs, if one has changed."""
        changes = self._plan_changes
        if changes == self._planned:
            return
        found = [plan_of(log) async for log in self._logs() if log.search is not None]
        # Control is synced before it is true, and before others act upon it.
        await self._kernel.journal.wait_synced(self._kernel.journal.tail)
        found.sort(key=lambda plan: plan.log_id)
        held = self._manifests.manifest.plans
        if found or held is not None:
            content = encode_plans(IndexPlans(plans=tuple(found)))
            put = await self._put(content, held, layout.plans, _name_plans)
            self._note_plans({plan.log_id: plan.hash for plan in found}, put=put)
            await self._forget(layout.PLANS, self._manifests.manifest.plans)
        self._planned = changes

    def _note_plans(self, hashes: dict[int, str], *, put: bool) -> None:
        """Count what was stored for the logs whose plans it changed."""
        changed = {log for log, _ in hashes.items() ^ self._hashes.items()} if put else ()
        for log in changed:
            self._requests.count(log, Artifact.PLANS, PUT)
            self._requests.count(log, Artifact.MANIFEST, PUT)
        self._hashes = hashes

    async def publish_marks(self) -> None:
        """Publish what is dead, if something died since and there are segments to find it in."""
        async with self._marking:
            await self._publish_marks()

    async def _publish_marks(self) -> None:
        deaths = self._kernel.deaths
        if deaths == self._died or not self._manifests.manifest.segments:
            return
        marks = await self._capture()
        # What made them dead must be durable first: a lost deletion must not find its records gone.
        await self._kernel.journal.wait_synced(self._kernel.journal.tail)
        content = await self._pool.run(encode_marks, marks)
        await self._put(content, self._manifests.manifest.marks, layout.marks, _name_marks)
        await self._forget(layout.MARKS, self._manifests.manifest.marks)
        self._died = deaths

    async def _capture(self) -> Marks:
        state = self._kernel.state
        next_id = state.next_id
        live: list[int] = []
        dead: dict[int, Ranges] = {}
        async for log in self._logs():
            if live and live[-1] == log.id - 1:
                live[-1] = log.id
            else:
                live += (log.id, log.id)
            if gone := _dead(log):
                dead[log.id] = gone
        return Marks(ranges.add(live, next_id, ID_MAX), dead)

    async def _logs(self) -> AsyncIterator[Log]:
        """All logs, by id, with pauses for everybody else."""
        state = self._kernel.state
        async for log_id in slices(state.ids()):
            if (log := state.logs.get(log_id)) is not None:
                yield log

    async def _put(
        self,
        content: bytes,
        held: Named | None,
        name_of: Callable[[int], str],
        name_it: Callable[[Manifest, Named], Manifest | None],
    ) -> bool:
        """Publish this unless it is what is published; whether it was not."""
        checksum = xxh3_64_hexdigest(content)
        if held is not None and held.checksum == checksum:
            return False
        generation = held.generation + 1 if held is not None else 1
        # A name that is taken may be published: the answer to our last attempt may have been lost.
        while not await self._pool.run(self._objects.put_new, name_of(generation), content):
            generation += 1
        named = Named(name=name_of(generation), checksum=checksum, generation=generation)
        try:
            await self._manifests.publish(lambda manifest: name_it(manifest, named))
        except NotOurs:
            await self._pool.run(self._objects.remove, named.name)
            raise
        return True

    async def _forget(self, folder: str, held: Named | None) -> None:
        for old in (await self._pool.run(self._objects.list, folder))[:-_KEEP]:
            if held is None or old.name != held.name:
                await self._pool.run(self._objects.remove, old.name)


def _dead(log: Log) -> Ranges:
    """The seqs of a log of which no segment holds a live record, and none ever will."""
    gone = ranges.union(list(log.gone), log.volatile)
    below = max(log.floor - 1, log.inherited)
    return ranges.add(list(gone), 1, below) if below else gone


def _name_plans(manifest: Manifest, named: Named) -> Manifest | None:
    return msgspec.structs.replace(manifest, plans=named) if manifest.plans != named else None


def _name_marks(manifest: Manifest, named: Named) -> Manifest | None:
    return msgspec.structs.replace(manifest, marks=named) if manifest.marks != named else None
