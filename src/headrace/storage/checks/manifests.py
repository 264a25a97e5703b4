"""Manifests: each version readable and fitting to the one before; and what none of them names."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from itertools import pairwise
from typing import TypeVar

from xxhash import xxh3_64_hexdigest

from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.formats.companion import decode_descriptor
from headrace.formats.index_plans import decode_plans
from headrace.formats.manifest import Manifest, decode_root
from headrace.formats.manifest_pages import PageCache, assemble
from headrace.formats.marks import decode_marks
from headrace.storage import manifests
from headrace.storage.checks.findings import Finding, Note, Problem, byte
from headrace.storage.objects import Objects

T = TypeVar("T")


def path_of(name: str) -> str:
    """Where an object lies in the data directory."""
    return f"{layout.OBJECTS}/{name}"


def check_manifests(objects: Objects) -> Generator[Finding, None, Manifest | None]:
    """Findings of all versions; returns the newest that can be read."""
    chain: list[Manifest | None] = []
    pages = PageCache()  # of our own: what the process read before may be damaged since
    for listed in objects.list(layout.MANIFESTS):
        name = listed.name
        try:
            root = decode_root(objects.get(name), name)
            manifest = assemble(root, lambda page: _get_page(objects, page), pages)
        except Corrupt as damage:
            yield Problem(path_of(damage.where), f"byte {damage.offset}", damage.problem)
            chain.append(None)
            continue
        if layout.manifest(manifest.version) != name:
            yield Problem(path_of(name), "", f"holds version {manifest.version}")
        for what in _order_problems(manifest):
            yield Problem(path_of(name), "", what)
        chain.append(manifest)
    for before, after in pairwise(chain):
        if before is not None and after is not None:
            for what in _step_problems(before, after):
                yield Problem(path_of(layout.manifest(after.version)), "", what)
    return next((manifest for manifest in reversed(chain) if manifest is not None), None)


def _get_page(objects: Objects, name: str) -> bytes:
    try:
        return objects.get(name)
    except FileNotFoundError:
        raise Corrupt(name, 0, "the manifest names it, and it is missing") from None


def _order_problems(manifest: Manifest) -> Iterator[str]:
    known: set[int] = set()
    start, stop = 0, 0
    for segment in manifest.segments:
        number = segment.number
        if number in known or not 0 < number < manifest.next_number:
            yield f"segment {number} is listed twice or not below {manifest.next_number}"
        if any(source >= number for source in segment.sources):
            yield f"segment {number} is older than those it was made from"
        low, high = segment.journal_start, segment.journal_stop
        # What was replaced overlaps: several segments were made from the same ones.
        if not (start if segment.sources else stop) <= low < high or high < stop:
            yield f"segment {number}: journal range {low} to {high} does not ascend"
        known.add(number)
        start, stop = low, max(stop, high)
    if stop > manifest.sealed_to:
        yield f"sealed to {manifest.sealed_to}, but the last segment reaches {stop}"
    for build in manifest.builds:
        if not known.intersection(build.segments):
            yield f"{build.name} is of segments that are gone"


def _step_problems(before: Manifest, after: Manifest) -> Iterator[str]:
    if after.version != before.version + 1:
        yield f"follows version {before.version}; those between are missing"
    if after.sealed_to < before.sealed_to or after.next_number < before.next_number:
        yield f"goes back behind version {before.version}"
    known = {segment.number: segment for segment in before.segments}
    for segment in after.segments:
        if segment.number < before.next_number and known.get(segment.number) != segment:
            yield f"segment {segment.number} is not what it was in version {before.version}"


def check_orphans(objects: Objects, manifest: Manifest) -> Iterator[Finding]:
    """Objects that nobody names: harmless, but they take room."""
    named = {name for segment in manifest.segments for name in segment.names}
    replaced = {number for segment in manifest.segments for number in segment.sources}
    pages = manifests.kept_pages(objects)
    for folder in (layout.SEGMENTS, layout.COMPANIONS):
        for listed in objects.list(folder):
            if listed.name in named:
                continue
            if layout.is_foreign(listed.name) or replaced:
                what = "no manifest names it; left for `headrace pipeline janitor`"
            else:
                what = "no manifest names it; left behind by a crash"
            yield Note(path_of(listed.name), "", what)
    for listed in objects.list(layout.PAGES):
        if listed.name not in pages:
            what = "no manifest names it; left for `headrace pipeline janitor`"
            yield Note(path_of(listed.name), "", what)


def check_named(objects: Objects, manifest: Manifest) -> Iterator[Finding]:
    """Plans, marks and builds: there, and what they were when they were published."""
    if manifest.plans is not None:
        yield from check_content(
            objects, manifest.plans.name, manifest.plans.checksum, decode_plans
        )
    if manifest.marks is not None:
        yield from check_content(
            objects, manifest.marks.name, manifest.marks.checksum, decode_marks
        )
    for build in manifest.builds:
        described = yield from check_content(objects, build.name, build.checksum, decode_descriptor)
        for file in described.files if described is not None else ():
            yield from check_content(objects, file.name, file.checksum, lambda raw, name: None)


def check_content(
    objects: Objects, name: str, checksum: str, read: Callable[[bytes, str], T]
) -> Generator[Finding, None, T | None]:
    """Returns what was read, if it is what was published."""
    try:
        raw = objects.get(name)
        if xxh3_64_hexdigest(raw) == checksum:
            return read(raw, name)
        yield Problem(path_of(name), "", "checksum mismatch: the bytes are not what they were")
    except FileNotFoundError:
        yield Problem(path_of(name), "", "the manifest names it, and it is missing")
    except Corrupt as damage:
        yield Problem(path_of(name), byte(damage.offset), damage.problem)
    return None
