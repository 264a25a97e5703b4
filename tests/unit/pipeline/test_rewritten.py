"""New files that are gone when they are to be proved: whoever removed them, they are not said to be
a loss of the store.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from headrace.core.limits import LEASE_S
from headrace.formats import layout
from headrace.formats.manifest import Segment
from headrace.formats.segment import SCHEMA
from headrace.pipeline import proof
from headrace.pipeline.errors import Unpublished
from headrace.pipeline.janitor import clean
from headrace.pipeline.marks import MarksCopy, Work
from headrace.pipeline.proof import prove
from headrace.pipeline.rewrite import write
from headrace.pipeline.store_location import StoreLocation
from headrace.storage.leases import HeldLease, hold_lease

ROW = {"log": "a", "log_id": 1, "seq": 1, "ts": 1, "data": b"{}"}


def _written(place: StoreLocation, lease: HeldLease) -> Segment:
    table = pa.Table.from_pylist([ROW], schema=SCHEMA)
    return write(place.open(), f"{lease.token}-0", [table])


def _prove(place: StoreLocation, output: Segment, lease: HeldLease) -> None:
    def run_tasks(
        spark: object,
        place: StoreLocation,
        work: Callable[[Any], Any],
        items: Sequence[Any],
        **_: object,
    ) -> list[Any]:
        return [work(item) for item in items]

    with mock.patch.object(proof, "run_tasks", run_tasks):
        prove(None, place, [], [output], Work(lease, MarksCopy(place, None)))  # type: ignore[arg-type]


def test_a_job_that_stood_still_for_too_long_is_told_so(tmp_path: Path) -> None:
    place = StoreLocation(tmp_path)
    with hold_lease(place.open(), "compact") as lease:
        output = _written(place, lease)
        then = time.time() - 2 * LEASE_S
        os.utime(tmp_path / layout.OBJECTS / layout.lease(lease.token), (then, then))
        assert clean(place, grace_s=0).objects >= 2
        with pytest.raises(Unpublished, match="ran out while it stood still"):
            _prove(place, output, lease)


def test_what_somebody_else_removed_is_named_as_new(tmp_path: Path) -> None:
    place = StoreLocation(tmp_path)
    with hold_lease(place.open(), "compact") as lease:
        output = _written(place, lease)
        place.open().remove(output.index)
        with pytest.raises(Unpublished) as failed:
            _prove(place, output, lease)
    assert output.index in str(failed.value)
    assert "manifest" not in str(failed.value)
