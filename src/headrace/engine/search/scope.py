"""Where the records of a log are, for one request: in builds, in segments without one, in memory.

A scope is taken on the event loop, in one step. What it names stays readable while others append,
delete and change generations; the files it names may vanish, and then whoever looks takes another
scope (`Reader.again`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace.core import ranges
from headrace.core.log import Extent, Log
from headrace.core.ranges import Ranges
from headrace.core.record import Block, cut
from headrace.engine.open_log import OpenLog
from headrace.engine.search.time_slices import Deadline
from headrace.formats.leb128 import Ints
from headrace.formats.manifest import Build
from headrace.search.companions import Companions
from headrace.search.config import Search
from headrace.search.lookup import IndexLookup
from headrace.storage.segments import Segments

if TYPE_CHECKING:
    from headrace.engine.engine import Engine

T = TypeVar("T")

Promote = Callable[[Sequence[int], Sequence[bytes]], Sequence[bytes | None]]
"""Documents as they are in the current schema version, given their seqs; None for one that cannot
be.
"""

_last = attrgetter("last")

BATCH_ROWS = 512
BATCH_BYTES = 1 << 20
"""Documents that are looked at between two looks at the clock."""


class ScanBatch:
    """Live records that no build speaks for, ascending."""

    __slots__ = ("_promote", "blocks", "sealed")

    def __init__(self, blocks: list[Block], sealed: bool, promote: Promote | None) -> None:
        self.blocks = blocks
        self.sealed = sealed
        """Whether they came from a segment."""
        self._promote = promote

    @property
    def first(self) -> int:
        return self.blocks[0].first

    @property
    def last(self) -> int:
        return self.blocks[-1].last

    @property
    def count(self) -> int:
        return sum(block.count for block in self.blocks)

    @property
    def seqs(self) -> list[int]:
        return [seq for block in self.blocks for seq in _seqs(block)]

    @property
    def stored(self) -> list[bytes]:
        """The documents as they were written."""
        return [raw for block in self.blocks for raw in block.payloads()]

    @property
    def raws(self) -> Sequence[bytes | None]:
        """The documents as they are searched."""
        return self.stored if self._promote is None else self._promote(self.seqs, self.stored)

    @property
    def keys(self) -> list[str | None]:
        """What each record belongs to."""
        return [key for block in self.blocks for key in block.keys or [None] * block.count]


def _seqs(block: Block) -> Sequence[int]:
    return range(block.first, block.last + 1) if block.seqs is None else block.seqs.tolist()


class IndexedSpan(NamedTuple):
    """Records of a log that a build speaks for."""

    log: int
    build: Build
    spans: Ranges
    """Their seqs, and perhaps some that are not there."""
    segments: frozenset[int]


class LogSpan(NamedTuple):
    """A log, and from where to where its records are looked at."""

    log: Log
    first: int
    last: int
    extents: Sequence[Extent]
    tail_start: int
    blocks: Sequence[Block]
    volatile: Ranges


class SearchScope:
    """The records of a log that can be seen now, those that it inherited among them.

    Made on the event loop; what it is asked then reads files, so that is for a thread.
    """

    def __init__(
        self, engine: Engine, live: OpenLog, plan: str | None, deadline: Deadline | None = None
    ) -> None:
        """`plan` is the hash of the plan that builds must have been made by; without one every
        build will do, which is right for keys. Once the deadline is over, whatever reads files
        raises `TimeUp`.
        """
        log = live.log
        self.log = log
        self.head = live.visible
        self.floor = log.floor
        self.dead: Ranges = tuple(log.gone)
        """Seqs at or above the floor that hold no live record."""
        self._engine = engine
        self._plan = plan
        self._deadline = deadline or Deadline()
        promoter = engine.ingest.promoter(log)
        self._promote: Promote | None = None if promoter is None else promoter.attempt
        self._segments: Segments = engine.segments
        self.log_spans = list(_log_spans(engine, live, self.head))
        self._build_of = {
            number: build
            for span in self.log_spans
            for number, _, _ in span.extents
            if (build := self._segments.builds.of(number)) is not None
        }

    def live_ranges(self, first: int = 1, last: int | None = None) -> Iterator[tuple[int, int]]:
        """The seqs in [first, last] that may hold live records, ascending."""
        last = self.head if last is None else min(last, self.head)
        return ranges.outside(self.dead, max(first, self.floor), last)

    def alive(self, seqs: Ints) -> Ints:
        """Those of ascending seqs that are live and visible."""
        start, stop = np.searchsorted(seqs, [self.floor, self.head + 1])
        seqs = seqs[start:stop]
        return seqs[~_between_edges(seqs, self._dead_edges)] if self.dead and len(seqs) else seqs

    @cached_property
    def _dead_edges(self) -> Ints:
        """Made once: a search asks for every build and every list of seqs."""
        return _edges(self.dead)

    # --- indexed ---------------------------------------------------------------------------------

    @cached_property
    def indexed_spans(self) -> list[IndexedSpan]:
        """What builds speak for, ascending; reads descriptors."""
        found: list[IndexedSpan] = []
        for span in self.log_spans:
            by_build: dict[str, tuple[Build, list[int], set[int]]] = {}
            for number, first, last in span.extents:
                build = self._build_of.get(number)
                first, last = max(first, span.first, self.floor), min(last, span.last)
                if build is None or first > last:
                    continue
                _, spans, segments = by_build.setdefault(build.name, (build, [], set()))
                for low, high in self._spans(build, span.log.id, first, last):
                    spans += (low, high)
                    segments.add(number)
            for build, spans, segments in by_build.values():
                kept = _without(spans, span.volatile)
                if kept:
                    found.append(IndexedSpan(span.log.id, build, kept, frozenset(segments)))
        return found

    def _spans(self, build: Build, log: int, first: int, last: int) -> list[tuple[int, int]]:
        """What a build knows of these seqs of a log."""
        if self._plan is None:
            return [(first, last)]
        self._deadline.check()
        described = self._segments.builds.describe(build, self.log.id)
        part = next((part for part in described.parts if part.log == log), None)
        if part is None or part.hash != self._plan:
            return []
        flat = [seq for span in part.spans for seq in span]
        return list(ranges.overlap(flat, first, last))

    def fall_back_to_scan(self, indexed: IndexedSpan) -> None:
        """Have the records looked at, because the build cannot answer what is asked."""
        self.indexed_spans.remove(indexed)
        self.__dict__.pop("covered", None)

    @contextmanager
    def companions(self, indexed: IndexedSpan) -> Iterator[Companions]:
        """The files of a build, for this thread alone meanwhile."""
        builds, wait_s = self._segments.builds, self._deadline.left_s
        with builds.open(indexed.build, self.log.id, wait_s) as companions:
            companions.spent, companions.tick = {}, self._deadline.check
            yield companions

    @contextmanager
    def lookup(self, indexed: IndexedSpan, search: Search) -> Iterator[IndexLookup]:
        """Answers from a build, for this thread alone meanwhile."""
        with self.companions(indexed) as companions:
            yield IndexLookup(companions, indexed.log, search)

    def only(self, indexed: IndexedSpan, seqs: Ints) -> Ints:
        """Those of a build's answer that are live and that the build speaks for."""
        spans = indexed.spans
        if len(spans) == 2:
            start, stop = np.searchsorted(seqs, [spans[0], spans[1] + 1])
            return self.alive(seqs[start:stop])
        return self.alive(seqs[within(seqs, spans)])

    # --- scanned ---------------------------------------------------------------------------------

    def batches(self, first: int = 1, rows: int | None = None) -> Iterator[ScanBatch]:
        """The live records from `first` on that no build speaks for, ascending."""
        covered = self.covered
        for span in self.log_spans:
            for low, high in ranges.outside(covered, max(first, span.first), span.last):
                yield from self._batches(span, low, high, rows or BATCH_ROWS, self._deadline)

    @cached_property
    def covered(self) -> Ranges:
        """The seqs that builds speak for."""
        found: list[int] = []
        for indexed in self.indexed_spans:
            for low, high in ranges.pairs(indexed.spans):
                ranges.add(found, low, high)
        return found

    def records(self, first: int, last: int, deadline: Deadline) -> Iterator[ScanBatch]:
        """The live records in [first, last], builds or no builds, ascending."""
        for span in self.log_spans:
            low, high = max(first, span.first), min(last, span.last)
            yield from self._batches(span, low, high, BATCH_ROWS, deadline)

    def pieces(self, first: int, last: int) -> Iterator[tuple[int, int, IndexedSpan | None]]:
        """The seqs in [first, last], as far as they are visible, and who speaks for them."""
        spans = sorted(
            (low, high, at)
            for at, indexed in enumerate(self.indexed_spans)
            for low, high in ranges.pairs(indexed.spans)
        )
        start, stop = max(first, self.floor), min(last, self.head)
        for low, high, at in spans:
            low, high = max(low, start), min(high, stop)
            if low > high:
                continue
            if start < low:
                yield start, low - 1, None
            yield low, high, self.indexed_spans[at]
            start = high + 1
        if start <= stop:
            yield start, stop, None

    def _batches(
        self, span: LogSpan, first: int, last: int, rows: int, deadline: Deadline
    ) -> Iterator[ScanBatch]:
        """The live records of a log in [first, last], whatever holes there are between them.

        A batch may need many segments, so the clock is looked at after each part of it; what was
        read until then is a batch.
        """
        held: list[Block] = []
        count, size, sealed = 0, 0, False
        for block, from_segment in self._pieces(span, first, last):
            if held and from_segment != sealed:
                yield ScanBatch(held, sealed, self._promote)
                held, count, size = [], 0, 0
            sealed = from_segment
            for start, stop, part_bytes in _parts(block, rows):
                held.append(cut(block, start, stop))
                count += stop - start
                size += part_bytes
                if count >= rows or size >= BATCH_BYTES or deadline.over:
                    yield ScanBatch(held, sealed, self._promote)
                    held, count, size = [], 0, 0
                    deadline.check()  # here alone, where nothing is held that would be passed over
        if held:
            yield ScanBatch(held, sealed, self._promote)

    def _pieces(self, span: LogSpan, first: int, last: int) -> Iterator[tuple[Block, bool]]:
        """The live records in [first, last], and whether they come from a segment."""
        start = span.tail_start
        sealed = self.live_ranges(first, min(last, start - 1))
        for block in self._segments.parts(span.log, sealed):
            yield block, True
        for low, high in self.live_ranges(max(first, start), last):
            for block in _between(span.blocks, low, high):
                yield block, False

    # --- one by one ------------------------------------------------------------------------------

    def fetch(self, seqs: Sequence[int]) -> Mapping[int, bytes | None]:
        """The documents of these seqs, ascending, as they are searched; without those that are
        gone by now.
        """
        found: dict[int, bytes] = {}
        for span in self.log_spans:
            start, stop = bisect_left(seqs, span.first), bisect_right(seqs, span.last)
            found |= self._fetch(span, seqs[start:stop])
        if self._promote is not None and found:
            raws = self._promote(list(found), list(found.values()))
            return dict(zip(found, raws, strict=True))
        return found

    def _fetch(self, span: LogSpan, seqs: Sequence[int]) -> dict[int, bytes]:
        """The documents of one log, as they were written."""
        log, kept = span.log.id, self._segments.documents
        found: dict[int, bytes] = {seq: raw for seq in seqs if (raw := kept.get((log, seq)))}
        for block, picks in self._pick(span, [seq for seq in seqs if seq not in found]):
            for at in picks:
                seq, raw = block.seq_at(at), block.data_at(at)
                found[seq] = raw
                if seq < span.tail_start:
                    kept.put((log, seq), raw, len(raw))
        return {seq: found[seq] for seq in seqs if seq in found}

    def pick(self, seqs: Sequence[int]) -> Iterator[tuple[Block, list[int]]]:
        """Blocks with these seqs, ascending, and their indices in them."""
        for span in self.log_spans:
            start, stop = bisect_left(seqs, span.first), bisect_right(seqs, span.last)
            yield from self._pick(span, seqs[start:stop])

    def _pick(self, span: LogSpan, seqs: Sequence[int]) -> Iterator[tuple[Block, list[int]]]:
        start = 0
        while start < len(seqs):
            block = self._block_of(span, seqs[start])
            end = start + 1 if block is None else bisect_right(seqs, block.last, start)
            if block is not None:
                picks = [(block.index(seq), seq) for seq in seqs[start:end]]
                there = [at for at, seq in picks if at < block.count and block.seq_at(at) == seq]
                if there:
                    yield block, there
            start = max(end, start + 1)

    def _block_of(self, span: LogSpan, seq: int) -> Block | None:
        """A block that reaches this seq."""
        if seq < span.tail_start:
            return self._segments.read(span.log, seq, 1 << 30)
        return next(_between(span.blocks, seq, seq, whole=True), None)

    def appended_ms(self, seq: int) -> int | None:
        """When the first record at or behind a seq was appended."""
        for span in self.log_spans:
            if seq > span.last:
                continue
            block: Block | None = None
            if seq < span.tail_start:
                block = self._segments.read(span.log, max(seq, span.first), 1)
            if block is None:
                block = next(_between(span.blocks, seq, span.last), None)
            if block is not None:
                return block.ts_at(0)
        return None


def _between(
    blocks: Sequence[Block], first: int, last: int, *, whole: bool = False
) -> Iterator[Block]:
    """The blocks with seqs in [first, last], cut to them unless they are wanted whole."""
    for at in range(bisect_left(blocks, first, key=_last), len(blocks)):
        block = blocks[at]
        if block.first > last:
            return
        start, stop = block.index(first), block.stop_index(last)
        if start < stop:
            yield block if whole else cut(block, start, stop)


def _parts(block: Block, rows: int) -> Iterator[tuple[int, int, int]]:
    """(start, stop, payload bytes) of parts that fit a batch."""
    cuts = block.cuts()
    start, base = 0, block.base
    while start < block.count:
        most = min(start + rows, block.count)
        stop = max(start + 1, bisect_right(cuts, base + BATCH_BYTES, start, most))
        yield start, stop, cuts[stop - 1] - base
        start, base = stop, cuts[stop - 1]


def _log_spans(engine: Engine, live: OpenLog, last: int) -> Iterator[LogSpan]:
    log = live.log
    inherited = min(log.inherited, last)
    if inherited:
        yield from _log_spans(engine, engine.source_of(live), inherited)
    if inherited < last:
        yield LogSpan(
            log,
            inherited + 1,
            last,
            log.extents,
            live.tail.start,
            tuple(live.tail.blocks),
            tuple(log.volatile),
        )


def _without(spans: Ranges, others: Ranges) -> Ranges:
    if not others:
        return spans
    return [
        seq
        for low, high in ranges.pairs(spans)
        for kept in ranges.outside(others, low, high)
        for seq in kept
    ]


def within(seqs: Ints, flat: Ranges) -> NDArray[np.bool_]:
    """Which of the seqs are in a set of ranges."""
    return _between_edges(seqs, _edges(flat))


def _edges(flat: Ranges) -> Ints:
    """Where the set begins and ends, in turns."""
    edges = np.array(flat, np.int64)
    edges[1::2] += 1
    return edges


def _between_edges(seqs: Ints, edges: Ints) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.searchsorted(edges, seqs, "right") % 2 == 1
    return found
