"""The files of builds, as tasks write and read them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import pyarrow as pa
from xxhash import xxh3_64_hexdigest

from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.formats.companion import Descriptor, File, decode_descriptor, encode_descriptor
from headrace.formats.manifest import Build
from headrace.pipeline.store_location import get_named
from headrace.storage.objects import Objects


class LostBuild(Exception):
    """A build of which something is damaged or not there; `name` is what describes it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class BuildStore:
    """Where the files of one build go: names that nobody else uses, of the job that makes it."""

    def __init__(self, objects: Objects, job: str) -> None:
        self._objects = objects
        self._token = f"{job}-{secrets.token_hex(4)}"

    def read(self, file: File) -> pa.Buffer:
        """A file of another build; `LostBuild` when it is not what was published."""
        try:
            return pa.py_buffer(get_named(self._objects, file))
        except (Corrupt, FileNotFoundError):
            raise LostBuild(layout.build_of(file.name)) from None

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


def read_descriptor(objects: Objects, build: Build) -> Descriptor:
    """What describes a build; `LostBuild` when it is not what was published."""
    try:
        return decode_descriptor(get_named(objects, build), build.name)
    except (Corrupt, FileNotFoundError):
        raise LostBuild(build.name) from None


def read_descriptors(objects: Objects, builds: Sequence[Build]) -> list[Descriptor]:
    """The same of several."""
    return [read_descriptor(objects, build) for build in builds]


def remove_build(objects: Objects, build: Build) -> None:
    """Remove what no manifest names, nor ever will."""
    for file in read_descriptor(objects, build).files:
        objects.remove(file.name)
    objects.remove(build.name)
