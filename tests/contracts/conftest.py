"""Every implementation of every seam, as fixtures; the hostile ones live with the fault tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.storage.disk import Disk, RealDisk
from headrace.storage.memory import MemoryDisk
from headrace.storage.objects import LocalObjects, Objects
from headrace.storage.stores import open_objects
from support import seaweed
from support.hostile import HostileDisk

_DISKS: dict[str, Callable[[Path], Disk]] = {
    "real": RealDisk,
    "memory": lambda root: MemoryDisk(),
    "hostile": lambda root: HostileDisk(),
}


@pytest.fixture(params=_DISKS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """An empty data directory on each kind of disk."""
    made = _DISKS[request.param](tmp_path)
    made.make_folder("folder")
    yield made
    if isinstance(made, RealDisk):
        for file in made._held:
            file.close()


@pytest.fixture(scope="session")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A bucket of a real S3 server; the environment says how to reach it."""
    program = seaweed.find()
    if program is None:
        pytest.skip("SeaweedFS is not installed")
    with (
        seaweed.serve(program, tmp_path_factory.mktemp("s3")) as environ,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in environ.items():
            patch.setenv(name, value)
        seaweed.make_bucket("contracts", environ)
        yield "contracts"


@pytest.fixture(params=[*_DISKS, "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    """An empty object store of each kind."""
    if request.param in _DISKS:
        return LocalObjects(_DISKS[request.param](tmp_path))
    bucket = request.getfixturevalue("bucket")
    return open_objects(f"s3://{bucket}/{tmp_path.name}", MemoryDisk())
