"""Publishing manifests: each version is a new object, and the first to write a version wins.

Pages are written before the root that names them. Those that nobody publishes, and those that no
root names any more, are the janitor's.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from secrets import token_hex

import msgspec
from xxhash import xxh3_64_hexdigest

from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.formats.manifest import Manifest, decode_root, encode_root, with_change
from headrace.formats.manifest_pages import assemble, paginate
from headrace.storage.objects import Objects
from headrace.storage.replaced_objects import gone_is_vanished
from headrace.storage.retired_objects import retire

KEEP_VERSIONS = 4
LINE_MAX = 64
"""Of how many versions before it a manifest knows what they were."""
_TOKEN_BYTES = 6

Change = Callable[[Manifest], Manifest | None]


class Conflict(Exception):
    """Somebody else published this version first."""


def load(objects: Objects) -> Manifest:
    """The newest manifest; an empty one in a new store."""
    return load_newer(objects, 0) or Manifest()


def load_newer(objects: Objects, version: int) -> Manifest | None:
    """The newest manifest, unless it is this version or there is none."""
    root = _newer_root(objects, version)
    while root is not None:
        try:
            return assemble(root, objects.get)
        except FileNotFoundError:
            newer = _newer_root(objects, root.version)
            if newer is None:
                _require_pages(objects, root)
                continue
            root = newer
    return None


def _require_pages(objects: Objects, root: Manifest) -> None:
    """`Vanished` unless all pages of a manifest are there."""
    for name in sorted(root.page_names):
        with gone_is_vanished(name):
            objects.get(name)


def _newer_root(objects: Objects, version: int) -> Manifest | None:
    while True:
        names = [listed.name for listed in objects.list(layout.MANIFESTS)]
        if not names or names[-1] <= layout.manifest(version):
            return _successor(objects, version)
        try:
            root = _load_root(objects, names[-1])
        except FileNotFoundError:
            # Others published so many since we looked that this one was forgotten.
            if objects.list(layout.MANIFESTS)[-1].name == names[-1]:
                raise
            continue
        return _successor(objects, root.version) or root


def _successor(objects: Objects, version: int) -> Manifest | None:
    """The newest of the versions right behind this one: a list may be late to show them."""
    newest = None
    while True:
        version += 1
        try:
            newest = _load_root(objects, layout.manifest(version))
        except FileNotFoundError:
            return newest


def _load_root(objects: Objects, name: str) -> Manifest:
    root = decode_root(objects.get(name), name)
    if layout.manifest(root.version) != name:
        raise Corrupt(name, 0, f"holds version {root.version}")
    return root


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
        line = (*newest.line, _hash(newest))[-LINE_MAX:]
        next_one = msgspec.structs.replace(
            changed, version=newest.version + 1, line=line, token=token_hex(_TOKEN_BYTES)
        )
        next_one = _put_pages(objects, newest, next_one)
        with suppress(Conflict):
            publish(objects, next_one)
        if _is_in_line(objects, next_one):
            return next_one


def _is_in_line(objects: Objects, published: Manifest) -> bool:
    """Whether what we published is what others build upon.

    It is not if somebody else was first, nor if they published so many versions while we made ours
    that the one of our number was forgotten already: then its name was free again, and nobody will
    ever look at it. It may be although we were told that the name is taken: by us, when the answer
    to that was lost.
    """
    newest = _newer_root(objects, 0) or Manifest()
    ahead = newest.version - published.version
    if ahead == 0:
        return newest.token == published.token
    return 0 < ahead <= len(newest.line) and newest.line[-ahead] == _hash(published)


def _hash(manifest: Manifest) -> str:
    return xxh3_64_hexdigest(encode_root(manifest))


def _put_pages(objects: Objects, before: Manifest, after: Manifest) -> Manifest:
    """Store the pages that a version does not share with the one before; the root can be put."""
    paged, pages = paginate(before, with_change(before, after), lambda: token_hex(_TOKEN_BYTES))
    for name, content in pages.items():
        objects.put_new(name, content)
    retire(objects, before.page_names - paged.page_names)
    return paged


def publish(objects: Objects, manifest: Manifest) -> None:
    """Make this version the current one, durably; then forget versions nobody reads any more."""
    if not objects.put_new(layout.manifest(manifest.version), encode_root(manifest)):
        raise Conflict(f"manifest version {manifest.version} exists")
    for listed in objects.list(layout.MANIFESTS)[:-KEEP_VERSIONS]:
        objects.remove(listed.name)


def kept_pages(objects: Objects) -> set[str]:
    """The pages of all versions that are still kept and can be read."""
    found: set[str] = set()
    for listed in objects.list(layout.MANIFESTS):
        with suppress(FileNotFoundError, Corrupt):
            found |= decode_root(objects.get(listed.name), listed.name).page_names
    return found


def named(objects: Objects) -> set[str]:
    """The objects of all segments that one of the versions names which are still kept."""
    while True:
        roots = _kept_roots(objects)
        try:
            kept = [assemble(root, objects.get) for root in roots]
        except FileNotFoundError:
            if _kept_roots(objects) == roots:
                for root in roots:
                    _require_pages(objects, root)
            continue
        return {name for one in kept for segment in one.segments for name in segment.names}


def _kept_roots(objects: Objects) -> list[Manifest]:
    while True:
        try:
            return [
                decode_root(objects.get(listed.name), listed.name)
                for listed in objects.list(layout.MANIFESTS)
            ]
        except FileNotFoundError:
            continue  # forgotten since: there are newer ones, which may name more
