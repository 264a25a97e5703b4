"""Deltas of closures: what each op means, and what no entry of one may be."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256

import pytest

from headrace.core.limits import MANIFEST_FILE_BYTES_MAX, MANIFEST_FILES_MAX
from headrace.flags.closure import hash_digests
from headrace.flags.delta import (
    Closure,
    DeltaEntry,
    FileChange,
    Unverified,
    apply_delta,
    diff,
)

FILES = {"flags/a.toml": b"a", "namespace.toml": b"n", "segments/s.toml": b"s"}


def closure(version: int, files: dict[str, bytes]) -> Closure:
    digests = {path: sha256(content).digest() for path, content in files.items()}
    return Closure(version, digests, hash_digests(digests))


def digest(content: bytes) -> bytes:
    return sha256(content).digest()


def bringing(path: str, op: str, content: bytes) -> DeltaEntry:
    return DeltaEntry(path, op, sha256(content).hexdigest(), b64encode(content).decode())


def test_every_op_says_whether_the_file_or_the_closure_changed() -> None:
    old = closure(1, {**FILES, "segments/gone.toml": b"g", "segments/left.toml": b"l"})
    new = closure(
        2, {**FILES, "flags/a.toml": b"A", "segments/came.toml": b"c", "segments/new.toml": b"n"}
    )
    old_paths = {*old.digests, "segments/came.toml"}
    new_paths = {*new.digests, "segments/left.toml"}
    assert diff(old, new, old_paths, new_paths) == [
        FileChange("flags/a.toml", "modified", digest(b"A")),
        FileChange("segments/came.toml", "enter", digest(b"c")),
        FileChange("segments/gone.toml", "removed"),
        FileChange("segments/left.toml", "leave"),
        FileChange("segments/new.toml", "added", digest(b"n")),
    ]


def test_equal_closures_differ_in_nothing() -> None:
    assert diff(closure(1, FILES), closure(9, dict(reversed(FILES.items()))), FILES, FILES) == []


def test_changes_are_sorted_by_the_bytes_of_paths() -> None:
    new = closure(1, {"flags/a.toml": b"", "flags/a-b.toml": b"", "namespace.toml": b""})
    paths = [change.path for change in diff(closure(0, {}), new, (), new.digests)]
    assert paths == ["flags/a-b.toml", "flags/a.toml", "namespace.toml"]


ENTRIES = [
    bringing("flags/a.toml", "modified", b"A"),
    bringing("flags/b.toml", "added", b"b"),
    bringing("segments/t.toml", "enter", b"t"),
    DeltaEntry("segments/s.toml", "leave"),
]
AFTER = {
    "flags/a.toml": b"A", "flags/b.toml": b"b", "namespace.toml": b"n", "segments/t.toml": b"t"
}  # fmt: skip


def test_a_delta_is_applied_to_a_copy() -> None:
    held = dict(FILES)
    assert apply_delta(held, ENTRIES) == AFTER
    assert held == FILES


def test_files_that_stay_are_the_same_objects() -> None:
    applied = apply_delta(FILES, ENTRIES)
    assert applied["namespace.toml"] is FILES["namespace.toml"]


HEX = sha256(b"x").hexdigest()


@pytest.mark.parametrize(
    "entry",
    [
        DeltaEntry("flags/x.toml", "added"),
        DeltaEntry("flags/x.toml", "added", HEX),
        DeltaEntry("flags/x.toml", "added", None, "eA=="),
        DeltaEntry("flags/x.toml", "added", HEX.upper(), "eA=="),
        DeltaEntry("flags/x.toml", "added", HEX, "eQ=="),
        DeltaEntry("flags/x.toml", "added", HEX, "eA"),
        DeltaEntry("flags/x.toml", "added", HEX, "eA==\n"),
        DeltaEntry("flags/x.toml", "added", HEX, "ä"),
        DeltaEntry("flags/x.toml", "added", "\ud800", "eA=="),
        DeltaEntry("flags/x.toml", "replaced", HEX, "eA=="),
        DeltaEntry("flags/x.toml", "modified", HEX, "eA=="),
        DeltaEntry("flags/a.toml", "added", HEX, "eA=="),
        DeltaEntry("flags/a.toml", "enter", HEX, "eA=="),
        DeltaEntry("flags/a.toml", "removed", HEX),
        DeltaEntry("flags/a.toml", "leave", None, "eA=="),
        DeltaEntry("flags/x.toml", "removed"),
        DeltaEntry("flags/x.toml", "leave"),
        DeltaEntry("flags/../x.toml", "added", HEX, "eA=="),
        DeltaEntry("/etc/passwd", "added", HEX, "eA=="),
        DeltaEntry("README.md", "added", HEX, "eA=="),
        bringing("flags/x.toml", "added", b" " * (MANIFEST_FILE_BYTES_MAX + 8)),
    ],
)
def test_an_entry_that_is_not_what_it_says_is_not_applied(entry: DeltaEntry) -> None:
    with pytest.raises(Unverified):
        apply_delta(FILES, [entry])


def test_a_file_of_a_delta_may_be_as_large_as_any() -> None:
    content = b"x" * MANIFEST_FILE_BYTES_MAX
    assert apply_delta({}, [bringing("flags/x.toml", "added", content)]) == {
        "flags/x.toml": content
    }


def test_a_delta_does_not_bring_more_files_than_a_manifest_has() -> None:
    held = {f"flags/f{n}.toml": b"" for n in range(MANIFEST_FILES_MAX - 1)}
    one, two = (bringing(f"flags/{key}.toml", "added", b"") for key in ("x", "y"))
    assert len(apply_delta(held, [one])) == MANIFEST_FILES_MAX
    with pytest.raises(Unverified, match="more than"):
        apply_delta(held, [one, two])


def test_a_delta_says_what_becomes_of_a_file_once() -> None:
    with pytest.raises(Unverified, match="twice"):
        apply_delta(FILES, [ENTRIES[0], ENTRIES[0]])
    with pytest.raises(Unverified, match="nothing"):
        apply_delta(FILES, [])
