"""Makes companions as the pipeline does, in place of it: no Spark, no processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.core.config import LogConfig
from headrace.core.match import TagEq
from headrace.core.record import draft
from headrace.engine.open_log import OpenLog
from headrace.engine.start import Started
from headrace.formats.companion import decode_descriptor
from headrace.formats.index_plans import IndexPlans
from headrace.formats.manifest import Build, Manifest, Segment
from headrace.pipeline.build_files import BuildStore
from headrace.pipeline.commit import add_builds
from headrace.pipeline.index_backlog import generation_of, load_plans
from headrace.pipeline.kernels.build import build
from headrace.pipeline.kernels.builds import merge_builds
from headrace.pipeline.segment_index import read_index
from headrace.storage import manifests
from headrace.storage.leases import hold_lease
from headrace.storage.objects import LocalObjects, Objects
from support.engine_harness import CAPS, boot
from support.hostile import HostileDisk
from support.virtual import VirtualClock


class FakeIndexer:
    """Indexes what it is told to, by the plans that are published."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    @property
    def manifest(self) -> Manifest:
        return manifests.load(self._objects)

    def index(self, numbers: Iterable[int] | None = None) -> list[Build]:
        """Builds for these segments, or for all."""
        manifest = self.manifest
        wanted = manifest.numbers if numbers is None else set(numbers)
        plans = load_plans(self._objects, manifest)
        with hold_lease(self._objects, "index") as lease:
            made = [
                self._build(lease.token, segment, plans, generation_of(manifest))
                for segment in manifest.segments
                if segment.number in wanted
            ]
            if made:
                add_builds(self._objects, made, lease)
        return made

    def merge(self, builds: Iterable[Build]) -> Build:
        """One build in place of these."""
        held = list(builds)
        store = BuildStore(self._objects, "merge")
        described = [decode_descriptor(self._objects.get(b.name), b.name) for b in held]
        made = store.finish(
            merge_builds(
                described, lambda file: pa.py_buffer(self._objects.get(file.name)), store.write
            )
        )
        names = {build.name for build in held}

        def change(manifest: Manifest) -> Manifest:
            rest = tuple(build for build in manifest.builds if build.name not in names)
            return msgspec.structs.replace(manifest, builds=(*rest, made))

        manifests.update(self._objects, change)
        return made

    def forget(self, builds: Iterable[Build]) -> None:
        """Remove the files of these, whatever the manifest says."""
        for held in builds:
            described = decode_descriptor(self._objects.get(held.name), held.name)
            for name in (held.name, *(file.name for file in described.files)):
                self._objects.remove(name)

    def _build(self, job: str, segment: Segment, plans: IndexPlans, generation: int) -> Build:
        store = BuildStore(self._objects, job)
        rows = pq.ParquetFile(pa.BufferReader(self._objects.get(segment.name)))
        index = read_index(self._objects, segment)
        return store.finish(
            build(rows, index, plans, store.write, segment=segment.number, generation=generation)
        )


class Reading:
    """A server with one topic that can be searched, and somebody who indexes it."""

    name = "a"

    def __init__(self, started: Started, disk: HostileDisk) -> None:
        self.started = started
        self.engine, self.upkeep = started.engine, started.upkeep
        self.objects = LocalObjects(HostileDisk(disk.world))
        self.fake_indexer = FakeIndexer(self.objects)

    @property
    def live(self) -> OpenLog:
        return self.engine.live(self.name)

    async def append(self, raws: Sequence[bytes], keys: Sequence[str | None] = ()) -> None:
        """Each record in an append of its own, tagged with its seq."""
        for at, raw in enumerate(raws):
            log = self.engine.state.by_name.get(self.name)
            seq = 1 if log is None else log.head + 1
            drafts = draft([raw], tags=[str(seq)], keys=[keys[at]] if keys else None)
            await self.engine.appender.append(self.name, drafts, owner="topics", create=LogConfig())

    async def delete(self, seq: int) -> None:
        await self.engine.deleter.delete(self.name, None, TagEq(str(seq)))

    async def plan(self, config: dict[str, Any]) -> None:
        await self.engine.search_configs.put(self.name, "topics", msgspec.json.encode(config))
        await self.upkeep._publisher.publish_plans()

    async def seal(self) -> None:
        self.upkeep.close_file()
        await self.upkeep.checkpoint()

    async def take_over(self) -> None:
        await self.upkeep.manifests.look()


async def reading(clock: VirtualClock, tail_bytes: int = 0) -> Reading:
    disk = HostileDisk()
    return Reading(await boot(disk, clock, caps=CAPS.__class__(tail_bytes=tail_bytes)), disk)
