"""Indexing: a build for each segment that waits for one, made by a task, published with others."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from xxhash import xxh3_64_hexdigest

from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.formats.companion import Descriptor, encode_descriptor
from headrace.formats.index_plans import IndexPlans
from headrace.formats.manifest import Build, Segment
from headrace.pipeline import crash_points
from headrace.pipeline.commit import add_builds
from headrace.pipeline.index_backlog import IndexBacklog, Unit
from headrace.pipeline.kernels.build import build
from headrace.pipeline.limits import ATTEMPTS
from headrace.pipeline.segment_index import read_index
from headrace.pipeline.store_location import StoreLocation, get_named
from headrace.pipeline.tasks import attempt, run_tasks
from headrace.storage.leases import HeldLease, hold_lease
from headrace.storage.objects import Objects
from headrace.storage.segments import UNREADABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


NOTHING_TO_INDEX = "nothing to index: every segment has the companions that it should have"


class Failure(msgspec.Struct, frozen=True):
    """A segment that could not be indexed."""

    segment: int
    problem: str


class Indexed(msgspec.Struct):
    """What was done."""

    segments: int = 0
    rows: int = 0
    file_bytes: int = 0
    failures: list[Failure] = msgspec.field(default_factory=list)


def index(
    spark: SparkSession, place: StoreLocation, work: IndexBacklog, units: Sequence[Unit]
) -> Indexed:
    """Build the companions of these units, one task for each segment, and publish them together."""
    segments = [segment for unit in units for segment in unit.segments]
    objects = place.open()
    with hold_lease(objects, "index") as lease:
        task = partial(build_segment, place, work.plans, work.generation, lease.token)
        answers = run_tasks(spark, place, task, segments, lease.token)
        crash_points.point("built")
        return _publish(objects, units, answers, lease)


def _publish(
    objects: Objects, units: Sequence[Unit], answers: Sequence[Build | Failure], lease: HeldLease
) -> Indexed:
    """List the builds of the units that are whole."""
    failures = [answer for answer in answers if isinstance(answer, Failure)]
    failed = {failure.segment for failure in failures}
    whole = {
        segment.number
        for unit in units
        if failed.isdisjoint(segment.number for segment in unit.segments)
        for segment in unit.segments
    }
    builds = [a for a in answers if isinstance(a, Build) and whole.issuperset(a.segments)]
    if builds:
        add_builds(objects, builds, lease)
    return Indexed(
        len(builds),
        sum(build.rows for build in builds),
        sum(build.file_bytes for build in builds),
        failures,
    )


def build_segment(
    place: StoreLocation, plans: IndexPlans, generation: int, job: str, segment: Segment
) -> Build | Failure:
    """The task: read one segment, write its companions, say how they are called."""
    objects = place.open()
    try:
        raw = get_named(objects, segment)
        store = BuildStore(objects, job)
        table = read_index(objects, segment)
        crash_points.point("task")
        rows = pq.ParquetFile(pa.BufferReader(raw))
        number = segment.number
        described = build(rows, table, plans, store.write, segment=number, generation=generation)
        return store.finish(described)
    except (*UNREADABLE, Corrupt) as error:
        if attempt() < ATTEMPTS - 1 and not isinstance(error, Corrupt):
            raise  # perhaps it goes better next time
        named = str(error) if isinstance(error, Corrupt) else f"{segment.name}: {error}"
        return Failure(segment.number, named)


class BuildStore:
    """Where the files of one build go: names that nobody else uses, of the job that makes it."""

    def __init__(self, objects: Objects, job: str) -> None:
        self._objects = objects
        self._token = f"{job}-{secrets.token_hex(4)}"

    def write(self, family: str, content: pa.Buffer) -> str:
        name = layout.build_file(self._token, family)
        self._objects.put(name, content.to_pybytes())
        return name

    def finish(self, descriptor: Descriptor) -> Build:
        """Store what describes the files; from here on they can be published."""
        raw, name = encode_descriptor(descriptor), layout.build(self._token)
        self._objects.put(name, raw)
        return Build(
            segments=descriptor.segments,
            level=descriptor.level,
            name=name,
            checksum=xxh3_64_hexdigest(raw),
            plans=descriptor.plans,
            format=descriptor.format,
            rows=descriptor.rows,
            file_bytes=descriptor.file_bytes + len(raw),
        )


def total(done: Iterable[Indexed]) -> Indexed:
    """All of it together."""
    parts = list(done)
    return Indexed(
        sum(part.segments for part in parts),
        sum(part.rows for part in parts),
        sum(part.file_bytes for part in parts),
        [failure for part in parts for failure in part.failures],
    )
