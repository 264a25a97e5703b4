"""Trees of flags: verified, linted, ready to be evaluated, and never changed.

A tree is made of a snapshot, or of another tree and a delta. Both end in the same checks, so that
there is no other way into service.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from hashlib import sha256

import msgspec

from headrace.client.flags.announcements import DeltaAnnounced, is_closure_hash
from headrace.client.flags.problems import RefreshCheck, RefreshError
from headrace.core.digits import parse_digits
from headrace.core.limits import I64_MAX
from headrace.flags.archive import ArchiveLimits, ArchiveRefused, read_archive
from headrace.flags.closure import SegmentGraph, hash_digests
from headrace.flags.delta import Unverified, apply_delta
from headrace.flags.evaluation import Definitions
from headrace.flags.lint import lint_tree
from headrace.flags.model import ParsedFile
from headrace.flags.parsing import parse_file
from headrace.flags.subscription import FlagSet
from headrace.flags.tree import FileKind, key_of, kind_of

_PROBLEMS_SHOWN = 3


class TreeRules(msgspec.Struct, frozen=True):
    """What a tree must be beside being the one that was announced."""

    flags: FlagSet
    """It holds no others."""
    bytes_max: int


class FlagTree:
    """The closure of a subscription at one version."""

    def __init__(
        self,
        version: int,
        closure_hash: str,
        files: Mapping[str, bytes],
        digests: Mapping[str, bytes],
        parsed: Mapping[str, ParsedFile],
        definitions: Definitions,
    ) -> None:
        self.version = version
        self.closure_hash = closure_hash
        self.files = files
        self.digests = digests
        """SHA-256 of each file by path."""
        self.parsed = parsed
        self.definitions = definitions

    @property
    def etag(self) -> str:
        return format_etag(self.version, self.closure_hash)

    @cached_property
    def segment_graph(self) -> SegmentGraph:
        return SegmentGraph.of(self.parsed)

    def at_version(self, version: int) -> FlagTree:
        """The same files, which are those of another version, too."""
        return FlagTree(
            version, self.closure_hash, self.files, self.digests, self.parsed, self.definitions
        )


def tree_of_snapshot(
    body: bytes, etag: str, version: int, closure_hash: str | None, rules: TreeRules
) -> FlagTree | RefreshError:
    """The tree in an archive, if it is the one that was announced: the fourth check.

    Where no hash was announced, the ETag must say one.
    """
    expected = closure_hash or _hash_in(etag, version)
    if expected is None:
        problem = "neither the event nor the ETag says what the hash of the closure is"
        return RefreshError(RefreshCheck.SNAPSHOT, problem, version)
    try:
        files = read_archive(body, ArchiveLimits(len(body), rules.bytes_max))
    except ArchiveRefused as refused:
        return RefreshError(
            RefreshCheck.SNAPSHOT, f"not an archive of a closure: {refused}", version
        )
    digests = {path: sha256(content).digest() for path, content in files.items()}
    if hash_digests(digests) != expected:
        problem = "the files are not those of the closure that was announced"
        return RefreshError(RefreshCheck.SNAPSHOT, problem, version)
    return _served(version, expected, files, digests, {}, rules)


def tree_of_delta(
    tree: FlagTree, delta: DeltaAnnounced, rules: TreeRules
) -> FlagTree | RefreshError:
    """The tree that a delta leads to: the second check, for each file, and the third, for all."""
    version = delta.version
    try:
        files = apply_delta(tree.files, delta.files)
    except Unverified as unverified:
        return RefreshError(RefreshCheck.PER_FILE, str(unverified), version)
    kept = {path for path, content in files.items() if content is tree.files.get(path)}
    digests = {
        path: tree.digests[path] if path in kept else sha256(content).digest()
        for path, content in files.items()
    }
    if hash_digests(digests) != delta.closure_hash:
        problem = "the delta does not lead to the closure that was announced"
        return RefreshError(RefreshCheck.POST_APPLY, problem, version)
    parsed = {path: tree.parsed[path] for path in kept}
    return _served(version, delta.closure_hash, files, digests, parsed, rules)


def _served(
    version: int,
    closure_hash: str,
    files: Mapping[str, bytes],
    digests: Mapping[str, bytes],
    parsed: dict[str, ParsedFile],
    rules: TreeRules,
) -> FlagTree | RefreshError:
    """Files with the right hash, if they can be served: a whole manifest of what was asked for."""
    if sum(map(len, files.values())) > rules.bytes_max:
        problem = f"the files have more than {rules.bytes_max} bytes"
        return RefreshError(RefreshCheck.LINT, problem, version)
    if strangers := _unasked(files, rules.flags):
        return RefreshError(RefreshCheck.LINT, f"nobody asked for {strangers[0]!r}", version)
    for path, content in files.items():
        if path not in parsed:
            parsed[path] = parse_file(path, content)
    report = lint_tree(parsed)
    if report.errors:
        told = "; ".join(
            f"{problem.path}: {problem.code} {problem.message}"
            for problem in report.errors[:_PROBLEMS_SHOWN]
        )
        return RefreshError(RefreshCheck.LINT, told, version)
    return FlagTree(version, closure_hash, files, digests, parsed, Definitions.of(parsed.values()))


def _unasked(paths: Iterable[str], flags: FlagSet) -> list[str]:
    """Files that are no part of a manifest, and flags that were not asked for."""
    return [
        path
        for path in paths
        if (kind := kind_of(path)) is None
        or (kind is FileKind.FLAG and flags.keys is not None and key_of(path) not in flags.keys)
    ]


def changed_flags(old: FlagTree | None, new: FlagTree) -> frozenset[str]:
    """Flags that may be evaluated otherwise: they or segments that they reach differ."""
    before: Mapping[str, bytes] = {} if old is None else old.digests
    changed = {
        path
        for path in before.keys() | new.digests.keys()
        if before.get(path) != new.digests.get(path)
    }
    found = {key_of(path) for path in changed if kind_of(path) is FileKind.FLAG}
    segments = [key_of(path) for path in changed if kind_of(path) is FileKind.SEGMENT]
    if old is not None and segments:
        depending = new.segment_graph.depending(segments) | old.segment_graph.depending(segments)
        found |= depending & new.segment_graph.flags.keys()
    return frozenset(found)


def format_etag(version: int, closure_hash: str) -> str:
    """How a server labels the snapshot of a closure."""
    return f'"v{version}-{closure_hash}"'


def _hash_in(etag: str, version: int) -> str | None:
    """The hash of the closure in the ETag of a snapshot; None if it is not of this version."""
    label, _, closure_hash = etag.removeprefix("W/").strip('"').partition("-")
    if parse_digits(label.removeprefix("v"), I64_MAX) != version:
        return None
    return closure_hash if is_closure_hash(closure_hash) else None
