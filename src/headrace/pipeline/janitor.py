"""Removing objects: the janitor, and what may not wait for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import msgspec

from headrace.core.limits import LEASE_S
from headrace.formats import layout
from headrace.formats.manifest import Manifest
from headrace.pipeline import crash_points
from headrace.pipeline.commit import named
from headrace.pipeline.limits import GRACE_S
from headrace.pipeline.report import Report
from headrace.pipeline.store_location import StoreLocation
from headrace.printing import count, size
from headrace.storage import manifests
from headrace.storage.disk import RealDisk
from headrace.storage.leases import now_ms, remove_fenced
from headrace.storage.objects import Listed, Objects
from headrace.storage.retired_objects import retired_lists


class Removed(msgspec.Struct):
    """What the janitor did."""

    objects: int = 0
    size_bytes: int = 0
    waiting: int = 0
    """Objects nobody needs that are not old enough, or that a job may still publish."""


def clean(place: StoreLocation, grace_s: float = GRACE_S) -> Removed:
    """Remove what the pipeline left, and files that killed tasks began; times are the store's."""
    objects = place.open()
    now = now_ms(objects)
    removed = remove_unnamed(objects, now - int(grace_s * 1000))
    # Whoever writes one may be anybody: who stands still for so long counts as dead.
    removed.objects += _sweep(place, now - int(max(grace_s, LEASE_S) * 1000))
    return removed


def removal_report(place: StoreLocation, removed: Removed) -> Report:
    """What the janitor says of it."""
    what = f"{count(removed.objects, 'object')} removed, {size(removed.size_bytes)}"
    if not removed.objects:
        what = "nothing to remove"
    if removed.waiting:
        what += (
            f"; {count(removed.waiting, 'object')} left until the grace period is over, "
            "or the job that holds it"
        )
    return Report("", [], f"{place}: {what}")


def remove_unnamed(objects: Objects, young_ms: int) -> Removed:
    """Remove pages, and objects of the pipeline, that no manifest names and that were stored before
    `young_ms`.

    Those of jobs that are at work stay, whatever their age. The server's own objects are only
    removed when the pipeline has retired them.
    """
    found = [*find_objects(objects), *objects.list(layout.PAGES)]
    waiting, over = 0, list[str]()

    def doom(manifest: Manifest, at_work: frozenset[str]) -> Sequence[Listed]:
        nonlocal waiting
        waiting, doomed = 0, list[Listed]()
        needed = named(manifest) | manifest.page_names | manifests.kept_pages(objects)
        held, due = set[str](), set[str]()
        over.clear()
        # After the manifest was read: what has left it was listed before.
        for listed, names in retired_lists(objects):
            if listed.modified_ms > young_ms:
                held.update(names)
                continue
            due.update(names)
            if needed.isdisjoint(names):  # else who listed them may be about to publish
                over.append(listed.name)
        for listed in found:
            name, owned_by = listed.name, owner(listed.name)
            ours = layout.is_foreign(name) or layout.is_page(name)
            if owned_by in needed or not (ours or name in due or name in held):
                continue
            young = listed.modified_ms > young_ms or layout.job_of(name) in at_work
            if owned_by in held or (owned_by not in due and young):
                waiting += 1
            else:
                doomed.append(listed)
        return doomed

    doomed = remove_fenced(objects, doom, lambda name: crash_points.point("removed"))
    for name in over:
        objects.remove(name)
    return Removed(len(doomed), sum(listed.size_bytes for listed in doomed), waiting)


def remove_now(objects: Objects, names: Iterable[str]) -> list[str]:
    """Remove these objects, and all files of builds among them, unless a manifest names them."""
    wanted, found = set(names), list(find_objects(objects))

    def doom(manifest: Manifest, at_work: frozenset[str]) -> Sequence[Listed]:
        gone = wanted - named(manifest)
        return [listed for listed in found if owner(listed.name) in gone]

    doomed = remove_fenced(objects, doom, lambda name: crash_points.point("removed"))
    return [listed.name for listed in doomed]


def retired_names(objects: Objects) -> set[str]:
    """Everything that changes of the manifest left behind and that nobody has removed yet."""
    return {name for _, names in retired_lists(objects) for name in names}


def owner(name: str) -> str:
    """What a manifest names for this object: itself, or the build that it is a file of."""
    return layout.build_of(name) if name.startswith(layout.BUILDS) else name


def find_objects(objects: Objects) -> Iterator[Listed]:
    """The objects that hold records, or are made from them."""
    for folder in (layout.SEGMENTS, layout.COMPANIONS, layout.BUILDS):
        for listed in objects.list(folder):
            if not layout.is_retired(listed.name):
                yield listed


def find_unfinished(place: StoreLocation) -> Iterator[Listed]:
    """Files of the pipeline that did not get their name yet, and may never; buckets have none."""
    if place.objects is not None:
        return
    disk = RealDisk(place.data_dir)
    for folder in (layout.SEGMENTS, layout.COMPANIONS, layout.BUILDS, layout.LEASES, layout.RUNS):
        for file in disk.list(f"{layout.OBJECTS}/{folder}", unfinished=True):
            path = f"{layout.OBJECTS}/{folder}/{file}"
            if layout.is_foreign(f"{folder}/{file}"):
                with suppress(FileNotFoundError):  # finished just now
                    yield Listed(path, disk.size(path), disk.modified_ms(path))


def _sweep(place: StoreLocation, young_ms: int) -> int:
    """Remove files that killed tasks began and nobody will finish."""
    old = [listed for listed in find_unfinished(place) if listed.modified_ms <= young_ms]
    for listed in old:
        RealDisk(place.data_dir).remove(listed.name)
    return len(old)
