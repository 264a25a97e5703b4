"""Removing objects: the janitor, and what may not wait for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from headrace.formats import layout
from headrace.pipeline import crash
from headrace.pipeline.commit import Retired, named
from headrace.pipeline.limits import GRACE_S
from headrace.pipeline.place import Place
from headrace.storage import manifests
from headrace.storage.disk import RealDisk
from headrace.storage.objects import Listed, Objects


class Removed(msgspec.Struct):
    """What the janitor did."""

    objects: int = 0
    size_bytes: int = 0
    waiting: int = 0
    """Objects nobody needs that are not old enough."""


def clean(place: Place, now_ms: int, grace_s: float = GRACE_S) -> Removed:
    """Remove objects of the pipeline that no manifest names and that are older than the grace.

    The server's own objects are only removed when the pipeline has retired them.
    """
    objects, removed = place.open(), Removed()
    young_ms = now_ms - int(grace_s * 1000)
    lists = [listed for listed in objects.list(layout.BUILDS) if layout.is_retired(listed.name)]
    held, due = set[str](), set[str]()
    for listed in lists:
        names = msgspec.json.decode(objects.get(listed.name), type=Retired).names
        (held if listed.modified_ms > young_ms else due).update(names)
    found = list(_found(objects))
    # Loaded after the listing: what is published from here on is not in it.
    needed = named(manifests.load(objects))
    for listed in found:
        name, owner = listed.name, _owner(listed.name)
        if owner in needed or not (layout.is_foreign(name) or name in due or name in held):
            continue
        if owner in held or (owner not in due and listed.modified_ms > young_ms):
            removed.waiting += 1
            continue
        objects.remove(name)
        crash.point("removed")
        removed.objects += 1
        removed.size_bytes += listed.size_bytes
    for listed in lists:
        if listed.modified_ms <= young_ms:
            objects.remove(listed.name)
    removed.objects += _sweep(place, young_ms)
    return removed


def remove_now(objects: Objects, names: Iterable[str]) -> list[str]:
    """Remove these objects, and all files of builds among them, unless a manifest names them."""
    wanted = set(names) - named(manifests.load(objects))
    gone = [listed.name for listed in _found(objects) if _owner(listed.name) in wanted]
    for name in gone:
        objects.remove(name)
        crash.point("removed")
    return gone


def _owner(name: str) -> str:
    return layout.build_of(name) if name.startswith(layout.BUILDS) else name


def _found(objects: Objects) -> Iterator[Listed]:
    for folder in (layout.SEGMENTS, layout.COMPANIONS, layout.BUILDS):
        for listed in objects.list(folder):
            if not layout.is_retired(listed.name):
                yield listed


def _sweep(place: Place, young_ms: int) -> int:
    """Remove files that killed tasks began and nobody will finish; buckets have none."""
    if place.objects is not None:
        return 0
    disk, count = RealDisk(place.data_dir), 0
    for folder in (layout.SEGMENTS, layout.COMPANIONS, layout.BUILDS):
        path = f"{layout.OBJECTS}/{folder}"
        for file in disk.list(path, unfinished=True):
            if layout.is_foreign(f"{folder}/{file}"):
                try:
                    old = disk.modified_ms(f"{path}/{file}") <= young_ms
                except FileNotFoundError:
                    continue  # finished just now
                if old:
                    disk.remove(f"{path}/{file}")
                    count += 1
    return count
