"""Versions of a manifest as rows: what each changed, and the trees that rows come to.

A row says which files a version added, modified and removed. A tree is what a row and those before
it come to; now and then a row names a whole tree that is stored as a content, so that no tree needs
more than a few rows. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Literal

import msgspec

from headrace.core.limits import TREE_ROWS_MAX
from headrace.search.values import format_date

Paths = dict[str, bytes]
"""Path → SHA-256 of the file's content."""


class ChangedFile(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a version did to one file."""

    path: str
    op: Literal["added", "modified", "removed"]
    sha256: str | None = None
    """Of the content it has from here on; nothing when it was removed."""
    previous_sha256: str | None = None
    """Of the content it had until then; nothing when it was added."""


class VersionSummary(msgspec.Struct, frozen=True):
    """What is said of a version beside its files."""

    uploaded_by: str
    closure_hash: str
    flag_count: int
    segment_count: int


class VersionHead(msgspec.Struct, frozen=True, omit_defaults=True):
    """A row without its files, as lists of versions need it."""

    version: int
    uploaded_at: str
    uploaded_by: str
    closure_hash: str
    flag_count: int
    segment_count: int


class VersionRow(VersionHead, frozen=True, omit_defaults=True):
    """One version, as it is stored in the log of its namespace."""

    files: tuple[ChangedFile, ...]
    """By path, ascending."""
    base: int
    """The version whose tree this one's begins with: its own, where that is stored whole."""
    tree: str | None = None
    """The content that is the whole tree of this version, if it is stored."""


class Tree(msgspec.Struct, frozen=True):
    """Which files there are at a version, and how that was found."""

    version: int
    paths: Paths
    base: int
    changes: int
    """Files that rows behind the base changed."""


EMPTY = Tree(0, {}, 0, 0)
"""Before the first version."""

_encoder = msgspec.json.Encoder()
_row = msgspec.json.Decoder(VersionRow)
_head = msgspec.json.Decoder(VersionHead)
_paths = msgspec.json.Decoder(dict[str, str])


def encode_row(row: VersionRow) -> bytes:
    return _encoder.encode(row)


def decode_row(data: bytes) -> VersionRow:
    return _row.decode(data)


def decode_head(data: bytes) -> VersionHead:
    """The row without its files, which may be many."""
    return _head.decode(data)


def encode_paths(paths: Mapping[str, bytes]) -> bytes:
    """A whole tree as a content: equal trees are equal bytes."""
    return _encoder.encode({path: paths[path].hex() for path in sorted(paths)})


def decode_paths(data: bytes) -> Paths:
    return {path: bytes.fromhex(digest) for path, digest in _paths.decode(data).items()}


def compare(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> Iterator[ChangedFile]:
    """What became of the files from one tree to another, by path."""
    changed = [path for path, digest in new.items() if old.get(path) != digest]
    changed += old.keys() - new.keys()
    for path in sorted(changed):
        before, after = old.get(path), new.get(path)
        if after is None:
            assert before is not None
            yield ChangedFile(path, "removed", previous_sha256=before.hex())
        elif before is None:
            yield ChangedFile(path, "added", after.hex())
        else:
            yield ChangedFile(path, "modified", after.hex(), before.hex())


class NextVersion(msgspec.Struct, frozen=True):
    """A version that is about to be stored."""

    row: VersionRow
    tree: Tree
    taken: list[bytes]
    """The contents that it names and the version before does not, once for each file."""
    stored: dict[bytes, bytes]
    """Contents that come with the row itself: its whole tree, if that is stored."""


def next_version(
    before: Tree, paths: Mapping[str, bytes], about: VersionSummary, at_ms: int
) -> NextVersion:
    """The version behind a tree, with these files."""
    version = before.version + 1
    files = tuple(compare(before.paths, paths))
    taken = [bytes.fromhex(file.sha256) for file in files if file.sha256 is not None]
    base, changes = before.base or version, before.changes + len(files)
    stored: dict[bytes, bytes] = {}
    tree = None
    if version == 1:
        changes = 0  # the row is the tree
    elif version - base >= TREE_ROWS_MAX or changes >= len(paths):
        base, changes, content = version, 0, encode_paths(paths)
        digest = sha256(content).digest()
        tree, stored[digest] = digest.hex(), content
        taken.append(digest)
    row = VersionRow(
        version,
        format_date(at_ms),
        about.uploaded_by,
        about.closure_hash,
        about.flag_count,
        about.segment_count,
        files,
        base,
        tree,
    )
    return NextVersion(row, Tree(version, dict(paths), base, changes), taken, stored)


def follow(before: Tree, rows: Iterable[VersionRow]) -> Tree:
    """The tree that the rows behind it come to; each must be the next."""
    version, paths, base, changes = before.version, dict(before.paths), before.base, before.changes
    for row in rows:
        assert row.version == version + 1, f"row {row.version} behind {version}"
        for file in row.files:
            if file.sha256 is None:
                del paths[file.path]
            else:
                paths[file.path] = bytes.fromhex(file.sha256)
        version = row.version
        base, changes = (version, 0) if row.base == version else (base, changes + len(row.files))
    return Tree(version, paths, base, changes)


def ended(row: VersionRow) -> Iterator[bytes]:
    """The contents that versions before this one named and it does not, once for each file."""
    for file in row.files:
        if file.previous_sha256 is not None:
            yield bytes.fromhex(file.previous_sha256)


def brought(row: VersionRow) -> Iterator[bytes]:
    """The contents that this version names and the one before did not, once for each file."""
    for file in row.files:
        if file.sha256 is not None:
            yield bytes.fromhex(file.sha256)
    if row.tree is not None:
        yield bytes.fromhex(row.tree)
