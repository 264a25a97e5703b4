"""Verification: silent about a directory as the engine leaves it, and exact about each damage."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import directories
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from xxhash import xxh3_64_hexdigest

from headrace import cli
from headrace.core.entry import Append, Create, Delete, Drop, Entry, Lose
from headrace.core.config import LogConfig
from headrace.core.record import Block, block, draft
from headrace.formats import layout
from headrace.formats.frame import encode_frame
from headrace.formats.manifest import Manifest, decode_manifest, encode_manifest
from headrace.formats.snapshot import Captured, Foot, Head, decode_snapshot, encode_part
from headrace.core.log import Log
from headrace.storage.checks.findings import Finding, Note, Problem
from headrace.storage.checks.history import History
from headrace.storage.checks.states import is_set, state_problems
from headrace.storage.disk import RealDisk
from headrace.storage.verification import Verification


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return directories.build(tmp_path_factory.mktemp("clean") / "data")


@pytest.fixture
def root(pristine: Path, tmp_path: Path) -> Path:
    """A copy of the directory, to be damaged."""
    return Path(shutil.copytree(pristine, tmp_path / "data"))


def verify(root: Path) -> list[Finding]:
    return list(Verification(RealDisk(root)).run())


def problems(root: Path) -> list[Problem]:
    return [finding for finding in verify(root) if isinstance(finding, Problem)]


def files(root: Path, pattern: str) -> list[Path]:
    return sorted(root.glob(pattern))


# --- nothing wrong ---


def test_what_the_engine_leaves_is_clean(pristine: Path) -> None:
    before = directories.fingerprint(pristine)
    assert verify(pristine) == []
    assert directories.fingerprint(pristine) == before


def test_a_killed_server_leaves_nothing_wrong(tmp_path: Path) -> None:
    root = directories.build(tmp_path / "data", clean=False)
    assert problems(root) == []


def test_an_empty_directory_is_clean(tmp_path: Path) -> None:
    assert verify(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_progress_comes_to_the_end(pristine: Path) -> None:
    seen: list[int] = []
    verification = Verification(RealDisk(pristine), seen.append)
    list(verification.run())
    assert sum(seen) == pytest.approx(verification.measure().size_bytes, rel=0.01)


def test_a_torn_tail_is_a_note(root: Path) -> None:
    newest = files(root, "journal/*")[-1]
    newest.write_bytes(newest.read_bytes() + b"\1" * 100)
    (note,) = verify(root)
    assert isinstance(note, Note)
    assert note.where == f"journal/{newest.name}"
    assert "100 bytes" in note.what


def test_objects_that_no_manifest_names_are_notes(root: Path) -> None:
    (root / "objects/segments/0000000099.parquet").write_bytes(b"half a segment")
    (note,) = verify(root)
    assert isinstance(note, Note)
    assert note.where == "objects/segments/0000000099.parquet"


# --- one damage each: the pattern of the file, and what is done to it ---


def flip_at(share: float) -> Callable[[Path], None]:
    return lambda path: directories.flip(path, int(path.stat().st_size * share))


def garble(path: Path) -> None:
    path.write_bytes(b"\0" * path.stat().st_size)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


DAMAGES = {
    "journal flipped": ("journal/*", flip_at(0.5)),
    "journal cut": ("journal/*", cut),
    "journal file removed": ("journal/*", Path.unlink),
    "snapshot flipped": ("snapshots/*", flip_at(0.5)),
    "snapshot cut": ("snapshots/*", cut),
    "segment flipped": ("objects/segments/*", flip_at(0.1)),
    "segment flipped at its end": ("objects/segments/*", flip_at(0.95)),
    "segment cut": ("objects/segments/*", cut),
    "segment removed": ("objects/segments/*", Path.unlink),
    "index garbled": ("objects/companions/*.index.parquet", garble),
    "index removed": ("objects/companions/*.index.parquet", Path.unlink),
    "tags cut": ("objects/companions/*.tags.parquet", cut),
    "tags removed": ("objects/companions/*.tags.parquet", Path.unlink),
    "manifest garbled": ("objects/manifests/*", garble),
}
