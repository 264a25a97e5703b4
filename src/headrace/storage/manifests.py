"""Publishing manifests: each version is a new object, and the first to write a version wins."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.formats.manifest import Manifest, decode_manifest, encode_manifest
from headrace.storage.objects import Objects

KEEP_VERSIONS = 4

Change = Callable[[Manifest], Manifest | None]


class Conflict(Exception):
    """Somebody else published this version first."""


def load(objects: Objects) -> Manifest:
    """The newest manifest; an empty one in a new store."""
    names = objects.list(layout.MANIFESTS)
    if not names:
        return Manifest()
    manifest = decode_manifest(objects.get(names[-1]), names[-1])
    if layout.manifest(manifest.version) != names[-1]:
        raise Corrupt(names[-1], 0, f"holds version {manifest.version}")
    return manifest


def update(objects: Objects, change: Change) -> Manifest:
    """Publish what `change` makes of the newest manifest; again, should somebody else be first.

    A change sees whatever was published last, so it must not rely on what it saw before. When it
    returns None there is nothing to publish.
    """
    while True:
        newest = load(objects)
        changed = change(newest)
        if changed is None:
            return newest
        version = newest.version + 1
        try:
            publish(objects, msgspec.structs.replace(changed, version=version))
        except Conflict:
            continue
        return msgspec.structs.replace(changed, version=version)


def publish(objects: Objects, manifest: Manifest) -> None:
    """Make this version the current one, durably; then forget versions nobody reads any more."""
    if not objects.put_new(layout.manifest(manifest.version), encode_manifest(manifest)):
        raise Conflict(f"manifest version {manifest.version} exists")
    for name in objects.list(layout.MANIFESTS)[:-KEEP_VERSIONS]:
        objects.remove(name)
