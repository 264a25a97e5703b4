"""Audit of builds as files: descriptors, checksums, hashes of keys; one build for each segment."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow.parquet as pq

from headrace.core.errors import Corrupt
from headrace.formats.companion import (
    HASHED,
    Descriptor,
    decode_descriptor,
    decode_hashes,
    hash_key,
)
from headrace.formats.manifest import Build
from headrace.pipeline.audit_rows import AuditView, newest
from headrace.pipeline.problems import ProblemKind, Tally
from headrace.pipeline.store_location import StoreLocation, damage_of
from headrace.pipeline.tasks import run_tasks
from headrace.storage.objects import Objects, StoreError
from headrace.storage.segments import UNREADABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_build_files(spark: SparkSession, place: StoreLocation, view: AuditView) -> None:
    """Each segment is in one build; descriptors, files and hashes are what was published."""
    seen: dict[int, str] = {}
    builds = view.manifest.builds
    for build in builds:
        for number in build.segments:
            if number in seen:
                what = f"{build.name}: segment {number} is in {seen[number]} as well"
                view.tally.add(ProblemKind.BUILD, what)
            seen[number] = build.name
    task = partial(_check_build, place, view.tally.examples_max)
    found = run_tasks(spark, place, task, builds, view.job)
    there = {build.name for build in newest(place, view).builds}
    sound: list[Build] = []
    for build, (tally, readable) in zip(builds, found, strict=True):
        if readable:
            sound.append(build)
        if readable or build.name in there:
            view.tally.join(tally)
    view.manifest = msgspec.structs.replace(view.manifest, builds=tuple(sound))


def _check_build(place: StoreLocation, examples_max: int, build: Build) -> tuple[Tally, bool]:
    """What is wrong with a build, and whether its files can be read."""
    objects, tally = place.open(), Tally(examples_max)
    try:
        for damage in _damages(objects, build):
            tally.add(ProblemKind.BUILD, damage)
        if tally.total:
            return tally, False
        for problem in _differences(objects, build):
            tally.add(ProblemKind.BUILD, problem)
    except StoreError:
        raise  # nothing can be said about files that cannot be asked for
    except Corrupt as damage:
        tally.add(ProblemKind.BUILD, str(damage))
        return tally, False
    except UNREADABLE as error:
        tally.add(ProblemKind.BUILD, f"{build.name}: {error}")
        return tally, False
    return tally, True


def _damages(objects: Objects, build: Build) -> Iterator[str]:
    damage = damage_of(objects, build.name, build.checksum)
    if damage is not None:
        yield damage
        return
    for file in decode_descriptor(objects.get(build.name), build.name).files:
        damage = damage_of(objects, file.name, file.checksum)
        if damage is not None:
            yield damage


def _differences(objects: Objects, build: Build) -> Iterator[str]:
    descriptor = decode_descriptor(objects.get(build.name), build.name)
    said = build.level, build.plans, build.rows, build.format
    held = descriptor.level, descriptor.plans, descriptor.rows, descriptor.format
    if said != held or not set(descriptor.segments).issuperset(build.segments):
        yield f"{build.name}: is of {held}; the manifest says {said}"
    yield from _wrong_hashes(objects, descriptor)


def _wrong_hashes(objects: Objects, descriptor: Descriptor) -> Iterator[str]:
    for family in HASHED:
        file, hashes = descriptor.file(family), descriptor.file(f"{family}.hash")
        if file is None or hashes is None:
            continue
        keys = pq.read_table(objects.open(file.name), columns=["k"]).column("k").to_pylist()
        expected = np.sort(np.fromiter(map(hash_key, keys), np.uint64, len(keys)))
        if not np.array_equal(expected, decode_hashes(objects.get(hashes.name))):
            yield f"{hashes.name}: does not hold the hashes of the keys of {file.name}"
