"""Reading sealed segments: by log and seq, by tag, by size.

Blocking; callers run it off the event loop.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from threading import Lock
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.core.limits import HELD_MAX
from headrace.core.log import Extent, Log
from headrace.core.match import TagEq, TagMatch
from headrace.core.record import Block, cut
from headrace.formats.manifest import Manifest, Segment
from headrace.formats.segment import INDEX_COLUMNS, Piece, block_of
from headrace.formats.table import read_table
from headrace.storage.builds import Builds
from headrace.storage.cache import Cache
from headrace.storage.companions import load_index, load_tags
from headrace.storage.object_store_stats import GET, HEAD, OPEN, Artifact, ObjectStoreStats
from headrace.storage.objects import Listed, Objects
from headrace.storage.replaced_objects import gone_is_vanished

T = TypeVar("T")

UNREADABLE = (pa.ArrowException, OSError, ValueError, LookupError, TypeError)
"""What Arrow raises on bytes that are no Parquet, or not the Parquet we wrote."""

_OPEN_FILES_MAX = 32
_INDEXES_MAX = 64
_INDEXES_BYTES = 32 << 20
"""Indexes that are kept however large they are, and how many bytes of them beyond: a log may lie in
thousands of small segments, and is read through all of them.
"""
_INDEX_OVERHEAD_BYTES = 8 << 10
"""What an index takes however small it is."""
_DOCUMENTS_BYTES = 16 << 20
_NS = 1_000_000
_COLUMNS = ["seq", "ts", "ns", "tag", "node", "key", "data", "meta"]


class SegmentShare(NamedTuple):
    """What a segment has of a log."""

    rows: int
    record_bytes: int
    last_ts_ms: int


class _Index:
    """The pieces of a segment, sorted by log and first seq."""

    def __init__(self, table: pa.Table) -> None:
        table = table.combine_chunks()
        self._columns = [
            memoryview(table.column(name).chunk(0).buffers()[1]).cast("B").cast("q")[: len(table)]
            for name in INDEX_COLUMNS
        ]
        self.size_bytes = table.nbytes + _INDEX_OVERHEAD_BYTES

    def pieces(self, log: int) -> tuple[int, int]:
        return bisect_left(self._columns[0], log), bisect_right(self._columns[0], log)

    def piece(self, at: int) -> Piece:
        return Piece(*(column[at] for column in self._columns))

    def find(self, log: int, seq: int) -> Piece | None:
        """The first piece of the log that reaches `seq`."""
        start, stop = self.pieces(log)
        at = bisect_left(self._columns[2], seq, start, stop)
        return self.piece(at) if at < stop else None

    def held(self, log: int) -> SegmentShare | None:
        start, stop = self.pieces(log)
        if start == stop:
            return None
        rows, sizes, stamps = self._columns[-3:]
        return SegmentShare(sum(rows[start:stop]), sum(sizes[start:stop]), stamps[stop - 1])

    def last_ts(self, log: int) -> int:
        """The time of the log's last record here; -1 when there is none."""
        start, stop = self.pieces(log)
        return self._columns[-1][stop - 1] if start < stop else -1

    def since(self, log: int, ts: int) -> Iterator[Piece]:
        """The pieces of the log that reach this time."""
        start, stop = self.pieces(log)
        for at in range(bisect_left(self._columns[-1], ts, start, stop), stop):
            yield self.piece(at)

    def extents(self) -> Iterator[tuple[int, int, int]]:
        """(log, first, last) for each log."""
        logs, firsts, lasts = self._columns[:3]
        at = 0
        while at < len(logs):
            stop = bisect_right(logs, logs[at], at)
            yield logs[at], firsts[at], lasts[stop - 1]
            at = stop


class _Obsolete(Exception):
    """These extents of a log were replaced by others."""


_Reach = tuple[Segment, int, int]
"""A segment and the first and last seq of a log in it."""
_last = itemgetter(2)
"""Of an extent: they ascend, and none reaches into the next."""


class Segments:
    """The segments of a manifest, with bounded caches of files, indexes and row groups."""

    def __init__(self, objects: Objects, cache_bytes: int) -> None:
        self._objects = objects
        self._known: dict[int, Segment] = {}
        self.requests = ObjectStoreStats()
        self.builds = Builds(objects, self.requests)
        self.documents: Cache[tuple[int, int]] = Cache(_DOCUMENTS_BYTES)
        """Records that were searched for, by log and seq: searches are asked again."""
        self.version = 0
        """Of the manifest in use."""
        self._lock = Lock()  # callers may be several threads
        self._files: OrderedDict[int, pq.ParquetFile] = OrderedDict()
        self._indexes: Cache[int] = Cache(_INDEXES_BYTES, _INDEXES_MAX)
        self._tables: Cache[tuple[int, int]] = Cache(cache_bytes, 1)
        """Row groups by segment."""
        self._held: OrderedDict[tuple[int, int], SegmentShare] = OrderedDict()
        """What was asked of segments and logs; it stays true, since numbers are used once."""

    @property
    def count(self) -> int:
        """Segments that can be read."""
        return len(self._known)

    def known(self, number: int) -> Segment | None:
        return self._known.get(number)

    def held(self, number: int, log: int) -> SegmentShare | None:
        """What a segment has of a log."""
        with self._lock:
            if (known := self._held.get((number, log))) is not None:
                self._held.move_to_end((number, log))
                return known
        segment = self._known.get(number)
        found = None if segment is None else self._index(segment, log).held(log)
        if found is not None:
            with self._lock:
                self._held[number, log] = found
                if len(self._held) > HELD_MAX:
                    self._held.popitem(last=False)
        return found

    def look(self, name: str, log: int, artifact: Artifact) -> Listed | None:
        """An object as a list shows it, for a log."""
        self.requests.count(log, artifact, HEAD)
        return self._objects.look(name)

    def load(self, name: str, log: int, artifact: Artifact) -> bytes | None:
        """A whole object, if it is there, for a log."""
        self.requests.count(log, artifact, GET)
        try:
            return self._objects.get(name)
        except FileNotFoundError:
            return None

    @property
    def cached_bytes(self) -> int:
        return self._tables.size_bytes

    def know(self, segments: Iterable[Segment]) -> None:
        """These can be read from now on, beside those of the manifest."""
        self._known = self._known | {segment.number: segment for segment in segments}

    def use(self, manifest: Manifest) -> None:
        """Switch to a manifest; what it does not name is forgotten.

        Whoever reads meanwhile by extents that it made obsolete takes the new ones.
        """
        known = {segment.number: segment for segment in manifest.segments}
        if not self._known.keys() <= known.keys():
            self.documents.clear()  # some may have been erased for good
        self._known = known
        self.version = manifest.version
        self.builds.use(manifest)
        with self._lock:
            for number in [n for n in self._files if n not in self._known]:
                del self._files[number]
        self._indexes.keep(known.__contains__)
        self._tables.keep(lambda key: key[0] in known)

    def extents(self, segment: Segment) -> Iterator[tuple[int, int, int]]:
        """(log, first, last) for each log in a segment."""
        return self._index(segment).extents()

    def read(self, log: Log, seq: int, rows_max: int) -> Block | None:
        """Records of the log from `seq` on, as many as lie together; None when no segment reaches
        it.
        """
        return self._look(log, lambda segments: self._read(log, seq, rows_max, segments), seq)

    def _look(self, log: Log, find: Callable[[Iterator[_Reach]], T], seq: int = 1) -> T:
        """What is found in the segments of a log that reach a seq; again, when they are replaced
        meanwhile.
        """
        while True:
            extents = log.extents
            try:
                return find(self._reaches(log, extents, seq))
            except _Obsolete:
                continue

    def _reaches(self, log: Log, extents: Sequence[Extent], seq: int) -> Iterator[_Reach]:
        for at in range(bisect_left(extents, seq, key=_last), len(extents)):
            number, first, last = extents[at]
            segment = self._known.get(number)
            if segment is not None:
                yield segment, first, last
            elif log.extents is not extents:
                raise _Obsolete
            # Otherwise the log is gone with all its records.

    def _read(self, log: Log, seq: int, rows_max: int, segments: Iterator[_Reach]) -> Block | None:
        for segment, _, _ in segments:
            piece = self._index(segment, log.id).find(log.id, seq)
            if piece is None:
                continue
            table = self._table(segment, piece.row_group, log.id)
            whole = block_of(table, piece.row_start, piece.row_start + piece.rows)
            start = whole.index(seq)
            if start < whole.count:
                at = piece.row_start + start
                return block_of(table, at, min(at + rows_max, piece.row_start + piece.rows))
        return None

    def seek(self, log: Log, at_ns: int, last: int) -> int | None:
        """The first sealed record of the log up to `last` that is of this time or later.

        Times never fall, so a few looks at indexes find it, however much there is.
        """
        return self._look(log, lambda segments: self._seek(log, at_ns, last, segments))

    def _seek(self, log: Log, at_ns: int, last: int, segments: Iterator[_Reach]) -> int | None:
        known = [segment for segment, first, _ in segments if first <= last]
        at_ms = at_ns // _NS
        at = bisect_left(
            known, at_ms, key=lambda segment: self._index(segment, log.id).last_ts(log.id)
        )
        for segment in known[at:]:
            index = self._index(segment, log.id)
            for piece in index.since(log.id, at_ms):
                table = self._table(segment, piece.row_group, log.id)
                block = block_of(table, piece.row_start, piece.row_start + piece.rows)
                row = bisect_left(range(block.count), at_ns, key=block.ns_at)
                if row < block.count:
                    seq = block.seq_at(row)
                    return seq if seq <= last else None
        return None

    def blocks(self, log: Log, first: int, last: int) -> Iterator[Block]:
        """All sealed records of the log in [first, last], ascending."""
        return self.parts(log, ((first, last),))

    def parts(self, log: Log, wanted: Iterable[tuple[int, int]]) -> Iterator[Block]:
        """The sealed records of the log in these ranges, which ascend.

        What lies together is read once, however many of the ranges are in it.
        """
        block: Block | None = None
        for first, last in wanted:
            seq = first
            while seq <= last:
                if block is None or block.last < seq:
                    block = self.read(log, seq, 1 << 30)
                if block is None:
                    return
                start, stop = block.index(seq), block.stop_index(last)
                if start < stop:
                    yield cut(block, start, stop)
                seq = block.last + 1

    def tagged(self, log: Log, match: TagMatch, before: int) -> list[tuple[int, int]]:
        """(seq, size) of the log's sealed records whose tag matches, ascending, below `before`."""
        return self._look(log, lambda segments: self._tagged(log, match, before, segments))

    def _tagged(
        self, log: Log, match: TagMatch, before: int, segments: Iterator[_Reach]
    ) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for segment, first, _ in segments:
            if segment.tags is None or first >= before:
                continue
            self.requests.count(log.id, Artifact.TAGS, OPEN + GET)
            table = pq.read_table(
                self._open_tags(segment, segment.tags),
                columns=["seq", "size"],
                filters=_tag_filter(log.id, match) & (pc.field("seq") < before),
            )
            seqs, sizes = table.column("seq").to_pylist(), table.column("size").to_pylist()
            found.extend(sorted(zip(seqs, sizes, strict=True)))
        return found

    def _open_tags(self, segment: Segment, name: str) -> pa.NativeFile:
        try:
            return self._objects.open(name)
        except FileNotFoundError:
            return pa.BufferReader(load_tags(self._objects, segment))

    def _index(self, segment: Segment, log: int | None = None) -> _Index:
        index: _Index | None = self._indexes.get(segment.number)
        if index is None:
            if log is not None:
                self.requests.count(log, Artifact.INDEX, GET)
            index = _Index(read_table(load_index(self._objects, segment)))
            self._indexes.put(segment.number, index, index.size_bytes)
        return index

    def _table(self, segment: Segment, row_group: int, log: int) -> pa.Table:
        key = (segment.number, row_group)
        with self._lock:  # a file is read by one at a time
            table: pa.Table | None = self._tables.get(key)
            if table is not None:
                return table
            with gone_is_vanished(segment.name):
                file = self._file(segment, log)
                self.requests.count(log, Artifact.SEGMENT, GET)
                table = file.read_row_group(row_group, columns=_COLUMNS, use_threads=False)
            table = table.combine_chunks()
            self._tables.put(key, table, table.nbytes)
        return table

    def _file(self, segment: Segment, log: int) -> pq.ParquetFile:
        file = self._files.get(segment.number)
        if file is None:
            self.requests.count(log, Artifact.SEGMENT, OPEN)
            file = pq.ParquetFile(self._objects.open(segment.name))
            self._files[segment.number] = file
            while len(self._files) > _OPEN_FILES_MAX:
                self._files.popitem(last=False)
        self._files.move_to_end(segment.number)
        return file


def _tag_filter(log: int, match: TagMatch) -> pc.Expression:
    of_log = pc.field("log_id") == log
    if isinstance(match, TagEq):
        return of_log & (pc.field("tag") == match.tag)
    # The lower bound lets row groups be passed over; the prefix decides.
    wanted = of_log & (pc.field("tag") >= match.prefix)
    return wanted & pc.starts_with(pc.field("tag"), match.prefix)
