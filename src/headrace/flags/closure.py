"""Closures: the files that some flags of a manifest need, and the hash of them.

Of a manifest without errors, every closure is again a manifest without errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from struct import Struct

import msgspec

from headrace.flags.model import ParsedFile
from headrace.flags.subscription import FlagSet
from headrace.flags.tree import (
    NAMESPACE_PATH,
    FileKind,
    flag_path,
    key_of,
    kind_of,
    path_bytes,
    segment_path,
)

_LENGTH = Struct(">I")


class SegmentGraph(msgspec.Struct, frozen=True):
    """Which segments the flags and the segments of a manifest name."""

    flags: dict[str, tuple[str, ...]]
    segments: dict[str, tuple[str, ...]]

    @classmethod
    def of(cls, parsed: Mapping[str, ParsedFile]) -> SegmentGraph:
        """Of the files of one manifest, by path."""
        flags: dict[str, tuple[str, ...]] = {}
        segments: dict[str, tuple[str, ...]] = {}
        for path, file in parsed.items():
            match kind_of(path):
                case FileKind.FLAG:
                    flags[key_of(path)] = file.segments_used
                case FileKind.SEGMENT:
                    segments[key_of(path)] = file.segments_used
        return cls(flags, segments)

    def reachable(self, flags: Iterable[str]) -> set[str]:
        """Segments that there are and that these flags name, or segments that they name do."""
        found: set[str] = set()
        ahead = [segment for flag in flags for segment in self.flags.get(flag, ())]
        while ahead:
            segment = ahead.pop()
            if segment not in found and segment in self.segments:
                found.add(segment)
                ahead.extend(self.segments[segment])
        return found

    def depending(self, segments: Iterable[str]) -> set[str]:
        """Flags that need one of these segments, by whatever way, in one walk for all of them."""
        flags_of, segments_of = _turned(self.flags), _turned(self.segments)
        found: set[str] = set()
        ahead = list(segments)
        while ahead:
            segment = ahead.pop()
            if segment not in found:
                found.add(segment)
                ahead.extend(segments_of.get(segment, ()))
        return {flag for segment in found for flag in flags_of.get(segment, ())}


def _turned(references: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    """Who names each, of what each names."""
    turned: dict[str, list[str]] = {}
    for name, used in references.items():
        for each in used:
            turned.setdefault(each, []).append(name)
    return turned


def closure_paths(graph: SegmentGraph, has_namespace_file: bool, flags: FlagSet) -> list[str]:
    """The files that these flags need, sorted by the bytes of their paths.

    Flags that do not exist need nothing. All flags bring all segments, even those that none names.
    """
    if flags.keys is None:
        named: Iterable[str] = graph.flags
        reached: Iterable[str] = graph.segments
    else:
        named = [key for key in flags.keys if key in graph.flags]
        reached = graph.reachable(named)
    paths = [*map(flag_path, named), *map(segment_path, reached)]
    if has_namespace_file:
        paths.append(NAMESPACE_PATH)
    return sorted(paths, key=path_bytes)


def hash_row(path: str, digest: bytes) -> bytes:
    """What one file adds to the hash of a closure; `digest` is the SHA-256 of its bytes."""
    raw = path_bytes(path)
    return b"".join((_LENGTH.pack(len(raw)), raw, digest))


def closure_hash(rows: Iterable[bytes]) -> str:
    """The hash of a closure, of the rows of its files sorted by the bytes of their paths."""
    return f"sha256:{sha256(b''.join(rows)).hexdigest()}"


def hash_digests(digests: Mapping[str, bytes]) -> str:
    """The hash of a closure, of the digests of its files by path."""
    return closure_hash(hash_row(path, digests[path]) for path in sorted(digests, key=path_bytes))


def hash_files(files: Mapping[str, bytes]) -> str:
    """The hash of a closure, of the contents of its files by path."""
    return hash_digests({path: sha256(content).digest() for path, content in files.items()})
