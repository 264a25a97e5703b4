"""What has to be indexed: segments without a build, or with one that plans or formats outdated.

It is a function of the manifest alone. So whoever starts again, with whatever it remembers or has
forgotten, does exactly what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from headrace.core.batching import batches
from headrace.core.errors import Corrupt
from headrace.formats.companion import FORMAT, decode_descriptor
from headrace.formats.index_plans import IndexPlans, decode_plans
from headrace.formats.manifest import Build, Manifest, Segment
from headrace.pipeline.commit import drop_builds
from headrace.pipeline.limits import INDEX_GROUP
from headrace.pipeline.segment_index import read_index
from headrace.pipeline.store_location import StoreLocation, get_named
from headrace.storage import manifests
from headrace.storage.objects import Objects


class Unit(msgspec.Struct, frozen=True):
    """Segments that are indexed anew together, because one build speaks for all of them."""

    segments: tuple[Segment, ...]

    @property
    def rows(self) -> int:
        return sum(segment.rows for segment in self.segments)


class IndexBacklog(msgspec.Struct, frozen=True):
    """A manifest, what its logs want, and what has to be done for it."""

    manifest: Manifest
    plans: IndexPlans
    units: list[Unit]

    @property
    def generation(self) -> int:
        return generation_of(self.manifest)


def generation_of(manifest: Manifest) -> int:
    """Of the plans; none is before all others."""
    return manifest.plans.generation if manifest.plans is not None else 0


def load_plans(objects: Objects, manifest: Manifest) -> IndexPlans:
    """What logs want indexed; nothing, if none ever wanted something."""
    if manifest.plans is None:
        return IndexPlans()
    return decode_plans(get_named(objects, manifest.plans), manifest.plans.name)


class IndexBacklogFinder:
    """Finds what has to be indexed; remembers what it has read of objects that never change."""

    def __init__(self, place: StoreLocation) -> None:
        self.objects = place.open()
        self._logs: dict[str, frozenset[int]] = {}
        self._parts: dict[str, dict[int, str]] = {}
        self._plans = IndexPlans()
        self._plans_name = ""

    def look(self) -> IndexBacklog:
        """What is to be done, oldest segments first."""
        while True:
            manifest = manifests.load(self.objects)
            try:
                plans = self._load_plans(manifest)
                return IndexBacklog(manifest, plans, list(self._units(manifest, plans)))
            except FileNotFoundError:
                if manifests.load(self.objects).version != manifest.version:
                    continue
                lost = {b.name for b in manifest.builds if self.objects.look(b.name) is None}
                if not lost:
                    raise  # named, and not there
                drop_builds(self.objects, lost)
            except Corrupt as damage:
                if damage.where not in {build.name for build in manifest.builds}:
                    raise
                drop_builds(self.objects, {damage.where})  # and make it again

    def _load_plans(self, manifest: Manifest) -> IndexPlans:
        name = manifest.plans.name if manifest.plans else ""
        if name != self._plans_name:
            self._plans, self._plans_name = load_plans(self.objects, manifest), name
        return self._plans

    def _units(self, manifest: Manifest, plans: IndexPlans) -> Iterator[Unit]:
        hashes = {plan.log_id: plan.hash for plan in plans.plans}
        by_number = {segment.number: segment for segment in manifest.segments}
        builds = {number: build for build in manifest.builds for number in build.segments}
        taken: set[int] = set()
        for segment in manifest.segments:
            held = builds.get(segment.number)
            if segment.number in taken:
                continue
            if held is None:
                yield Unit((segment,))
            elif self._is_stale(held, by_number, generation_of(manifest), hashes):
                there = [by_number[number] for number in held.segments if number in by_number]
                taken.update(held.segments)
                yield Unit(tuple(there))
        self._forget(manifest)

    def _is_stale(
        self,
        held: Build,
        by_number: dict[int, Segment],
        generation: int,
        hashes: dict[int, str],
    ) -> bool:
        if held.format < FORMAT:
            return True
        if held.plans >= generation:
            return False
        parts = self._parts_of(held)
        there = [by_number[number] for number in held.segments if number in by_number]
        try:
            logs = [self._logs_of(segment) for segment in there]
        except Corrupt:
            return True  # whoever indexes it again says what is damaged
        return any(
            parts.get(log) != hashes[log] for found in logs for log in found.intersection(hashes)
        )

    def _parts_of(self, held: Build) -> dict[int, str]:
        if held.name not in self._parts:
            descriptor = decode_descriptor(get_named(self.objects, held), held.name)
            self._parts[held.name] = {part.log: part.hash for part in descriptor.parts}
        return self._parts[held.name]

    def _logs_of(self, segment: Segment) -> frozenset[int]:
        if segment.name not in self._logs:
            index = read_index(self.objects, segment)
            self._logs[segment.name] = frozenset(index.column("log_id").to_pylist())
        return self._logs[segment.name]

    def _forget(self, manifest: Manifest) -> None:
        segments = {segment.name for segment in manifest.segments}
        builds = {build.name for build in manifest.builds}
        self._logs = {name: logs for name, logs in self._logs.items() if name in segments}
        self._parts = {name: parts for name, parts in self._parts.items() if name in builds}


def grouped(units: Iterable[Unit], segments_max: int = INDEX_GROUP) -> Iterator[list[Unit]]:
    """Units that are worked on together and published with one commit."""
    return batches(units, lambda unit: len(unit.segments), segments_max)
