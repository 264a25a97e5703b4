"""The manifest: the versioned list of sealed segments.

Publishing the next version is the only commit point.
"""

from __future__ import annotations

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


class Build(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Index companions of one segment, or of several that were merged."""

    segments: tuple[int, ...]
    level: int = 0
    name: str
    """The object that describes its files."""
    checksum: str
    plans: int
    """The generation of plans it was made by."""
    rows: int
    file_bytes: int


class Named(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An object that the manifest vouches for."""

    name: str
    checksum: str
    generation: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the object store holds, as of one version."""

    format: int = FORMAT
    version: int = 0
    next_number: int = 1
    sealed_to: int = 0
    """The journal is in segments up to this position."""
    segments: tuple[Segment, ...] = ()
    builds: tuple[Build, ...] = ()
    plans: Named | None = None
    """Which logs want companions, and which."""
    marks: Named | None = None
    """What is dead in the segments."""

    def find(self, number: int) -> Segment | None:
        return next((s for s in self.segments if s.number == number), None)


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
