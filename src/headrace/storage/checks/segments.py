"""Segments: the file as it was sealed, its rows in order, its companions saying the same."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, zip_longest

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from xxhash import xxh3_64, xxh3_64_hexdigest

from headrace.core.limits import RECORD_OVERHEAD_BYTES
from headrace.formats.manifest import Segment
from headrace.formats.segment import INDEX_COLUMNS, INDEX_SCHEMA, SCHEMA, TAGS_SCHEMA, Piece
from headrace.formats.table import read_table
from headrace.storage.checks.agreement import Agreement
from headrace.storage.checks.contents import content_problem
from headrace.storage.checks.findings import Advance, Finding, Problem, row
from headrace.storage.checks.manifests import path_of
from headrace.storage.checks.payloads import bad_json
from headrace.storage.objects import Objects
from headrace.storage.segments import UNREADABLE

_CHUNK_BYTES = 1 << 20
_MISSING = "the manifest names it, and it is missing"
_MISMATCH = "checksum mismatch: the bytes are not what was sealed"
_KEYS = ["log", "log_id", "seq", "ts"]
_TAG_ORDER = [(name, "ascending") for name in ("log_id", "tag", "seq")]


class SegmentCheck:
    """Reads one segment from its first byte to its last row."""

    def __init__(
        self, objects: Objects, segment: Segment, agreement: Agreement, advance: Advance
    ) -> None:
        self._objects = objects
        self._segment = segment
        self._path = path_of(segment.name)
        self._agreement = agreement
        self._advance = advance
        self._pieces: list[Piece] = []
        self._tagged: list[pa.Table] = [TAGS_SCHEMA.empty_table()]

    def run(self) -> Iterator[Finding]:
        """Findings of the segment and its companions. Rows of a damaged file are not looked at."""
        damage = self._damage()
        if damage is None:
            try:
                yield from self._check_rows(pq.ParquetFile(self._objects.open(self._segment.name)))
            except UNREADABLE as error:
                damage = f"cannot be read as Parquet: {error}"
        if damage is not None:
            self._agreement.doubt(self._segment.number)
            yield Problem(self._path, "", damage)
            return
        yield from self._check_totals()
        yield from self._check_companion(
            self._segment.index, self._segment.index_checksum, _index_table(self._pieces)
        )
        yield from self._check_tags()
        yield from self._agreement.close_segment(self._segment.number, self._path)

    def _damage(self) -> str | None:
        """What is wrong with the file as a whole."""
        digest, size = xxh3_64(), 0
        try:
            with self._objects.open(self._segment.name) as file:
                while chunk := file.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    size += len(chunk)
                    self._advance(len(chunk))
        except FileNotFoundError:
            return _MISSING
        if size != self._segment.file_bytes:
            return f"{size} bytes where the manifest says {self._segment.file_bytes}"
        if digest.hexdigest() != self._segment.checksum:
            return _MISMATCH
        return None

    # --- rows ---

    def _check_rows(self, file: pq.ParquetFile) -> Iterator[Finding]:
        if not file.schema_arrow.equals(SCHEMA):
            self._agreement.doubt(self._segment.number)
            yield Problem(self._path, "", "its columns are not those of a segment")
            return
        base, before = 0, SCHEMA.empty_table().select(_KEYS)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, use_threads=False).combine_chunks()
            keys = table.select(_KEYS)
            for at, what in _disorder(pa.concat_tables([before, keys]).combine_chunks()):
                yield Problem(self._path, row(base - len(before) + at), what)
            for name, raws in _json_columns(table):
                for at in bad_json(raws):
                    yield Problem(self._path, row(base + at), f"its {name} is not JSON")
            yield from self._check_contents(table, base)
            yield from self._take(table, group)
            base, before = base + len(table), keys.slice(max(0, len(keys) - 1))
            self._advance(self._segment.file_bytes * len(table) // max(1, self._segment.rows))

    def _check_contents(self, table: pa.Table, base: int) -> Iterator[Finding]:
        """Rows of logs that hold contents are what their keys say."""
        logs = table.column("log_id")
        wanted = [log for log in pc.unique(logs).to_pylist() if self._agreement.holds_contents(log)]
        if not wanted:
            return
        for at in pc.indices_nonzero(pc.is_in(logs, pa.array(wanted, pa.int64()))).to_pylist():
            key, data = table.column("key")[at].as_py(), table.column("data")[at].as_py()
            if what := content_problem(key, data):
                yield Problem(self._path, row(base + at), what)

    def _take(self, table: pa.Table, group: int) -> Iterator[Finding]:
        """Remember what the companions must say of these rows, and count what is live."""
        sizes = _sizes(table)
        stamps = table.column("ts")
        table = table.select(["log_id", "tag", "seq"]).append_column("size", sizes)
        table = table.cast(TAGS_SCHEMA)  # the same columns, but for what may be null
        pieces = _pieces(table, stamps, group)
        self._pieces.extend(pieces)
        self._tagged.append(table.filter(pc.is_valid(table.column("tag"))))
        for piece in pieces:
            rows = table.slice(piece.row_start, piece.rows)
            yield from self._agreement.take(piece, rows, self._path)

    def _check_totals(self) -> Iterator[Finding]:
        for title, said, found in (
            ("rows", self._segment.rows, sum(piece.rows for piece in self._pieces)),
            ("logs", self._segment.logs, len({piece.log for piece in self._pieces})),
            (
                "bytes of records",
                self._segment.record_bytes,
                sum(piece.record_bytes for piece in self._pieces),
            ),
        ):
            if said != found:
                yield Problem(self._path, "", f"{found} {title}; the manifest says {said}")
        segment, pieces = self._segment, self._pieces
        for title, bound, real in (
            ("first seq", segment.seq_min, min((piece.first for piece in pieces), default=None)),
            ("last seq", segment.seq_max, max((piece.last for piece in pieces), default=None)),
            ("last time", segment.ts_max, max((piece.last_ts for piece in pieces), default=None)),
        ):
            if bound is not None and bound != real:
                yield Problem(self._path, "", f"{title} {real}; the manifest says {bound}")

    # --- companions ---

    def _check_tags(self) -> Iterator[Finding]:
        expected = pa.concat_tables(self._tagged).sort_by(_TAG_ORDER)
        if self._segment.tags is not None:
            checksum = self._segment.tags_checksum
            yield from self._check_companion(self._segment.tags, checksum, expected)
        elif len(expected):
            what = f"{len(expected)} records have a tag; the manifest names no tag companion"
            yield Problem(self._path, "", what)

    def _check_companion(
        self, name: str, checksum: str | None, expected: pa.Table
    ) -> Iterator[Finding]:
        """Is the file what was sealed, and does it say what the rows say?"""
        path = path_of(name)
        try:
            raw = self._objects.get(name)
        except FileNotFoundError:
            yield Problem(path, "", _MISSING)
            return
        self._advance(len(raw))
        if xxh3_64_hexdigest(raw) != checksum:
            yield Problem(path, "", _MISMATCH)
            return
        try:
            table = read_table(raw)
        except UNREADABLE as error:
            yield Problem(path, "", f"cannot be read as Parquet: {error}")
            return
        if not table.schema.equals(expected.schema):
            yield Problem(path, "", "its columns are not those of this companion")
        elif not table.equals(expected):
            at, said, found = _first_difference(table, expected)
            yield Problem(path, row(at), f"says {said} where the rows say {found}")


def _disorder(keys: pa.Table) -> Iterator[tuple[int, str]]:
    """The first row that breaks each rule of order."""
    last = max(0, len(keys) - 1)
    before, after = keys.slice(0, last), keys.slice(1)
    (name, log, seq, ts), (name_, log_, seq_, ts_) = before.columns, after.columns
    same = pc.equal(log, log_)
    earlier = pc.or_(pc.greater(name, name_), pc.and_(pc.equal(name, name_), pc.greater(log, log_)))
    for broken, what in (
        (pc.and_(same, pc.not_equal(name, name_)), "its log has another name in the row before"),
        (pc.and_(same, pc.greater_equal(seq, seq_)), "its seq is not above the one before"),
        (pc.and_(same, pc.greater(ts, ts_)), "its time is before that of the row before"),
        (pc.and_(pc.invert(same), earlier), "its log sorts before the one of the row before"),
    ):
        at = pc.index(broken, pa.scalar(True)).as_py()
        if at >= 0:
            yield at + 1, what


def _sizes(table: pa.Table) -> pa.ChunkedArray:
    """What each row counts for."""
    data = pc.binary_length(table.column("data"))
    meta = pc.coalesce(pc.binary_length(table.column("meta")), pa.scalar(0, pa.int32()))
    return pc.add(pc.add(data, meta).cast(pa.int64()), RECORD_OVERHEAD_BYTES)


def _json_columns(table: pa.Table) -> Iterator[tuple[str, list[bytes | None]]]:
    """The columns that hold JSON, with nothing where a row says that it holds something else."""
    is_json = pc.is_null(table.column("media"))
    yield "data", pc.if_else(is_json, table.column("data"), None).to_pylist()
    yield "meta", table.column("meta").cast(pa.binary()).to_pylist()


def _pieces(table: pa.Table, stamps: pa.ChunkedArray, group: int) -> list[Piece]:
    """The rows of each log in one row group."""
    runs = pc.run_end_encode(table.column("log_id").combine_chunks())
    stops = runs.run_ends.to_pylist()
    starts, ends = [0, *stops[:-1]], [stop - 1 for stop in stops]
    seqs = table.column("seq")
    sums = [0, *pc.cumulative_sum(table.column("size")).take(ends).to_pylist()]
    columns = runs.values.to_pylist(), seqs.take(starts).to_pylist(), seqs.take(ends).to_pylist()
    last_ts = stamps.take(ends).to_pylist()
    return [
        Piece(log, first, last, group, start, stop - start, after - before, ts)
        for log, first, last, start, stop, (before, after), ts in zip(
            *columns, starts, stops, pairwise(sums), last_ts, strict=True
        )
    ]


def _index_table(pieces: list[Piece]) -> pa.Table:
    rows = sorted(msgspec.structs.astuple(piece) for piece in pieces)
    columns = zip(*rows, strict=True) if rows else [()] * len(INDEX_COLUMNS)
    arrays = [pa.array(column, pa.int64()) for column in columns]
    return pa.Table.from_arrays(arrays, schema=INDEX_SCHEMA)


def _first_difference(said: pa.Table, found: pa.Table) -> tuple[int, object, object]:
    rows = zip_longest(said.to_pylist(), found.to_pylist())
    return next((at, a, b) for at, (a, b) in enumerate(rows) if a != b)
