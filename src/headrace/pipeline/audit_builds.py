"""Audit of builds as files: descriptors, checksums, hashes of keys; one build for each segment."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

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
from headrace.formats.manifest import Build, Manifest
from headrace.pipeline.place import Place, check_object
from headrace.pipeline.tasks import run_tasks
from headrace.storage.segments import UNREADABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_build_files(spark: SparkSession, place: Place, manifest: Manifest) -> list[str]:
    """Each segment is in one build; descriptors, files and hashes are what was published."""
    seen: dict[int, str] = {}
    problems: list[str] = []
    for build in manifest.builds:
        for number in build.segments:
            if number in seen:
                problems.append(f"{build.name}: segment {number} is in {seen[number]} as well")
            seen[number] = build.name
    found = run_tasks(spark, place, partial(_check_build, place), manifest.builds)
    return problems + [problem for part in found for problem in part]


def _check_build(place: Place, build: Build) -> list[str]:
    objects = place.open()
    try:
        check_object(objects, build.name, build.checksum)
        descriptor = decode_descriptor(objects.get(build.name), build.name)
        said = build.level, build.plans, build.rows, build.format
        held = descriptor.level, descriptor.plans, descriptor.rows, descriptor.format
        if said != held or not set(descriptor.segments).issuperset(build.segments):
            return [f"{build.name}: is of {held}; the manifest says {said}"]
        for file in descriptor.files:
            check_object(objects, file.name, file.checksum)
        return list(_wrong_hashes(place, descriptor))
    except Corrupt as damage:
        return [str(damage)]
    except UNREADABLE as error:
        return [f"{build.name}: {error}"]


def _wrong_hashes(place: Place, descriptor: Descriptor) -> Iterator[str]:
    objects = place.open()
    for family in HASHED:
        file, hashes = descriptor.file(family), descriptor.file(f"{family}.hash")
        if file is None or hashes is None:
            continue
        keys = pq.read_table(objects.open(file.name), columns=["k"]).column("k").to_pylist()
        expected = np.sort(np.fromiter(map(hash_key, keys), np.uint64, len(keys)))
        if not np.array_equal(expected, decode_hashes(objects.get(hashes.name))):
            yield f"{hashes.name}: does not hold the hashes of the keys of {file.name}"
