"""Publishing what jobs made: every change of the manifest that the pipeline makes.

What a change adds was made under a lease (`storage/leases`): it is published only while that holds,
and only if every object is there.
Before that, it is written down what the change retires.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from threading import RLock

import msgspec

from headrace.formats import layout
from headrace.formats.companion import decode_descriptor
from headrace.formats.manifest import (
    Build,
    Manifest,
    Segment,
    difference,
    dropped,
    replaced,
    without_builds,
)
from headrace.pipeline import crash_points
from headrace.pipeline.errors import Overtaken, Unpublished
from headrace.pipeline.limits import DEAD_SHARE_MAX, MERGE
from headrace.storage import manifests
from headrace.storage.leases import Fenced, HeldLease
from headrace.storage.objects import Objects
from headrace.storage.retired_objects import retire


class Published(msgspec.Struct, frozen=True):
    """A change that is made."""

    manifest: Manifest
    gone: frozenset[str]
    """The objects that it retired."""
    replaced: frozenset[int] = frozenset()
    """The segments whose rows are in others now."""


Replacement = tuple[Sequence[Segment], Sequence[Segment]]
"""Neighbours, and the segments that take their place."""


def replace_segments(
    objects: Objects, replacements: Sequence[Replacement], lease: HeldLease
) -> Published:
    """The outputs of each take the place of its sources, with one commit; but not where a source is
    gone already. `Overtaken` when that is so for all of them.

    Every build that has seen a row of the sources goes: the same rows are indexed again where they
    are now.
    """
    done: list[int] = []

    def change(manifest: Manifest) -> Manifest:
        done.clear()
        for sources, outputs in replacements:
            numbers = [segment.number for segment in sources]
            changed = replaced(manifest, numbers, outputs)
            if changed is not None:
                manifest = changed
                done.extend(numbers)
        if not done:
            raise Overtaken("of all segments one is gone")
        return without_dead_builds(manifest, done)

    published = publish(objects, change, lease)
    return msgspec.structs.replace(published, replaced=frozenset(done))


def drop_segments(objects: Objects, sources: Iterable[Segment]) -> Published:
    """Segments in which nothing is live go, and with them builds that are mostly of such ones."""
    numbers = {segment.number for segment in sources}

    def change(manifest: Manifest) -> Manifest | None:
        changed = without_dead_builds(dropped(manifest, numbers) or manifest)
        return None if changed == manifest else changed

    return publish(objects, change)


def drop_builds(objects: Objects, names: Collection[str]) -> Published:
    """Builds of which something is missing go; what they covered is indexed again."""
    return publish(objects, lambda manifest: without_builds(manifest, names))


def add_builds(objects: Objects, builds: Sequence[Build], lease: HeldLease) -> Published:
    """List builds in place of those that their segments had: a segment is in one build at a time.

    Left out are builds of segments that are gone, and of segments that somebody else has indexed
    meanwhile, by the same plans and in the same format or by newer ones.
    """

    def change(manifest: Manifest) -> Manifest | None:
        there = manifest.numbers
        new = [
            build
            for build in builds
            if there.issuperset(build.segments)
            and not any(_outranks(held, build) for held in manifest.builds)
        ]
        covered = {number for build in new for number in build.segments}
        # A merged build goes when all that is left of it is indexed anew, and not before.
        kept = [
            b for b in manifest.builds if not covered.issuperset(there.intersection(b.segments))
        ]
        spoken_for = {number for build in kept for number in build.segments}
        new = [build for build in new if spoken_for.isdisjoint(build.segments)]
        held = tuple(sorted([*kept, *new], key=lambda build: build.segments))
        return None if held == manifest.builds else _with_builds(manifest, held)

    return publish(objects, change, lease)


def _outranks(held: Build, build: Build) -> bool:
    """Whether a build that is listed makes another one superfluous."""
    if set(held.segments).isdisjoint(build.segments):
        return False
    ours, theirs = (build.plans, build.format), (held.plans, held.format)
    return theirs > ours or (theirs == ours and held.level >= build.level)


def without_dead_builds(manifest: Manifest, forget: Collection[int] = ()) -> Manifest:
    """The manifest without builds that saw one of these segments, or are mostly of gone ones."""
    there, forgotten = manifest.numbers, set(forget)

    def keeps(build: Build) -> bool:
        live = len(there.intersection(build.segments))
        return (
            forgotten.isdisjoint(build.segments)
            and live > 0
            and (live >= (1 - DEAD_SHARE_MAX) * MERGE**build.level)
        )

    return _with_builds(manifest, filter(keeps, manifest.builds))


def _with_builds(manifest: Manifest, builds: Iterable[Build]) -> Manifest:
    return msgspec.structs.replace(manifest, builds=tuple(builds))


_turn = RLock()
"""Groups of one job are done at the same time: they publish one after the other, not over and over
because another one was first.
"""


def publish(
    objects: Objects, change: manifests.Change, lease: HeldLease | None = None
) -> Published:
    """Publish a change, having written down which objects it retires.

    What it adds was made by `lease`; without one it adds nothing.
    """
    gone: frozenset[str] = frozenset()

    def listing(manifest: Manifest) -> Manifest | None:
        nonlocal gone
        changed = change(manifest)
        if changed is None:
            gone = frozenset()
            return None
        before, after = _names_apart(manifest, changed)
        gone = frozenset(before - after)
        crash_points.point("before-retire")
        retire(objects, gone)
        crash_points.point("before-check")
        _require_there(objects, after - before, manifest, lease)
        # From here on nothing can go: a fence would be another version, and we would look again.
        crash_points.point("before-publish")
        return changed

    try:
        with _turn:
            manifest = manifests.update(objects, listing)
    except Fenced as fenced:
        raise Unpublished(str(fenced)) from None
    crash_points.point("published")
    return Published(manifest, gone)


def require_held(objects: Objects, lease: HeldLease) -> None:
    """`Unpublished` when the job was taken for dead, and may not publish any more."""
    try:
        lease.require(manifests.load(objects))
    except Fenced as fenced:
        raise Unpublished(str(fenced)) from None


def _require_there(
    objects: Objects, names: Collection[str], manifest: Manifest, lease: HeldLease | None
) -> None:
    """`Fenced` or `Unpublished` unless these objects are there and stay there."""
    if not names:
        return
    assert lease is not None
    assert all(layout.job_of(name) == lease.token for name in names)
    lease.require(manifest)
    for name in sorted(names):
        try:
            for part in _parts(objects, name):
                if objects.look(part) is None:
                    raise FileNotFoundError(part)
        except FileNotFoundError as missing:
            raise Unpublished(
                f"{missing} is gone before it was published, and not by our janitor: nothing was "
                "published, run the job again"
            ) from None


def _parts(objects: Objects, name: str) -> Iterable[str]:
    """The objects that one which a manifest names stands for."""
    if not name.startswith(f"{layout.BUILDS}/"):
        return (name,)
    return (file.name for file in decode_descriptor(objects.get(name), name).files)


def named(manifest: Manifest) -> set[str]:
    """The objects a manifest names; files of a build go by the name of the one that lists them."""
    return _names(manifest.segments, manifest.builds)


def _names_apart(before: Manifest, after: Manifest) -> tuple[set[str], set[str]]:
    """What one manifest names, and what the other, without what both list alike."""
    segments = difference(before.segments, after.segments)
    builds = difference(before.builds, after.builds)
    return _names(segments[0], builds[0]), _names(segments[1], builds[1])


def _names(segments: Iterable[Segment], builds: Iterable[Build]) -> set[str]:
    names = {name for segment in segments for name in segment.names}
    return names | {build.name for build in builds}
