"""Manifests for tests of versions: trees of a few files, and what is held of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from hashlib import sha256

from headrace.core.config import Durability, LogConfig
from headrace.core.owners import FLAGS
from headrace.core.state import not_found
from headrace.engine.engine import Engine
from headrace.engine.open_log import OpenLog
from headrace.surfaces.flags.version_rows import (
    EMPTY,
    VersionRow,
    VersionSummary,
    decode_row,
    follow,
)
from headrace.surfaces.flags.versions import ManifestVersions, Retention

ABOUT = VersionSummary("tok_1", "sha256:" + "0" * 64, 1, 0)
NAMESPACE = LogConfig(durability=Durability.FSYNC, auto_create=False)

FLAG_FILE = """\
schema_version = "0.1"
[flag]
type = "boolean"
description = "{said}"
[flag.variants]
on = true
off = false
[flag.environments._]
variant = "off"
"""
"""A file of a flag that lint finds nothing wrong with."""

Files = Mapping[str, bytes]
"""Path → content."""


def digest(content: bytes) -> bytes:
    return sha256(content).digest()


def tree_of(files: Files) -> dict[str, bytes]:
    """The same with digests."""
    return {path: digest(content) for path, content in files.items()}


async def namespace(engine: Engine, name: str = "flags:acme:billing") -> OpenLog:
    """The log of a namespace, made if it is not there; refuses when others deleted it meanwhile."""
    log, _ = await engine.logs.put(name, FLAGS, NAMESPACE)
    if log.id not in engine.open_logs:
        raise not_found(name)
    return engine.open_logs[log.id]


async def upload(
    versions: ManifestVersions, live: OpenLog, files: Files, if_version: int | None = None
) -> VersionRow:
    """Make these files the next version, with what is missing of them."""
    tree = tree_of(files)
    by_digest = {digest(content): content for content in files.values()}
    contents = {each: by_digest[each] for each in versions.missing(tree)}
    return await versions.put(live, tree, contents, ABOUT, if_version)


async def download(
    engine: Engine, versions: ManifestVersions, live: OpenLog, version: int
) -> dict[str, bytes]:
    """The files of a version, by its tree and the contents that are stored."""
    tree = await versions.tree(live, version)
    contents = await engine.contents.read(tree.values())
    return {path: contents[each] for path, each in tree.items()}


def lifetimes(history: list[Files], held: int) -> Counter[bytes]:
    """The references that versions from `held` on need, by a naive count: one for each path and
    content from the version that brought it on, while one of them has it.
    """
    counts: Counter[bytes] = Counter()
    for at, files in enumerate(history):
        before = history[at - 1] if at else {}
        for path, content in files.items():
            if at < held - 1:
                continue
            if at == held - 1 or before.get(path) != content:
                counts[digest(content)] += 1
    return counts


async def check_versions(
    engine: Engine, live: OpenLog, records: Mapping[tuple[int, int], bytes]
) -> None:
    """Every version that is held has the tree that its rows say, as they were written, and all its
    contents.
    """
    versions = ManifestVersions(engine, Retention())
    rows = [decode_row(records[live.log.id, seq]) for seq in range(1, live.log.head + 1)]
    for version in range(engine.contents.held_from(live) or 1, live.log.head + 1):
        tree = await versions.tree(live, version)
        assert tree == follow(EMPTY, rows[:version]).paths
        contents = await engine.contents.read(tree.values())
        assert contents.keys() == set(tree.values())
        assert all(digest(content) == each for each, content in contents.items())
