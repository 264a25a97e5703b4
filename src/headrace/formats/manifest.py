"""The manifest: the versioned list of what the object store holds.

Publishing the next version is the only commit point. Server and pipeline both publish, so a change
is a pure function of the manifest it is given: `sealed`, `replaced` and `dropped` below return what
the manifest becomes, or None when there is nothing (more) to change.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import msgspec

from headrace.core.errors import Corrupt

FORMAT = 1


class Segment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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

    def find(self, number: int) -> Segment | None:
        return next((s for s in self.segments if s.number == number), None)

    @property
    def numbers(self) -> set[int]:
        return {segment.number for segment in self.segments}


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


def encode_manifest(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def decode_manifest(raw: bytes, where: str) -> Manifest:
    try:
        manifest = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(where, 0, f"not a manifest: {error}") from None
    if manifest.format != FORMAT:
        raise Corrupt(where, 0, f"format {manifest.format} is not one this version reads")
    return manifest
