"""Deltas: what became of the files of a closure from one version to the next, and how that is
applied.

Who applies one makes three checks: that it begins with the hash of the closure that is held; here,
that each file is what its digest says; and that the hash of what comes out is the one announced.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Container, Mapping, Sequence
from hashlib import sha256
from typing import Literal

import msgspec

from headrace.core.limits import MANIFEST_FILE_BYTES_MAX, MANIFEST_FILES_MAX
from headrace.flags.tree import is_kept, path_bytes

ChangeOp = Literal["added", "modified", "removed", "enter", "leave"]

_B64_CHARS_MAX = MANIFEST_FILE_BYTES_MAX * 4 // 3 + 4


class Closure(msgspec.Struct, frozen=True):
    """The files of one subscription at one version."""

    version: int
    digests: Mapping[str, bytes]
    """SHA-256 of each file by path."""
    hash: str


class FileChange(msgspec.Struct, frozen=True):
    """What became of one file."""

    path: str
    op: ChangeOp
    digest: bytes | None = None
    """SHA-256 of what it is now; None: it is not in the closure any more."""


class DeltaEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of one file as it is sent."""

    path: str
    op: str
    sha256: str | None = None
    content_b64: str | None = None


class Unverified(Exception):
    """A delta that is not what it says, or does not fit what it is to be applied to."""


def diff(
    old: Closure, new: Closure, old_paths: Container[str], new_paths: Container[str]
) -> list[FileChange]:
    """How one closure becomes another, sorted by the bytes of paths; empty if they are the same.

    `old_paths` and `new_paths` are all files of the namespace at both versions: they tell files
    that came and went from those that the subscription began or ceased to reach.
    """
    changes = []
    for path, digest in new.digests.items():
        before = old.digests.get(path)
        if before is None:
            changes.append(FileChange(path, "enter" if path in old_paths else "added", digest))
        elif before != digest:
            changes.append(FileChange(path, "modified", digest))
    for path in old.digests:
        if path not in new.digests:
            changes.append(FileChange(path, "leave" if path in new_paths else "removed"))
    return sorted(changes, key=lambda change: path_bytes(change.path))


def apply_delta(files: Mapping[str, bytes], entries: Sequence[DeltaEntry]) -> dict[str, bytes]:
    """The files after these changes, each checked by itself; the given ones are not changed.

    Files that stay are the same objects.
    """
    if not entries:
        raise Unverified("the delta changes nothing")
    applied = dict(files)
    seen: set[str] = set()
    for entry in entries:
        if entry.path in seen:
            raise Unverified(f"{_shown(entry.path)} is changed twice")
        seen.add(entry.path)
        _apply(applied, entry)
        if len(applied) > MANIFEST_FILES_MAX:
            raise Unverified(f"there are more than {MANIFEST_FILES_MAX} files")
    return applied


def _apply(files: dict[str, bytes], entry: DeltaEntry) -> None:
    there = entry.path in files
    match entry.op:
        case "added" | "enter" if not there:
            files[entry.path] = _verified(entry)
        case "modified" if there:
            files[entry.path] = _verified(entry)
        case "removed" | "leave" if there:
            if entry.sha256 is not None or entry.content_b64 is not None:
                raise Unverified(f"{_shown(entry.path)} goes, and has a content")
            del files[entry.path]
        case "added" | "enter":
            raise Unverified(f"{_shown(entry.path)} comes, and is there already")
        case "modified" | "removed" | "leave":
            raise Unverified(f"{_shown(entry.path)} changes, and is not there")
        case _:
            raise Unverified(f"{_shown(entry.path)} has an op that is not known")


def _verified(entry: DeltaEntry) -> bytes:
    """The content of a file that is what its digest says."""
    if not is_kept(entry.path):
        raise Unverified(f"{_shown(entry.path)} is no file of a manifest")
    if entry.sha256 is None or entry.content_b64 is None:
        raise Unverified(f"{_shown(entry.path)} comes without its content or digest")
    if len(entry.content_b64) > _B64_CHARS_MAX:
        raise Unverified(f"{_shown(entry.path)} is too large")
    try:
        content = a2b_base64(entry.content_b64.encode("ascii"), strict_mode=True)
    except ValueError:
        raise Unverified(f"{_shown(entry.path)} is not in base64") from None
    if sha256(content).hexdigest() != entry.sha256:
        raise Unverified(f"{_shown(entry.path)} is not what its digest says")
    return content


def _shown(path: str) -> str:
    return ascii(path[:100])
