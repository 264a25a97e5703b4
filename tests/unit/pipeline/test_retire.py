"""The janitor on a data directory."""

from __future__ import annotations

import os
import time
from pathlib import Path
from unittest import mock

import pytest

from headrace.core.limits import LEASE_S
from headrace.formats import layout
from headrace.pipeline.place import Place
from headrace.pipeline.remains import tell_remains
from headrace.pipeline.retire import clean
from headrace.storage.disk import RealDisk


@pytest.mark.parametrize(
    "name", [layout.build_file("job-1", "keys"), layout.rewritten("job-1")[0], layout.retired("a")]
)
def test_a_file_that_is_being_written_stays(tmp_path: Path, name: str) -> None:
    place = Place(tmp_path)
    rename, done = RealDisk.rename, []

    def late(disk: RealDisk, old: str, new: str) -> None:
        if new.endswith(name) and not done:
            done.append(clean(place, grace_s=0))
        rename(disk, old, new)

    with mock.patch.object(RealDisk, "rename", late):
        place.open().put(name, b"{}")
    assert [removed.objects for removed in done] == [0]
    assert place.open().get(name) == b"{}"


def test_a_file_that_nobody_will_finish_goes(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.open()
    (tmp_path / layout.JOURNAL).mkdir()
    path = tmp_path / layout.OBJECTS / (layout.build_file("job-1", "keys") + layout.TEMPORARY)
    path.touch()
    old = time.time() - LEASE_S - 60
    os.utime(path, (old, old))
    assert clean(place).objects == 0, "within the grace period"
    assert any("1 object" in line for line in tell_remains(place)), "it may hold dead records"
    assert clean(place, grace_s=0).objects == 1
    assert not path.exists()
    assert tell_remains(place) == []
