"""Publishing manifests: each version is a new object, and the first to write a version wins."""

from __future__ import annotations

from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.formats.manifest import Manifest, decode_manifest, encode_manifest
from headrace.storage.objects import Objects

KEEP_VERSIONS = 4


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


def publish(objects: Objects, manifest: Manifest) -> None:
    """Make this version the current one, durably; then forget versions nobody reads any more."""
    if not objects.put_new(layout.manifest(manifest.version), encode_manifest(manifest)):
        raise Conflict(f"manifest version {manifest.version} exists")
    for name in objects.list(layout.MANIFESTS)[:-KEEP_VERSIONS]:
        objects.remove(name)
