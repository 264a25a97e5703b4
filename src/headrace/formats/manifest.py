"""The manifest: the versioned list of what the object store holds.

It is stored as a small root (JSON) and pages (`formats/manifest_pages`) that roots share: a commit
writes what it changes. In memory it is whole.

Publishing the next version is the only commit point. Server and pipeline both publish, so a change
is a pure function of the manifest it is given: `sealed`, `replaced` and `dropped` below return what
the manifest becomes, or None when there is nothing (more) to change.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TypeVar

import msgspec

from headrace.core.errors import Corrupt
from headrace.core.limits import CHANGED_NUMBERS_MAX, CHANGES_MAX

FORMAT = 2
_FORMATS = (1, FORMAT)
"""The first was one JSON document, without pages."""

T = TypeVar("T")


class SegmentBounds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The least and the greatest log name, seq and time (ms) of rows; None where it is unknown."""

    log_min: str | None = None
    log_max: str | None = None
    seq_min: int | None = None
    seq_max: int | None = None
    ts_min: int | None = None
    ts_max: int | None = None


class Segment(SegmentBounds, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One sealed Parquet file and the journal range it was made from."""

    number: int
    since: int = 0
    """The manifest version that first listed it."""
    name: str
    index: str
    tags: str | None
    journal_start: int
    journal_stop: int
    logs: int
    rows: int
    record_bytes: int
    file_bytes: int
    checksum: str
    """XXH3-64 of the Parquet file, in hex; below, of its companions."""
    index_checksum: str
    tags_checksum: str | None
    sources: tuple[int, ...] = ()
    """The segments whose rows it took over, if it was made from others."""

    @property
    def names(self) -> list[str]:
        """The objects it consists of."""
        return [name for name in (self.name, self.index, self.tags) if name is not None]


class Build(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Index companions of one segment, or of several that were merged."""

    segments: tuple[int, ...]
    level: int = 0
    name: str
    """The object that describes its files."""
    checksum: str
    plans: int
    """The generation of plans it was made by."""
    format: int = 1
    """Which form its files have."""
    rows: int
    file_bytes: int


class Named(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An object that the manifest vouches for."""

    name: str
    checksum: str
    generation: int


class ManifestPage(
    SegmentBounds, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """An object with neighbouring segments, or builds, of the list."""

    name: str
    checksum: str
    count: int
    first: int
    last: int
    """The number of its first and of its last segment."""


class VersionChange(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What a version changed."""

    version: int
    added: tuple[int, ...] = ()
    removed: tuple[int, ...] = ()
    builds: bool = False
    """Whether other builds are listed than before."""


class StoreOwner(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The server that seals into a store."""

    directory: str
    """The id of its data directory: no other may use the store."""
    start: str
    """Drawn at each start: with copies of one data directory, the last one to publish counts."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the object store holds, as of one version."""

    format: int = FORMAT
    version: int = 0
    next_number: int = 1
    sealed_to: int = 0
    """The journal is in segments up to this position."""
    line: tuple[str, ...] = ()
    """The XXH3-64 of the versions before it, the last of them last."""
    token: str = ""
    """Drawn for each attempt to publish: no two are alike, not even if they say the same."""
    segments: tuple[Segment, ...] = ()
    """In the order of the journal: along the list the seqs of each log ascend.

    Numbers need not, once segments were replaced.
    """
    builds: tuple[Build, ...] = ()
    plans: Named | None = None
    """Which logs want companions, and which."""
    marks: Named | None = None
    """What is dead in the segments."""
    owner: StoreOwner | None = None
    """Whose journal is sealed here; nobody's until a server has published."""
    fence: int = 0
    """How often objects were removed that somebody may have been about to publish."""
    spared: tuple[str, ...] = ()
    """Tokens of the jobs that may publish although they began before the last fence."""

    pages: tuple[ManifestPage, ...] = ()
    """Where the first of the segments are, as it was published; the root has the others."""
    build_pages: tuple[ManifestPage, ...] = ()
    changes: tuple[VersionChange, ...] = ()
    """What the last versions changed, up to this one."""

    def find(self, number: int) -> Segment | None:
        return next((s for s in self.segments if s.number == number), None)

    @property
    def numbers(self) -> set[int]:
        return {segment.number for segment in self.segments}

    @property
    def page_names(self) -> set[str]:
        return {page.name for page in (*self.pages, *self.build_pages)}

    def changes_since(self, version: int) -> tuple[VersionChange, ...] | None:
        """What changed since a version, oldest first; None if that is too long ago to be told."""
        wanted = self.version - version
        if not 0 <= wanted <= len(self.changes):
            return None
        return self.changes[len(self.changes) - wanted :]


def sealed(manifest: Manifest, segment: Segment | None, stop: int) -> Manifest | None:
    """The journal up to `stop` is in segments, with this one if there was something in it."""
    if manifest.sealed_to >= stop:
        return None
    number = manifest.next_number
    new = () if segment is None else (_listed(segment, number, manifest),)
    return msgspec.structs.replace(
        manifest,
        next_number=number + len(new),
        sealed_to=stop,
        segments=(*manifest.segments, *new),
    )


def replaced(
    manifest: Manifest, sources: Sequence[int], outputs: Sequence[Segment]
) -> Manifest | None:
    """The rows of these neighbouring segments are in others now; None when one of them is gone.

    The outputs come in order: along them the seqs of each log ascend. They are given their numbers
    here. Rows that are dead may be missing from them; with no outputs all of them were.
    """
    numbers = [segment.number for segment in manifest.segments]
    if not sources or not set(sources) <= set(numbers):
        return None
    places = sorted(map(numbers.index, sources))
    start, stop = places[0], places[-1] + 1
    if stop - start != len(places):
        raise ValueError(
            f"segments {list(sources)} are not neighbours in version {manifest.version}"
        )
    run = manifest.segments[start:stop]
    new = tuple(
        msgspec.structs.replace(
            _listed(output, manifest.next_number + at, manifest),
            journal_start=min(segment.journal_start for segment in run),
            journal_stop=max(segment.journal_stop for segment in run),
            sources=tuple(numbers[start:stop]),
        )
        for at, output in enumerate(outputs)
    )
    segments = (*manifest.segments[:start], *new, *manifest.segments[stop:])
    return _with(manifest, segments, next_number=manifest.next_number + len(new))


def dropped(manifest: Manifest, numbers: Container[int]) -> Manifest | None:
    """Nothing is live in these segments: they go, and builds of nothing else with them."""
    kept = tuple(segment for segment in manifest.segments if segment.number not in numbers)
    if len(kept) == len(manifest.segments):
        return None
    return _with(manifest, kept)


def without_builds(manifest: Manifest, names: Container[str]) -> Manifest | None:
    """These builds are lost: what they covered is to be indexed again."""
    kept = tuple(build for build in manifest.builds if build.name not in names)
    if len(kept) == len(manifest.builds):
        return None
    return msgspec.structs.replace(manifest, builds=kept)


def _listed(segment: Segment, number: int, manifest: Manifest) -> Segment:
    return msgspec.structs.replace(segment, number=number, since=manifest.version + 1)


def _with(manifest: Manifest, segments: tuple[Segment, ...], **more: int) -> Manifest:
    there = {segment.number for segment in segments}
    builds = tuple(build for build in manifest.builds if there.intersection(build.segments))
    return msgspec.structs.replace(manifest, segments=segments, builds=builds, **more)


def difference(before: Sequence[T], after: Sequence[T]) -> tuple[list[T], list[T]]:
    """What is in the first list alone, and what in the second; mostly they begin and end alike."""
    start, most = 0, min(len(before), len(after))
    while start < most and before[start] is after[start]:
        start += 1
    stop, most = 0, most - start
    while stop < most and before[-1 - stop] is after[-1 - stop]:
        stop += 1
    gone, new = before[start : len(before) - stop], after[start : len(after) - stop]
    held, listed = set(map(id, gone)), set(map(id, new))
    return [one for one in gone if id(one) not in listed], [
        one for one in new if id(one) not in held
    ]


def with_change(before: Manifest, after: Manifest) -> Manifest:
    """The manifest that is published behind another, with the log of changes."""
    gone, new = difference(before.segments, after.segments)
    removed = {segment.number for segment in gone}
    added = {segment.number for segment in new}
    change = VersionChange(
        version=after.version,
        added=tuple(sorted(added - removed)),
        removed=tuple(sorted(removed - added)),
        builds=before.builds != after.builds,
    )
    told, numbers = list[VersionChange](), 0
    for one in (change, *reversed(before.changes)):
        numbers += len(one.added) + len(one.removed)
        if numbers > CHANGED_NUMBERS_MAX or len(told) == CHANGES_MAX:
            break
        told.append(one)
    return msgspec.structs.replace(after, changes=tuple(reversed(told)))


def encode_root(manifest: Manifest) -> bytes:
    """The root of a manifest: all but what its pages hold."""
    paged, paged_builds = (
        sum(page.count for page in pages) for pages in (manifest.pages, manifest.build_pages)
    )
    root = msgspec.structs.replace(
        manifest, segments=manifest.segments[paged:], builds=manifest.builds[paged_builds:]
    )
    return msgspec.json.encode(root) + b"\n"


def decode_root(raw: bytes, where: str) -> Manifest:
    """A manifest without what its pages hold."""
    try:
        root = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(where, 0, f"not a manifest: {error}") from None
    if root.format not in _FORMATS:
        raise Corrupt(where, 0, f"format {root.format} is not one this version reads")
    return msgspec.structs.replace(root, format=FORMAT)
