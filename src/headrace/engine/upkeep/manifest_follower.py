"""Following manifests: which one the engine reads by, and the change to a newer one.

The pipeline publishes too: it replaces segments by others with the same records. While the engine
changes over, both can be read; each log then learns in one step where its records lie now, and at
last the old ones are forgotten. Readers that are in the middle look again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from headrace.core.log import Extent, place
from headrace.engine.flow.time_slices import slices
from headrace.engine.kernel import Kernel
from headrace.engine.ports import Pool
from headrace.formats import layout
from headrace.formats.manifest import Manifest, Segment, without_builds
from headrace.observe import log_line
from headrace.storage import manifests
from headrace.storage.manifests import Change
from headrace.storage.objects import Objects, StoreError
from headrace.storage.ownership import Ownership
from headrace.storage.replaced_objects import Vanished
from headrace.storage.segments import Segments

_Extents = dict[int, list[Extent]]


class ManifestFollower:
    """The manifest in force."""

    def __init__(
        self,
        kernel: Kernel,
        segments: Segments,
        objects: Objects,
        pool: Pool,
        manifest: Manifest,
        ownership: Ownership,
    ) -> None:
        self.manifest = manifest
        """Every log knows its segments."""
        self.resident: deque[list[tuple[int, int]]] = deque()
        """For each change that brought segments of records that are still in memory: (log, last
        seq), oldest first.
        """
        self._kernel = kernel
        self._segments = segments
        self._objects = objects
        self._pool = pool
        self._ownership = ownership
        self._changing = asyncio.Lock()
        self._on_change: list[Callable[[], None]] = []

    def observe(self, observer: Callable[[], None]) -> None:
        """Have this called whenever another manifest is in force."""
        self._on_change.append(observer)

    async def publish(self, change: Change) -> Manifest:
        """Publish what `change` makes of the newest manifest, and change over to that."""
        async with self._changing:
            claiming = self._ownership.claiming(change)
            published = await self._pool.run(manifests.update, self._objects, claiming)
            self._ownership.note(published)
            await self._change_over(published)
            return self.manifest

    async def claim(self) -> None:
        """From here on nobody else publishes as the server of this store."""
        if not self._ownership.claimed:
            await self.publish(lambda manifest: manifest)

    async def look(self) -> None:
        """Change over to what others have published, if they have."""
        async with self._changing:
            try:
                newer = await self._newer_than(self.manifest)
                if newer is not None:
                    await self._change_over(newer)
            except (StoreError, Vanished):
                raise
            except OSError as error:  # readers come here too, and are told to try again
                raise StoreError(str(error)) from error

    async def let_go(self, name: str) -> bool:
        """Do without a build that is lost: its records are searched as if they had none, until the
        pipeline has made another. Of anything else there is no other.
        """
        lost = next((build for build in self.manifest.builds if build.name == name), None)
        if lost is None:
            return False
        await self.publish(lambda manifest: without_builds(manifest, {name}))
        log_line(
            "warning", "a build had vanished: what it covered is to be indexed again",
            name=name, segments=",".join(map(str, lost.segments)),
        )  # fmt: skip
        return True

    async def _newer_than(self, manifest: Manifest) -> Manifest | None:
        return await self._pool.run(manifests.load_newer, self._objects, manifest.version)

    async def _change_over(self, manifest: Manifest) -> None:
        if manifest.version <= self.manifest.version:
            return
        # Of another's manifest we would believe that our journal is sealed where his is.
        self._ownership.require(manifest)
        # What we go by must not be lost after a snapshot that relies on it.
        await self._pool.run(self._objects.settle, layout.MANIFESTS)
        held = self.manifest.numbers
        new = [segment for segment in manifest.segments if segment.number not in held]
        self._segments.know(new)
        try:
            extents = await self._pool.run(self._extents_of, new)
        except Vanished:
            newer = await self._newer_than(manifest)
            if newer is None:
                raise
            await self._change_over(newer)
            return
        made = {segment.number for segment in new if not layout.is_foreign(segment.name)}
        await self._place_records(manifest, extents, made, everywhere=not held <= manifest.numbers)
        self._segments.use(manifest)
        self.manifest = manifest
        for observer in self._on_change:
            observer()

    def _extents_of(self, segments: list[Segment]) -> _Extents:
        found: _Extents = {}
        for segment in segments:
            for log, first, last in self._segments.extents(segment):
                found.setdefault(log, []).append((segment.number, first, last))
        return found

    async def _place_records(
        self, manifest: Manifest, extents: _Extents, made: set[int], *, everywhere: bool
    ) -> None:
        """Tell logs where their records lie now, and in which segments that we made; from here on
        their memory can be freed.
        """
        kernel, known = self._kernel, manifest.numbers
        resident: list[tuple[int, int]] = []
        async for log in slices(kernel.state.ids() if everywhere else extents):
            live = kernel.open_logs.get(log)
            if live is None or not (live.log.extents or log in extents):
                continue
            new = extents.get(log, ())
            place(live.log, known, new)
            live.sealed += sum(number in made for number, _, _ in new)
            last = max((extent[2] for extent in new), default=0)
            if last >= live.tail.start:
                resident.append((log, last))
        if resident:
            self.resident.append(resident)
