"""Every implementation of every seam, as fixtures; the hostile ones live with the fault tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "faults"))

from hostile import HostileDisk

from headrace.storage.disk import Disk, RealDisk
from headrace.storage.memory import MemoryDisk

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
