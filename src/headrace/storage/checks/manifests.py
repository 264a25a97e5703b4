"""Manifests: each version readable and fitting to the one before; and what none of them names."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import pairwise

from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.formats.manifest import Manifest, Segment, decode_manifest
from headrace.storage.checks.findings import Finding, Note, Problem
from headrace.storage.objects import Objects


def path_of(name: str) -> str:
    """Where an object lies in the data directory."""
    return f"{layout.OBJECTS}/{name}"


def check_manifests(objects: Objects) -> Generator[Finding, None, Manifest | None]:
    """Findings of all versions; returns the newest that can be read."""
    chain: list[Manifest] = []
    for name in objects.list(layout.MANIFESTS):
        try:
            manifest = decode_manifest(objects.get(name), name)
        except Corrupt as damage:
            yield Problem(path_of(name), f"byte {damage.offset}", damage.problem)
            continue
        if layout.manifest(manifest.version) != name:
            yield Problem(path_of(name), "", f"holds version {manifest.version}")
        for what in _order_problems(manifest):
            yield Problem(path_of(name), "", what)
        chain.append(manifest)
    for before, after in pairwise(chain):
        for what in _step_problems(before, after):
            yield Problem(path_of(layout.manifest(after.version)), "", what)
    return chain[-1] if chain else None


def _order_problems(manifest: Manifest) -> Iterator[str]:
    number, position = 0, 0
    for segment in manifest.segments:
        if not number < segment.number < manifest.next_number:
            yield f"segment {segment.number} does not ascend to below {manifest.next_number}"
        if not position <= segment.journal_start < segment.journal_stop:
            start, stop = segment.journal_start, segment.journal_stop
            yield f"segment {segment.number}: journal range {start} to {stop} does not ascend"
        number, position = segment.number, segment.journal_stop
    if position > manifest.sealed_to:
        yield f"sealed to {manifest.sealed_to}, but segment {number} reaches {position}"


def _step_problems(before: Manifest, after: Manifest) -> Iterator[str]:
    if after.version != before.version + 1:
        yield f"follows version {before.version}; those between are missing"
    if after.sealed_to < before.sealed_to or after.next_number < before.next_number:
        yield f"goes back behind version {before.version}"
    known = {segment.number: segment for segment in before.segments}
    for segment in after.segments:
        if segment.number < before.next_number and known.get(segment.number) != segment:
            yield f"segment {segment.number} is not what it was in version {before.version}"


def named_by(segment: Segment) -> list[str]:
    """The objects a segment consists of."""
    return [name for name in (segment.name, segment.index, segment.tags) if name is not None]


def check_orphans(objects: Objects, manifest: Manifest) -> Iterator[Finding]:
    """Objects that a crash left behind: harmless, but they take room."""
    named = {name for segment in manifest.segments for name in named_by(segment)}
    for folder in (layout.SEGMENTS, layout.COMPANIONS):
        for name in objects.list(folder):
            if name not in named:
                yield Note(path_of(name), "", "no manifest names it; left behind by a crash")
