"""Proof that a rewrite lost nothing that is live and kept nothing that is dead.

It reads the new files as anybody would, before a manifest names them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from headrace.core.errors import Corrupt
from headrace.formats.manifest import Segment
from headrace.formats.segment import SCHEMA
from headrace.pipeline.commit import require_held
from headrace.pipeline.errors import Damaged, JobFailed, Unpublished
from headrace.pipeline.marks import MarksCopy, Work
from headrace.pipeline.rows import is_live, read
from headrace.pipeline.segment_index import still_named
from headrace.pipeline.store_location import StoreLocation, damage_of
from headrace.pipeline.tasks import describe, run_tasks
from headrace.storage.companions import load_index
from headrace.storage.leases import HeldLease
from headrace.storage.replaced_objects import Vanished

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def prove(
    spark: SparkSession,
    place: StoreLocation,
    sources: Sequence[Segment],
    outputs: Sequence[Segment],
    work: Work,
) -> None:
    """Compare; `JobFailed` when the new files are not exactly the live rows of the old ones, and
    `Unpublished` when they are not there any more.
    """
    with describe(spark, "prove"):
        _require_written(spark, place, outputs, work.lease)
        _, live, digest = _sum(read(spark, place, sources), work.marks)
        kept, alive, found = _sum(read(spark, place, outputs), work.marks)
    if alive != kept:
        raise JobFailed(
            f"{kept - alive} dead records would still be in the new files; kept the old"
        )
    if (live, digest) != (kept, found):
        raise JobFailed(f"the new files hold {kept} records where {live} are live; kept the old")


def _require_written(
    spark: SparkSession, place: StoreLocation, outputs: Sequence[Segment], lease: HeldLease
) -> None:
    files = [
        (name, checksum)
        for output in outputs
        for name, checksum in (
            (output.name, output.checksum),
            (output.index, output.index_checksum),
            (output.tags, output.tags_checksum),
        )
        if name is not None and checksum is not None
    ]
    found = run_tasks(spark, place, partial(_damage, place), files)
    damaged = [name for (name, _), damage in zip(files, found, strict=True) if damage is not None]
    if damaged:
        # The janitor may have taken the job for dead; that it was not is what has to be told.
        require_held(place.open(), lease)
        raise Unpublished(
            f"{damaged[0]} is gone, or not what was written, before it was published: nothing was "
            "published, run the job again"
        )


def _sum(rows: DataFrame, marks: MarksCopy) -> tuple[int, int, int | None]:
    """How many rows there are, how many are live, and a digest of those in whatever order."""
    from pyspark.sql import functions as F  # noqa: N812

    columns = [F.coalesce("ns", F.lit(0)) if f.name == "ns" else F.col(f.name) for f in SCHEMA]
    digest = F.sum(F.when(F.col("live"), F.xxhash64(*columns)).cast("decimal(38,0)"))
    live = F.sum(F.col("live").cast("long"))
    found = rows.withColumn("live", is_live(marks)).agg(F.count("*"), live, digest).first()
    assert found is not None
    return found[0], found[1] or 0, found[2]


def require_sound(
    spark: SparkSession, place: StoreLocation, segments: Sequence[Segment], *, indexes: bool = False
) -> None:
    """`Damaged` unless these segments of the manifest are what was sealed; and their indexes."""
    damages = find_damages(spark, place, segments, indexes=indexes)
    if damages:
        raise Damaged([*damages.values()])


def find_damages(
    spark: SparkSession, place: StoreLocation, segments: Sequence[Segment], *, indexes: bool = False
) -> dict[int, str]:
    """By number, what is wrong with segments as files; those that left the manifest are not told.

    Spark would rewrite whatever it makes of bytes that are not what was sealed, and everything
    would be in order with the checksums of that.
    """
    sizes = [segment.file_bytes for segment in segments]
    with describe(spark, "look for damage"):
        task = partial(_damage_of_segment, place, indexes)
        found = run_tasks(spark, place, task, segments, sizes=sizes)
    damages = {s.number: damage for s, damage in zip(segments, found, strict=True) if damage}
    return still_named(place, damages)


def _damage_of_segment(place: StoreLocation, indexes: bool, segment: Segment) -> str | None:
    """The task: an index that is missing is made again, and nothing is wrong with it."""
    objects = place.open()
    damage = damage_of(objects, segment.name, segment.checksum)
    if damage is None and indexes:
        try:
            load_index(objects, segment)
        except (Corrupt, Vanished) as problem:
            return str(problem)
    return damage


def _damage(place: StoreLocation, file: tuple[str, str]) -> str | None:
    return damage_of(place.open(), *file)
