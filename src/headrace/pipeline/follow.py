"""Following: every segment is indexed soon after it is published, and again when plans change."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec
from tqdm import tqdm

from headrace.formats import layout
from headrace.formats.manifest import Manifest, Segment
from headrace.pipeline.errors import Unpublished
from headrace.pipeline.groups import count_slots
from headrace.pipeline.index import NOTHING_TO_INDEX, Indexed, index, total
from headrace.pipeline.index_backlog import IndexBacklogFinder, Unit, choose
from headrace.pipeline.limits import INDEX_GROUP, POLL_S, ROUND_GROUPS, TELL_S
from headrace.pipeline.merge import merge_all
from headrace.pipeline.report import Report
from headrace.pipeline.store_location import StoreLocation
from headrace.printing import count, size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Status(msgspec.Struct, kw_only=True):
    """How a follower is doing, for whoever looks after it."""

    segments: int = 0
    """Indexed since the start; so are the next ones."""
    records: int = 0
    failures: int = 0
    problem: str | None = None
    """What failed last."""
    records_per_s: float = 0.0
    """While there was something to do."""
    waiting_segments: int = 0
    waiting_records: int = 0
    lag_s: float = 0.0
    """How long the oldest segment has waited."""
    committed_at_ms: int = 0


Tell = Callable[[Status], None]


class FollowerStopped(Exception):
    """Somebody asked a follower to stop."""


class IndexFollower:
    """Indexes what waits, and merges; tells how it is doing."""

    def __init__(
        self,
        spark: SparkSession,
        place: StoreLocation,
        *,
        merging: bool,
        stopping: threading.Event,
        tell: Tell,
    ) -> None:
        self._spark = spark
        self._place = place
        self._merging = merging
        self._stopping = stopping
        self._tell = tell
        self._pending = IndexBacklogFinder(place, spark)
        self._told = IndexBacklogFinder(place, spark)
        """The same for the thread that tells."""
        self._noting = threading.Lock()
        self._gave_up: set[int] = set()
        self._merged = 0
        """The version of the manifest in which there was nothing to merge."""
        self._stored: dict[str, int] = {}
        """When segments were published that wait, in ms."""
        self._seconds = 0.0
        self.done = Indexed()
        self.status = Status()

    def run(self, poll_s: float, *, once: bool) -> None:
        """Work until told to stop, or until nothing is left."""
        while not self._stopping.is_set():
            if not self.step():
                if once:
                    return
                self._stopping.wait(poll_s)

    def step(self) -> bool:
        """Index some of what waits; False when there was nothing to do."""
        try:
            worked = self._work_in_thread()
        except Unpublished:  # taken for dead, and the files for nobody's: once more
            worked = self._work_in_thread()
        self.tell()
        return worked

    def _work_in_thread(self) -> bool:
        """Work, telling of it meanwhile; `FollowerStopped` when that is not to be waited for."""
        pool = ThreadPoolExecutor(1, "follow")
        try:
            work = pool.submit(self._work)
            while wait([work], TELL_S).not_done:
                self.tell()
                if self._stopping.is_set():
                    raise FollowerStopped  # what has begun ends with the session
            return work.result()
        finally:
            pool.shutdown(wait=False)

    def _work(self) -> bool:
        """Index the oldest of what waits, and merge; False when there is nothing to do.

        What waits is looked up again for every round, so that a segment that comes or goes
        meanwhile is seen.
        """
        work = self._pending.look()
        due = [unit for unit in work.units if self._is_due(unit)]
        if due:
            started = time.monotonic()
            round_max = INDEX_GROUP * ROUND_GROUPS * count_slots(self._spark)
            done = index(self._spark, self._place, work, choose(due, round_max), note=self._note)
            self.done.problems = done.problems
            self._seconds += time.monotonic() - started
        if self._merging and self._pending.look().manifest.version != self._merged:
            for _ in merge_all(self._spark, self._place, self._pending):
                if self._stopping.is_set():
                    return True
            self._merged = self._pending.look().manifest.version
        return bool(due)

    def _is_due(self, unit: Unit) -> bool:
        return self._gave_up.isdisjoint(segment.number for segment in unit.segments)

    def _note(self, done: Indexed) -> None:
        with self._noting:
            self.done = total((self.done, done))
            self._gave_up |= {failure.segment for failure in done.failures}
            if done.segments:
                self.status.committed_at_ms = int(time.time() * 1000)

    def tell(self) -> None:
        """Tell the status, with what waits right now."""
        work = self._told.look()
        waiting = [segment for unit in work.units for segment in unit.segments]
        status, done, lines = self.status, self.done, self.done.lines()
        status.segments, status.records = done.segments, done.rows
        status.failures = len(lines)
        status.problem = lines[-1] if lines else None
        status.records_per_s = round(done.rows / self._seconds, 1) if self._seconds else 0.0
        status.waiting_segments = len(waiting)
        status.waiting_records = sum(segment.rows for segment in waiting)
        status.lag_s = self._lag_s(work.manifest, waiting)
        self._tell(status)

    def _lag_s(self, manifest: Manifest, waiting: Sequence[Segment]) -> float:
        """Since the oldest was published; or, if it is to be indexed again, since plans changed."""
        if not waiting:
            return 0.0
        if any(segment.name not in self._stored for segment in waiting):
            self._stored = self._stored_ms(layout.SEGMENTS)
        planned_ms = max(self._stored_ms(layout.PLANS).values(), default=0)
        again = {number for build in manifest.builds for number in build.segments}
        since_ms = min(
            max(self._stored.setdefault(s.name, 0), planned_ms if s.number in again else 0)
            for s in waiting
        )
        return round(max(0.0, time.time() - since_ms / 1000), 3) if since_ms else 0.0

    def _stored_ms(self, folder: str) -> dict[str, int]:
        return {one.name: one.modified_ms for one in self._told.objects.list(folder)}


def follow(
    spark: SparkSession,
    place: StoreLocation,
    *,
    once: bool = False,
    merging: bool = True,
    poll_s: float = POLL_S,
    stopping: threading.Event | None = None,
    tell: Tell = lambda status: None,
) -> Report:
    """Index until told to stop, or once everything that is there."""
    stopping = stopping or threading.Event()
    follower = IndexFollower(spark, place, merging=merging, stopping=stopping, tell=tell)
    follower.tell()
    with suppress(FollowerStopped):
        follower.run(poll_s, once=once)
    return _report(place, follower)


def _report(place: StoreLocation, follower: IndexFollower) -> Report:
    done, status = follower.done, follower.status
    what = (
        f"{count(done.segments, 'segment')} indexed, {count(done.rows, 'record')}, "
        f"{size(done.file_bytes)} of companions"
    )
    if not done.segments and not status.waiting_segments:
        what = NOTHING_TO_INDEX
    if status.records_per_s:
        what += f", {status.records_per_s:.0f} records/s"
    if status.waiting_segments:
        what += f"; {count(status.waiting_segments, 'segment')} left"
    return Report("", [], f"{place}: {what}", done.lines())


# --- telling ---


@contextmanager
def telling(as_json: bool) -> Iterator[Tell]:
    """Lines of JSON for a program, else a bar for a person."""
    if as_json:
        yield tell_json()
        return
    with tqdm(
        unit=" records", unit_scale=True, file=sys.stderr, disable=not sys.stderr.isatty()
    ) as bar:

        def show(status: Status) -> None:
            bar.total = status.records + status.waiting_records
            bar.set_postfix_str(
                f"{count(status.waiting_segments, 'segment')} waiting, {status.lag_s:.0f} s behind"
                + (f", {status.failures} failed" if status.failures else "")
            )
            bar.update(status.records - bar.n)

        yield show


def tell_json() -> Tell:
    """Print the status when it has changed, as a line of JSON."""
    last = b""

    def write(status: Status) -> None:
        nonlocal last
        line = msgspec.json.encode(status)
        if line != last:
            last = line
            sys.stdout.buffer.write(line + b"\n")
            sys.stdout.buffer.flush()

    return write


def stop_on_signals(stopping: threading.Event) -> None:
    """Being asked to stop is no failure."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())


def stop_with_input(stopping: threading.Event) -> None:
    """Stop when whoever started us is gone, however that happened."""

    def wait() -> None:
        # Not by `sys.stdin`: a thread that holds it as Python ends makes it abort.
        while os.read(0, 4096):
            pass
        stopping.set()

    threading.Thread(target=wait, daemon=True).start()
