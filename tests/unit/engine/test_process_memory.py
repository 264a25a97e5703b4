"""What is known of the memory of the process."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.flow import process_memory
from headrace.engine.flow.process_memory import Peak, Peaks, look_at_collector, measure


def test_the_parts_fit_into_the_whole() -> None:
    found = measure()
    assert found.source == "linux_proc_status"
    assert found.rss >= found.anonymous >= found.heap >= found.heap_used > 0
    assert found.rss == found.anonymous + found.file + found.shared


def test_what_arrow_holds_is_not_counted_as_heap() -> None:
    before = measure()
    held = pa.array(np.arange(1 << 20)).take(pa.array(np.arange(1 << 20)))
    after = measure()
    assert after.arrow - before.arrow >= held.nbytes
    assert after.heap <= after.anonymous - after.arrow


def test_where_nobody_can_tell_there_are_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_memory, "_STATUS", process_memory._STATUS.with_name("nothing"))
    monkeypatch.setattr(process_memory, "_mallinfo", None)
    found = measure()
    assert (found.source, found.rss, found.heap, found.heap_used) == ("unavailable", 0, 0, 0)


def test_the_collector_is_told_by_generation() -> None:
    found = look_at_collector()
    assert len(found.collections) == len(found.collected) == len(found.tracked) == 3
    assert found.blocks > 0


def test_a_peak_stays_until_there_is_a_higher_one() -> None:
    peaks = Peaks()
    peaks.note("g", {"a": 5, "b": 0}, 1)
    peaks.note("g", {"a": 5, "b": 2}, 2)
    peaks.note("g", {"a": 3, "b": 1}, 3)
    assert peaks.groups == {"g": {"a": Peak(5, 1), "b": Peak(2, 2)}}
