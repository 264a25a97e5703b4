"""What an audit of builds compares: the rows of their segments, and the rows of their files.

Builds with segments that are gone still speak of records that nobody can read, and are only checked
as files. So are logs of which nobody knows any more by which plan they were indexed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.core.errors import Corrupt
from headrace.formats.companion import Descriptor, Family, Part, decode_descriptor
from headrace.formats.index_plans import IndexPlan, IndexPlans
from headrace.formats.manifest import Build, Manifest
from headrace.pipeline.kernels.build import Documents, promoter_of
from headrace.pipeline.problems import Tally
from headrace.pipeline.rows import NUMBER, read, small_table
from headrace.pipeline.store_location import StoreLocation
from headrace.search.config import Search, parse_search
from headrace.storage import manifests
from headrace.workers import freeze_gc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUILD = "build"
"""The column with the place of a build in the list of those that are known."""
_READ_ROWS = 8192

Tell = Callable[[int, int, Search, pa.RecordBatch, Documents], Iterator[pa.RecordBatch]]
"""What to say of records of one build and log, given how they were indexed, and their documents."""


class AuditView(msgspec.Struct):
    """What an audit looks at, and what it found so far.

    Files that are missing or damaged leave it once they were told of: what comes later reads the
    rest.
    """

    manifest: Manifest
    plans: IndexPlans
    tally: Tally
    lost: dict[int, list[int]] = msgspec.field(default_factory=dict)
    """Log → ranges of seqs that damaged segments held."""
    sizes: tuple[int, int, int] = (0, 0, 0)
    """Records, segments and builds of the manifest, damaged ones included."""
    job: str | None = None
    """What large answers of tasks are named after, while the audit holds a lease."""


def newest(place: StoreLocation, view: AuditView) -> Manifest:
    """What is published by now: what left the manifest meanwhile need not be there any more."""
    try:
        return manifests.load(place.open())
    except Corrupt:
        return view.manifest  # told of already


class Known(msgspec.Struct, frozen=True):
    """Builds whose segments are all there, and what is still known of how they were made."""

    builds: list[Build]
    descriptors: list[Descriptor]
    plans: dict[tuple[int, int], IndexPlan]
    """(build, log) → the plan it was made by, where it still holds."""
    parts: dict[tuple[int, int], Part]

    def names(self, family: Family) -> list[str | None]:
        """For each build its file of a family."""
        found = [descriptor.file(family) for descriptor in self.descriptors]
        return [None if file is None else file.name for file in found]

    @property
    def logs(self) -> list[int]:
        return sorted({log for _, log in self.plans})


def know(place: StoreLocation, view: AuditView) -> Known:
    """What can be compared."""
    objects, there = place.open(), view.manifest.numbers
    builds = [build for build in view.manifest.builds if there.issuperset(build.segments)]
    descriptors = [decode_descriptor(objects.get(build.name), build.name) for build in builds]
    plans = {(p.log_id, p.hash): p for p in view.plans.plans}
    parts = {(at, part.log): part for at, one in enumerate(descriptors) for part in one.parts}
    held = {k: plans[k[1], p.hash] for k, p in parts.items() if (k[1], p.hash) in plans}
    return Known(builds, descriptors, held, parts)


def rows_of(
    spark: SparkSession, place: StoreLocation, manifest: Manifest, known: Known
) -> DataFrame:
    """The rows of all segments that have a build, with its place in the list."""
    from pyspark.sql import functions as F  # noqa: N812

    owners = [(number, at) for at, build in enumerate(known.builds) for number in build.segments]
    builds = small_table(spark, owners, (NUMBER, pa.int64()), (BUILD, pa.int32()))
    numbers = {number for number, _ in owners}
    segments = [segment for segment in manifest.segments if segment.number in numbers]
    return read(spark, place, segments).join(F.broadcast(builds), NUMBER)


def documents_of(rows: DataFrame, known: Known) -> DataFrame:
    """Those of logs with a plan, as `Telling` takes them."""
    from pyspark.sql import functions as F  # noqa: N812

    logs = pa.table({"log_id": pa.array(known.logs, pa.int64())})
    wanted = F.broadcast(rows.sparkSession.createDataFrame(logs))
    chosen = rows.select(BUILD, "log_id", "seq", "media", "data")
    return chosen.join(wanted, "log_id", "left_semi").select(*chosen.columns)


class Telling:
    """The task that goes through documents by build and log."""

    def __init__(self, known: Known, tell: Tell) -> None:
        self._plans = known.plans
        self._tell = tell

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc()
        for batch in batches:
            builds, logs = batch.column(BUILD).to_numpy(), batch.column("log_id").to_numpy()
            for build, log in sorted(set(zip(builds.tolist(), logs.tolist(), strict=True))):
                plan = self._plans.get((build, log))
                if plan is not None:
                    rows = np.flatnonzero((builds == build) & (logs == log))
                    chosen = batch.take(pa.array(rows))
                    search = parse_search(msgspec.json.decode(plan.search))
                    yield from self._tell(build, log, search, chosen, _documents(plan, chosen))


def _documents(plan: IndexPlan, batch: pa.RecordBatch) -> Documents:
    """As they are in the current schema version."""
    medias, datas = batch.column("media").to_pylist(), batch.column("data").to_pylist()
    stored = [None if media else data for media, data in zip(medias, datas, strict=True)]
    promoter = promoter_of(plan)
    return stored if promoter is None else promoter.attempt(batch.column("seq").to_pylist(), stored)


def batches_of(
    place: StoreLocation, names: Sequence[str | None], at: int, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """What is in the file of the build at this place, if it has one."""
    name = names[at]
    if name is not None:
        file = pq.ParquetFile(place.open().open(name))
        yield from file.iter_batches(_READ_ROWS, columns=columns, use_threads=False)


def log_of(key: bytes) -> int:
    return int.from_bytes(key[:8], "big")


def describe(key: bytes) -> str:
    """A key for people."""
    return f"log {log_of(key)} {bytes(key[8:]).decode(errors='replace')!r}"
