"""Recovery: what cannot be right is refused and named, never taken for an end or a beginning."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.storage import manifests
from headrace.storage.disk import RealDisk
from headrace.storage.objects import LocalObjects
from headrace.storage.recovery import Recovered, Recovery
from headrace.storage.segments import Segments
from support import directories


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return directories.build(tmp_path_factory.mktemp("clean") / "data")


@pytest.fixture
def root(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "data"))


def recover(root: Path) -> Recovered:
    disk = RealDisk(root)
    objects = LocalObjects(disk)
    return Recovery(disk, objects, Segments(objects, 0)).run()


def test_a_journal_that_ends_before_the_snapshot_is_damaged(root: Path) -> None:
    """The snapshot was made of synced bytes: their loss is no torn tail."""
    newest = sorted(root.glob("journal/*"))[-1]
    directories.replace(newest, directories.content_of(newest)[:-100])
    with pytest.raises(Corrupt) as damage:
        recover(root)
    assert damage.value.where == f"journal/{newest.name}"


def test_a_journal_that_may_not_be_opened_is_no_failed_sync(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(disk: RealDisk, path: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(RealDisk, "sync", refuse)
    with pytest.raises(PermissionError):
        recover(root)
    assert not (root / layout.UNSYNCED).exists()


def test_a_journal_that_is_gone_is_missed(root: Path) -> None:
    for path in root.glob("journal/*"):
        path.unlink()
    with pytest.raises(Corrupt, match="journal"):
        recover(root)


@pytest.mark.parametrize("offset", [10, -10])
def test_an_index_that_is_not_what_it_was_is_refused(offset: int, root: Path) -> None:
    path = sorted(root.glob("objects/companions/*.index.parquet"))[0]
    directories.flip(path, offset % path.stat().st_size)
    objects = LocalObjects(RealDisk(root))
    manifest = manifests.load(objects)
    segments = Segments(objects, 0)
    segments.use(manifest)
    with pytest.raises(Corrupt, match=path.name):
        list(segments.extents(manifest.segments[0]))


def test_a_manifest_with_bytes_that_are_no_text_is_refused(root: Path) -> None:
    path = sorted(root.glob("objects/manifests/*"))[-1]
    path.write_bytes(path.read_bytes().replace(b"segments/", b"segm\xffnts/"))
    with pytest.raises(Corrupt, match=path.name):
        recover(root)
