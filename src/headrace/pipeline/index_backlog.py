"""What has to be indexed: segments without a build, or with one that plans or formats outdated.

It is a function of the manifest alone. So whoever starts again, with whatever it remembers or has
forgotten, does exactly what is missing.

Which logs lie in which segments, and what builds know of each, is much: that is read where builds
are asked, by tasks of Spark if there are many, and only what became of each comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.batching import batches
from headrace.core.errors import Corrupt
from headrace.formats.companion import FORMAT, Descriptor, decode_descriptor
from headrace.formats.index_plans import IndexPlans, decode_plans
from headrace.formats.manifest import Build, Manifest, Named, Segment
from headrace.pipeline.commit import drop_builds
from headrace.pipeline.limits import ASKED_HERE_MAX, INDEX_GROUP
from headrace.pipeline.segment_index import index_bytes, read_index
from headrace.pipeline.store_location import StoreLocation, get_named
from headrace.pipeline.tasks import describe, run_tasks
from headrace.storage import manifests
from headrace.storage.objects import Objects
from headrace.storage.replaced_objects import Vanished

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Unit(msgspec.Struct, frozen=True):
    """Segments that are indexed anew together, because one build speaks for all of them."""

    segments: tuple[Segment, ...]
    held: Build | None = None
    """Their build, of which some logs are outdated; the others stay as they are in it."""

    @property
    def rows(self) -> int:
        return sum(segment.rows for segment in self.segments)


class IndexBacklog(msgspec.Struct, frozen=True):
    """A manifest, and what has to be done for it."""

    manifest: Manifest
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


_known: dict[str, IndexPlans] = {}
"""The plans that a worker used last, by their checksum: its next task mostly wants the same."""


def recall_plans(objects: Objects, named: Named | None) -> IndexPlans | None:
    """Plans as tasks use them; None when they are gone, because there are newer ones."""
    if named is None:
        return IndexPlans()
    if named.checksum not in _known:
        try:
            found = decode_plans(get_named(objects, named), named.name)
        except FileNotFoundError:
            return None
        _known.clear()
        _known[named.checksum] = found
    return _known[named.checksum]


def changed_logs(plans: IndexPlans, held: Descriptor) -> pa.Array:
    """The logs that a build knows by other plans than these, or not at all, wherever they lie."""
    known = {part.log: part.hash for part in held.parts}
    changed = [plan.log_id for plan in plans.plans if known.get(plan.log_id) != plan.hash]
    return pa.array(changed, pa.int64())


def logs_in(index: pa.Table, logs: pa.Array) -> frozenset[int]:
    """Those of the logs that lie in a segment."""
    return frozenset(logs.filter(pc.is_in(logs, pc.unique(index.column("log_id")))).to_pylist())


class BuildState(StrEnum):
    """What became of a build since it was made."""

    CURRENT = "current"
    OUTDATED = "outdated"
    LOST = "lost"
    """Damaged, or not there."""
    UNKNOWN = "unknown"
    """The plans in question are gone."""


Asked = tuple[Build, tuple[Segment, ...]]


def ask_build(place: StoreLocation, plans: Named | None, asked: Asked) -> BuildState:
    """The task: whether a build, of these segments, is as plans want it."""
    objects, (build, segments) = place.open(), asked
    wanted = recall_plans(objects, plans)
    if wanted is None:
        return BuildState.UNKNOWN
    try:
        held = decode_descriptor(get_named(objects, build), build.name)
    except (Corrupt, FileNotFoundError):
        return BuildState.LOST
    changed = changed_logs(wanted, held)
    try:
        outdated = len(changed) and any(logs_in(read_index(objects, s), changed) for s in segments)
    except (Corrupt, Vanished):
        outdated = True  # whoever indexes it again says what is damaged
    return BuildState.OUTDATED if outdated else BuildState.CURRENT


class IndexBacklogFinder:
    """Finds what has to be indexed; remembers of the newest manifest what it found, and of builds
    that older plans made whether newer ones outdate them.
    """

    def __init__(self, place: StoreLocation, spark: SparkSession | None = None) -> None:
        self.objects = place.open()
        self._place = place
        self._spark = spark
        self._found = IndexBacklog(Manifest(), [])
        self._generation = 0
        self._states: dict[str, BuildState] = {}

    def look(self) -> IndexBacklog:
        """What is to be done, oldest segments first; costs little when nothing was published."""
        while True:
            newer = manifests.load_newer(self.objects, self._found.manifest.version)
            if newer is None:
                return self._found
            try:
                self._take_plans(newer)
            except FileNotFoundError:
                if manifests.load_newer(self.objects, newer.version) is None:
                    raise  # named, and not there
                continue
            if self._ask(newer):
                self._found = IndexBacklog(newer, list(self._units(newer)))

    def _take_plans(self, manifest: Manifest) -> None:
        """States are of one generation of plans; tasks read these, so they must be sound."""
        if self._generation != generation_of(manifest):
            assert manifest.plans is not None
            get_named(self.objects, manifest.plans)
            self._generation, self._states = manifest.plans.generation, {}

    def _ask(self, manifest: Manifest) -> bool:
        """Learn the states of builds that older plans made; False when others are to be asked."""
        older = {b.name: b for b in manifest.builds if self._is_older(b)}
        self._states = {name: s for name, s in self._states.items() if name in older}
        there = {segment.number: segment for segment in manifest.segments}
        asked = [
            (build, tuple(there[number] for number in build.segments if number in there))
            for name, build in older.items()
            if name not in self._states
        ]
        states = dict(
            zip((build.name for build, _ in asked), self._answers(manifest, asked), strict=True)
        )
        if BuildState.UNKNOWN in states.values():
            self._generation = 0  # there are newer ones; else whoever reads them says what is wrong
            return False
        lost = {name for name, state in states.items() if state is BuildState.LOST}
        if lost and manifests.load_newer(self.objects, manifest.version) is None:
            drop_builds(self.objects, lost)  # and make them again
        self._states |= {name: state for name, state in states.items() if name not in lost}
        return not lost

    def _is_older(self, build: Build) -> bool:
        return build.format >= FORMAT and build.plans < self._generation

    def _answers(self, manifest: Manifest, asked: Sequence[Asked]) -> Sequence[BuildState]:
        task = partial(ask_build, self._place, manifest.plans)
        if self._spark is None or len(asked) <= ASKED_HERE_MAX:
            return [task(one) for one in asked]
        sizes = [sum(map(index_bytes, segments)) for _, segments in asked]
        with describe(self._spark, f"index: builds that plans {self._generation} outdate"):
            return run_tasks(self._spark, self._place, task, asked, sizes=sizes)

    def _units(self, manifest: Manifest) -> Iterator[Unit]:
        there = {segment.number: segment for segment in manifest.segments}
        builds = {number: build for build in manifest.builds for number in build.segments}
        taken: set[int] = set()
        for segment in manifest.segments:
            held = builds.get(segment.number)
            if segment.number in taken:
                continue
            if held is None:
                yield Unit((segment,))
            elif held.format < FORMAT or self._states.get(held.name) is BuildState.OUTDATED:
                found = tuple(there[number] for number in held.segments if number in there)
                taken.update(held.segments)
                # One of which segments are gone knows more than is there: it is made anew, whole.
                whole = held.format >= FORMAT and len(found) == len(held.segments)
                yield Unit(found, held if whole else None)


def grouped(units: Iterable[Unit], segments_max: int = INDEX_GROUP) -> Iterator[list[Unit]]:
    """Units that are worked on together and published with one commit."""
    return batches(units, lambda unit: len(unit.segments), segments_max)


def choose(units: list[Unit], segments_max: int | None) -> list[Unit]:
    """The oldest units that come to this many segments; one at least."""
    if segments_max is None:
        return units
    return next(grouped(units, segments_max), [])
