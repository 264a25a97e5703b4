"""Where the objects are; small, so that it travels with every task."""

from __future__ import annotations

from pathlib import Path

import msgspec
from xxhash import xxh3_64, xxh3_64_hexdigest

from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.formats.companion import File
from headrace.formats.manifest import Build, Manifest, Named, Segment
from headrace.formats.marks import Marks, decode_marks
from headrace.pipeline.errors import CannotRun
from headrace.storage import manifests
from headrace.storage.disk import RealDisk
from headrace.storage.objects import Objects, StoreError
from headrace.storage.stores import open_objects

_CHUNK_BYTES = 1 << 20


class StoreLocation(msgspec.Struct, frozen=True):
    """A data directory, or the bucket where its objects are."""

    data_dir: Path
    objects: str | None = None
    """s3://bucket/prefix; nothing where the objects are in the directory."""

    def open(self) -> Objects:
        return open_objects(self.objects, RealDisk(self.data_dir))

    def path(self, name: str) -> str | None:
        """Where Spark itself can read the object; None where only we can."""
        if self.objects is not None:
            return None
        return str((self.data_dir / layout.OBJECTS / name).resolve())

    def __str__(self) -> str:
        return self.objects or str(self.data_dir)


def check(place: StoreLocation) -> None:
    """Refuse a directory or a bucket that holds no data: a typing mistake must not create a store,
    nor look like one in which nothing is.
    """
    if place.objects is None and not (place.data_dir / layout.OBJECTS).is_dir():
        raise CannotRun(f"{place.data_dir} is not a data directory: it has no {layout.OBJECTS}")
    if place.objects is not None and manifests.load_newer(place.open(), 0) is None:
        raise CannotRun(f"{place.objects} has no manifest: no server has published anything there")


def check_object(objects: Objects, name: str, checksum: str) -> None:
    """`Corrupt` when an object is not what was stored; reads it in pieces."""
    digest = xxh3_64()
    with objects.open(name) as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    if digest.hexdigest() != checksum:
        raise Corrupt(name, 0, "checksum mismatch: the bytes are not what was stored")


def damage_of(objects: Objects, name: str, checksum: str) -> str | None:
    """What is wrong with an object that a manifest names, in words; None when nothing is."""
    try:
        check_object(objects, name, checksum)
    except FileNotFoundError:
        return f"{name}: is missing, though a manifest names it"
    except Corrupt as damage:
        return str(damage)
    except StoreError:
        raise  # nothing can be said about what cannot be asked for
    except OSError as error:
        return f"{name}: {error}"
    return None


def get_named(objects: Objects, named: Named | Build | Segment | File) -> bytes:
    """The content of an object; `Corrupt` when it is not what the manifest vouches for."""
    raw = objects.get(named.name)
    if xxh3_64_hexdigest(raw) != named.checksum:
        raise Corrupt(named.name, 0, "checksum mismatch: the bytes are not what was stored")
    return raw


def load_marks(objects: Objects, manifest: Manifest) -> Marks:
    """What the server said is dead; nothing, if it said nothing yet."""
    if manifest.marks is None:
        return Marks()
    return decode_marks(get_named(objects, manifest.marks), manifest.marks.name)


def load(objects: Objects) -> tuple[Manifest, Marks]:
    """The newest manifest with its marks, which later ones may have replaced meanwhile."""
    while True:
        manifest = manifests.load(objects)
        try:
            return manifest, load_marks(objects, manifest)
        except FileNotFoundError:
            if manifests.load(objects).version == manifest.version:
                raise
