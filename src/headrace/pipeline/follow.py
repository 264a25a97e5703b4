"""Following: every segment is indexed soon after it is published, and again when plans change."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from tqdm import tqdm

from headrace.formats import layout
from headrace.formats.manifest import Manifest, Segment
from headrace.pipeline import crash_points
from headrace.pipeline.errors import JobFailed, Unpublished
from headrace.pipeline.failures import failure
from headrace.pipeline.index import NOTHING_TO_INDEX, Failure, Indexed, index, total
from headrace.pipeline.index_backlog import IndexBacklogFinder, Unit, grouped
from headrace.pipeline.limits import POLL_S
from headrace.pipeline.merge import merge_all
from headrace.pipeline.report import Report
from headrace.pipeline.session import is_remote, scratch_folder
from headrace.pipeline.store_location import StoreLocation
from headrace.printing import count, size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


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


class Indexer:
    """What Spark calls with each batch: index what waits, group by group.

    The batch only says that there is something to do. What exactly is looked up again for every
    group, oldest first, so a segment that comes or goes meanwhile is seen. Over Spark Connect this
    runs in the server, in a copy: nobody here sees what it notes.
    """

    def __init__(self, place: StoreLocation, *, merging: bool, strict: bool) -> None:
        self._place = place
        self._merging = merging
        self._strict = strict
        """Fail when everything is done, if something could not be."""
        self._gave_up: set[int] = set()
        self.done = Indexed()
        self.seconds = 0.0

    def __call__(self, frame: DataFrame, batch: int) -> None:
        spark = frame.sparkSession
        wanted = {row.number for row in frame.collect()}
        crash_points.point("batch")
        pending = IndexBacklogFinder(self._place)
        stood_still = False
        while wanted:
            work = pending.look()
            due = [unit for unit in work.units if self._is_due(unit, wanted)]
            group = next(grouped(due), None)
            if group is None:
                break
            started = time.monotonic()
            try:
                done = index(spark, self._place, work, group)
            except Unpublished:
                if stood_still:
                    raise
                stood_still = True
                continue  # taken for dead, and the files for nobody's: once more
            self._gave_up |= {failure.segment for failure in done.failures}
            wanted -= {segment.number for unit in group for segment in unit.segments}
            self.seconds += time.monotonic() - started
            self.done = total((self.done, done))
        if self._merging:
            for _ in merge_all(spark, self._place):
                pass
        if self._strict and self.done.failures:
            raise JobFailed("; ".join(map(_problem, self.done.failures)))

    def _is_due(self, unit: Unit, wanted: set[int]) -> bool:
        numbers = {segment.number for segment in unit.segments}
        return not wanted.isdisjoint(numbers) and self._gave_up.isdisjoint(numbers)


class IndexerStatus:
    """Tells how an indexer is doing: by what it noted, or by what it published."""

    def __init__(self, place: StoreLocation, indexer: Indexer | None) -> None:
        self._pending = IndexBacklogFinder(place)
        self._indexer = indexer
        self._started = time.monotonic()
        self._waited: dict[int, Segment] = {}
        self._published = Indexed()
        self.status = Status()

    @property
    def done(self) -> Indexed:
        return self._published if self._indexer is None else self._indexer.done

    def look(self) -> Status:
        """The status, with what waits right now."""
        work = self._pending.look()
        waiting = {s.number: s for unit in work.units for s in unit.segments}
        self._count(work.manifest, waiting)
        status, done = self.status, self.done
        if done.segments > status.segments:
            status.committed_at_ms = int(time.time() * 1000)
        status.segments, status.records = done.segments, done.rows
        status.failures = len(done.failures)
        status.problem = done.failures[-1].problem if done.failures else None
        seconds = (
            self._indexer.seconds if self._indexer is not None else time.monotonic() - self._started
        )
        status.records_per_s = round(done.rows / seconds, 1) if done.rows else 0.0
        status.waiting_segments = len(waiting)
        status.waiting_records = sum(segment.rows for segment in waiting.values())
        status.lag_s = self._lag_s(work.manifest, list(waiting.values()))
        return status

    def _count(self, manifest: Manifest, waiting: dict[int, Segment]) -> None:
        """Segments that waited, are there, and wait no more, are done."""
        done = {n: s for n, s in self._waited.items() if n in manifest.numbers and n not in waiting}
        self._published.segments += len(done)
        self._published.rows += sum(segment.rows for segment in done.values())
        self._published.file_bytes += sum(
            build.file_bytes
            for build in manifest.builds
            if not done.keys().isdisjoint(build.segments)
        )
        self._waited = waiting

    def _lag_s(self, manifest: Manifest, segments: Sequence[Segment]) -> float:
        """Since the oldest was published; or, if it is to be indexed again, since plans changed."""
        if not segments:
            return 0.0
        stored = self._stored_ms(layout.SEGMENTS)
        planned_ms = max(self._stored_ms(layout.PLANS).values(), default=0)
        again = {number for build in manifest.builds for number in build.segments}
        since_ms = min(
            max(stored.get(segment.name, 0), planned_ms if segment.number in again else 0)
            for segment in segments
        )
        return round(max(0.0, time.time() - since_ms / 1000), 3) if since_ms else 0.0

    def _stored_ms(self, folder: str) -> dict[str, int]:
        return {one.name: one.modified_ms for one in self._pending.objects.list(folder)}


def follow(
    spark: SparkSession,
    place: StoreLocation,
    *,
    once: bool = False,
    merging: bool = True,
    poll_s: float = POLL_S,
    checkpoint: Path | None = None,
    stopping: threading.Event | None = None,
    tell: Tell = lambda status: None,
) -> Report:
    """Index until told to stop, or once everything that is there."""
    from headrace.pipeline.source import NAME, SegmentsSource

    stopping = stopping or threading.Event()
    remote = is_remote(spark)
    # What fails in a server can be told only by failing; that ends a query that should go on.
    indexer = Indexer(place, merging=merging, strict=remote and once)
    follower = IndexerStatus(place, None if remote else indexer)
    follower.look()
    spark.dataSource.register(SegmentsSource)
    where = {"data_dir": str(place.data_dir), "objects": place.objects or ""}
    rows = spark.readStream.format(NAME).options(**where).load()
    trigger: Any = {"availableNow": True} if once else {"processingTime": f"{poll_s} seconds"}
    # Spark wants a place to remember how far it came; nobody needs to find it again.
    with scratch_folder() as scratch:
        query = (
            rows.writeStream.foreachBatch(indexer)
            .option("checkpointLocation", str(checkpoint or scratch))
            .queryName("follow")
            .trigger(**trigger)
            .start()
        )
        try:
            _watch(query, follower, stopping, tell)
        finally:
            query.stop()
    return _report(place, follower)


def _watch(
    query: StreamingQuery, follower: IndexerStatus, stopping: threading.Event, tell: Tell
) -> None:
    from pyspark.errors import StreamingQueryException

    try:
        while query.isActive and not stopping.is_set():
            tell(follower.look())
            query.awaitTermination(1)
        if not query.isActive:
            query.awaitTermination(1)
    except StreamingQueryException as error:
        raise failure(error) from None
    tell(follower.look())


def _report(place: StoreLocation, follower: IndexerStatus) -> Report:
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
    return Report("", [], f"{place}: {what}", [_problem(one) for one in done.failures])


def _problem(failure: Failure) -> str:
    return f"segment {failure.segment} cannot be indexed: {failure.problem}"


# --- telling ---


@contextmanager
def telling(as_json: bool) -> Iterator[Tell]:
    """Lines of JSON for a program, else a bar for a person."""
    if as_json:
        yield _tell_json()
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


def _tell_json() -> Tell:
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
