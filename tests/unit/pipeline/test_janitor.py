"""The janitor on a data directory."""

from __future__ import annotations

import os
import time
from pathlib import Path
from unittest import mock

import pytest

from headrace.core.limits import LEASE_S
from headrace.formats import layout
from headrace.pipeline import audit
from headrace.pipeline.audit_rows import AuditView
from headrace.pipeline.janitor import clean, remove_now
from headrace.pipeline.remains import tell_remains
from headrace.pipeline.store_location import StoreLocation
from headrace.storage.disk import RealDisk
from headrace.storage.leases import hold_lease
from headrace.storage.objects import LocalObjects, StoreError


@pytest.mark.parametrize(
    "name", [layout.build_file("job-1", "keys"), layout.rewritten("job-1")[0], layout.retired("a")]
)
def test_a_file_that_is_being_written_stays(tmp_path: Path, name: str) -> None:
    place = StoreLocation(tmp_path)
    rename, done = RealDisk.rename, []

    def late(disk: RealDisk, old: str, new: str) -> None:
        if new.endswith(name) and not done:
            done.append(clean(place, grace_s=0))
        rename(disk, old, new)

    with mock.patch.object(RealDisk, "rename", late):
        place.open().put(name, b"{}")
    assert [removed.objects for removed in done] == [0]
    assert place.open().get(name) == b"{}"


def test_answers_of_an_audit_stay_until_it_has_read_them(tmp_path: Path) -> None:
    place, seen = StoreLocation(tmp_path), list[str]()

    def check(spark: object, place: StoreLocation, view: AuditView) -> None:
        assert view.job is not None
        name = layout.answer(f"{view.job}-1")
        place.open().put(name, b"x")
        assert clean(place, grace_s=0).waiting == 1
        seen.append(name)

    with mock.patch.dict(audit.CHECKS, {"answers": check}, clear=True):
        audit.audit(None, place)  # type: ignore[arg-type]
    assert place.open().list(layout.LEASES) == []
    assert clean(place, grace_s=0).objects == len(seen) == 1, "what a killed one left goes"


def test_who_may_not_write_can_audit(tmp_path: Path) -> None:
    with (
        mock.patch.object(LocalObjects, "put_new", side_effect=StoreError("read-only")),
        mock.patch.dict(audit.CHECKS, {}, clear=True),
    ):
        assert audit.audit(None, StoreLocation(tmp_path)).problems == []  # type: ignore[arg-type]


def test_a_job_that_may_have_read_what_was_erased_is_told(tmp_path: Path) -> None:
    place = StoreLocation(tmp_path)
    objects = place.open()
    (tmp_path / layout.JOURNAL).mkdir()
    with hold_lease(objects, "index"):
        assert tell_remains(place) == []
        objects.put(layout.rewritten("old")[0], b"x")
        assert remove_now(objects, [layout.rewritten("old")[0]]) != []
        with hold_lease(objects, "merge"):
            (line,) = tell_remains(place)
        assert line.startswith("1 job (index) at work since before")
    assert tell_remains(place) == []


def test_a_file_that_nobody_will_finish_goes(tmp_path: Path) -> None:
    place = StoreLocation(tmp_path)
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
