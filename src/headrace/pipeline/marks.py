"""Marks in jobs: the copy that a job works by, and what tasks make of it.

The server publishes marks anew while records die, and removes the old ones. So a job stores a copy
under its lease; tasks read it from there, each worker once, and the driver only knows its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow.compute as pc

from headrace.core.errors import Corrupt
from headrace.core.ranges import Ranges
from headrace.formats import layout
from headrace.formats.manifest import Named
from headrace.formats.marks import DEAD, LIVE, Marks, open_marks
from headrace.pipeline.store_location import StoreLocation, get_named
from headrace.pipeline.tasks import describe, run_tasks
from headrace.storage import manifests
from headrace.storage.leases import HeldLease, hold_lease

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Deaths(msgspec.Struct, frozen=True):
    """Marks in columns: whether many rows are dead, at once."""

    live_firsts: np.ndarray
    live_lasts: np.ndarray
    logs: np.ndarray
    firsts: np.ndarray
    lasts: np.ndarray
    starts: np.ndarray
    """Where the ranges of each log start."""

    def dead(self, logs: np.ndarray, seqs: np.ndarray) -> np.ndarray:
        """Which of these records are dead."""
        return self.covers(logs, seqs, seqs)

    def covers(self, logs: np.ndarray, firsts: np.ndarray, lasts: np.ndarray) -> np.ndarray:
        """Which of these ranges of seqs are dead from their first to their last."""
        at, known = self._before(logs, firsts)
        gone: np.ndarray = self.dropped(logs) | (known & (lasts <= self.lasts[at]))
        return gone

    def touches(self, logs: np.ndarray, firsts: np.ndarray, lasts: np.ndarray) -> np.ndarray:
        """Of which of these ranges of seqs some are dead."""
        at, known = self._before(logs, lasts)
        some: np.ndarray = self.dropped(logs) | (known & (firsts <= self.lasts[at]))
        return some

    def dropped(self, logs: np.ndarray) -> np.ndarray:
        """Which of these logs are gone, with everything that was in them."""
        return ~_inside(self.live_firsts, self.live_lasts, logs, logs)

    def _before(self, logs: np.ndarray, seqs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each record the last range of its log that begins no later; and if there is one."""
        if not len(self.logs):
            return np.zeros(len(logs), np.int64), np.zeros(len(logs), bool)
        own = np.minimum(np.searchsorted(self.logs, logs), len(self.logs) - 1)
        begin = self.starts[own]
        low, high = begin, self.starts[own + 1]
        while np.any(low < high):  # a search in the ranges of each log, all at once
            middle = (low + high) // 2
            later = self.firsts[np.minimum(middle, len(self.firsts) - 1)] > seqs
            low, high = (
                np.where((low < high) & ~later, middle + 1, low),
                np.where((low < high) & later, middle, high),
            )
        return np.maximum(low - 1, 0), (self.logs[own] == logs) & (low > begin)


def _inside(firsts: np.ndarray, lasts: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Which ranges from low to high lie in one of these ranges."""
    if not len(firsts):
        return np.zeros(len(low), bool)
    at = np.searchsorted(firsts, low, side="right") - 1
    return (at >= 0) & (high <= lasts[np.maximum(at, 0)])


def deaths(marks: Marks) -> Deaths:
    logs = sorted(marks.dead)
    counts = [len(marks.dead[log]) // 2 for log in logs]
    flat = np.array([seq for log in logs for seq in marks.dead[log]], np.int64)
    return Deaths(
        *_split(marks.live),
        np.array(logs, np.int64),
        flat[::2],
        # With one more behind them: a record of which nothing is dead has a place, too.
        np.append(flat[1::2], 0),
        np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]),
    )


def _split(ranges: Ranges) -> tuple[np.ndarray, np.ndarray]:
    flat = np.array(ranges, np.int64)
    return flat[::2], flat[1::2]


def decode_deaths(raw: bytes, where: str) -> Deaths:
    """The same from marks as they are stored, a column at a time: there may be millions."""
    table = open_marks(raw, where)
    kinds = table.column("kind")
    live, dead = (table.filter(pc.equal(kinds, kind)) for kind in (LIVE, DEAD))
    logs = dead.column("log_id").to_numpy()
    firsts, lasts = (dead.column(name).to_numpy() for name in ("first", "last"))
    bounds = [live.column(name).to_numpy() for name in ("first", "last")]
    if (
        len(live) + len(dead) < len(table)
        or not _ascend(np.zeros(len(live), np.int64), *bounds)
        or not _ascend(logs, firsts, lasts)
    ):
        raise Corrupt(where, 0, "not marks: their ranges are not in order")
    ids, starts = np.unique(logs, return_index=True)
    ends = np.append(starts, len(logs)).astype(np.int64)
    return Deaths(bounds[0], bounds[1], ids, firsts, np.append(lasts, 0), ends)


def _ascend(logs: np.ndarray, firsts: np.ndarray, lasts: np.ndarray) -> bool:
    """Whether ranges are in the order of logs and seqs, and apart."""
    same = logs[1:] == logs[:-1]
    later = np.where(same, firsts[1:] > lasts[:-1], logs[1:] > logs[:-1])
    return bool(later.all() and (firsts <= lasts).all())


class MarksCopy(msgspec.Struct, frozen=True):
    """Where the marks are that a job works by; small, so that it travels with every task."""

    place: StoreLocation
    copy: Named | None
    """Nothing where the server has marked nothing yet."""

    def deaths(self) -> Deaths:
        """What they say, read from the store by the first task of a worker that asks."""
        if self.copy is None:
            return deaths(Marks())
        held = _read.get(self.copy.checksum)
        if held is None:
            raw = get_named(self.place.open(), self.copy)
            held = decode_deaths(raw, self.copy.name)
            _read.clear()
            _read[self.copy.checksum] = held
        return held


_read: dict[str, Deaths] = {}
"""The last that this worker read, by their checksum: groups have copies of the same ones."""


class Work(msgspec.Struct, frozen=True):
    """What a job, or a group of its segments, works under."""

    lease: HeldLease
    marks: MarksCopy


@contextmanager
def begin_work(spark: SparkSession, place: StoreLocation, job: str) -> Iterator[Work]:
    """Hold a lease, and the newest marks, which stay as they are meanwhile.

    A manifest that is loaded inside is no older than they are: what is dead in its segments and in
    no mark died since.
    """
    objects = place.open()
    with hold_lease(objects, job) as lease:
        name = layout.marks_copy(lease.token)
        try:
            with describe(spark, "copy marks"):
                marks = MarksCopy(place, _keep(spark, place, name))
            yield Work(lease, marks)
        finally:
            with suppress(OSError):  # the janitor does, when the lease is over
                objects.remove(name)


def _keep(spark: SparkSession, place: StoreLocation, name: str) -> Named | None:
    """The newest marks under this name."""
    before: Named | None = None
    while (marks := manifests.load(place.open()).marks) is not None:
        if marks == before:
            raise FileNotFoundError(marks.name)
        (there,) = run_tasks(spark, place, partial(_copy, place, name), [marks])
        if there:
            return msgspec.structs.replace(marks, name=name)
        before = marks
    return None


def _copy(place: StoreLocation, name: str, marks: Named) -> bool:
    """The task: keep the marks under another name; not if later ones have replaced them."""
    objects = place.open()
    try:
        raw = get_named(objects, marks)
    except FileNotFoundError:
        return False
    decode_deaths(raw, marks.name)
    objects.put(name, raw)
    return True
