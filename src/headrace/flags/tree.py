"""Paths of a manifest: which files belong to it, of which kind they are, and whose they are.

A manifest is `namespace.toml` and what lies directly in `flags/` and `segments/`. Whatever else a
directory holds is no part of it: hidden files, files that are not TOML, directories below those
two, other files beside them.
"""

from __future__ import annotations

from enum import Enum

_SUFFIX = ".toml"


class FileKind(Enum):
    """What a file of a manifest defines, with the beginning of its path."""

    NAMESPACE = ""
    FLAG = "flags/"
    SEGMENT = "segments/"


NAMESPACE_PATH = "namespace.toml"


def kind_of(path: str) -> FileKind | None:
    """Of which kind a file is; None if it is no part of a manifest."""
    if path == NAMESPACE_PATH:
        return FileKind.NAMESPACE
    folder, slash, name = path.partition("/")
    if name.startswith(".") or "/" in name or not name.endswith(_SUFFIX):
        return None
    match folder + slash:
        case FileKind.FLAG.value:
            return FileKind.FLAG
        case FileKind.SEGMENT.value:
            return FileKind.SEGMENT
        case _:
            return None


def is_kept(path: str) -> bool:
    """Whether a file is part of a manifest."""
    return kind_of(path) is not None


def is_misplaced(path: str) -> bool:
    """Whether a file would be part of a manifest if it lay elsewhere, or was called otherwise."""
    return not (is_kept(path) or path.startswith(".") or "/." in path) and path.endswith(_SUFFIX)


def wrapper_of(path: str) -> str:
    """The directory below which a file would be part of a manifest; empty if there is none."""
    parts = path.split("/")
    for depth in (2, 1):
        if len(parts) > depth and is_kept("/".join(parts[-depth:])):
            return "/".join(parts[:-depth])
    return ""


def key_of(path: str) -> str:
    """The key of the flag or segment whose file this is; of other files, the name without `.toml`.

    The file may have a name that is no key: lint says so.
    """
    return path.rpartition("/")[2].removesuffix(_SUFFIX)


def flag_path(key: str) -> str:
    """Where a flag is defined."""
    return f"{FileKind.FLAG.value}{key}{_SUFFIX}"


def segment_path(key: str) -> str:
    """Where a segment is defined."""
    return f"{FileKind.SEGMENT.value}{key}{_SUFFIX}"


def path_bytes(path: str) -> bytes:
    """By what paths are sorted."""
    return path.encode("utf-8", "surrogatepass")
