"""A segment: one Parquet file with the records of many logs, sorted by log and seq.

Its columns: log, log_id, seq, ts, ns, tag, node, key, media, data, meta. `data` and `meta` are JSON
as sent, but for records whose `media` says that their data is something else.
Row groups are cut at a byte and a row budget, and before a log that would not fit the one begun. It
has two companions. Index: one row for each log in each row group it has rows in, sorted by log id
and seq. Tags: one row for each tagged record, sorted by log id, tag and seq.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from xxhash import xxh3_64_hexdigest

from headrace.core.limits import RECORD_OVERHEAD_BYTES, ROW_GROUP_BYTES, ROW_GROUP_ROWS
from headrace.core.record import Block
from headrace.formats.manifest import Segment, SegmentBounds
from headrace.formats.table import encode_table

_PAGE_CHECKSUMS = "headrace.page_checksums"

SCHEMA = pa.schema(
    [
        pa.field("log", pa.string(), nullable=False),
        pa.field("log_id", pa.int64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("ts", pa.int64(), nullable=False),
        pa.field("ns", pa.int32()),
        pa.field("tag", pa.string()),
        pa.field("node", pa.string()),
        pa.field("key", pa.string()),
        pa.field("media", pa.string()),
        pa.field("data", pa.binary(), nullable=False),
        pa.field("meta", pa.string()),
    ],
    metadata={"headrace.format": "1", _PAGE_CHECKSUMS: "1"},
)
INDEX_COLUMNS = (
    "log_id",
    "first_seq",
    "last_seq",
    "row_group",
    "row_start",
    "rows",
    "record_bytes",
    "last_ts",
)
INDEX_SCHEMA = pa.schema([(name, pa.int64()) for name in INDEX_COLUMNS])
TAGS_SCHEMA = pa.schema(
    [("log_id", pa.int64()), ("tag", pa.string()), ("seq", pa.int64()), ("size", pa.int64())]
)


# Payloads rarely repeat and are never searched by range: a dictionary and statistics of them would
# be most of the work of sealing.
_WRITE: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": ["log", "tag", "node", "key", "media"],
    "write_statistics": ["log", "log_id", "seq", "ts", "tag", "key"],
    # Lengths apart from the bytes: what is left compresses as well in two thirds of the time.
    "column_encoding": {"data": "DELTA_LENGTH_BYTE_ARRAY"},
    # Whoever reads a part of a segment can see that it is what was written.
    "write_page_checksum": True,
}


def has_page_checksums(footer: pq.FileMetaData) -> bool:
    """Whether pages of a segment have checksums; those of earlier versions have none."""
    return _PAGE_CHECKSUMS.encode() in (footer.metadata or {})


T = TypeVar("T", str, bytes, int)


class LogRows(msgspec.Struct):
    """The records of one log that go into a segment."""

    log: int
    name: str
    blocks: Iterable[Block]


class Built(msgspec.Struct):
    """A segment and its companions as bytes."""

    segment: bytes
    index: bytes
    tags: bytes | None
    logs: int
    rows: int
    record_bytes: int
    bounds: SegmentBounds

    def described(
        self, names: tuple[str, str, str], number: int = 0, start: int = 0, stop: int = 0
    ) -> Segment:
        """As a manifest lists it: stored under these names, of a range of the journal if any."""
        name, index, tags = names
        return Segment(
            number=number,
            name=name,
            index=index,
            tags=tags if self.tags else None,
            journal_start=start,
            journal_stop=stop,
            logs=self.logs,
            rows=self.rows,
            record_bytes=self.record_bytes,
            file_bytes=len(self.segment),
            checksum=xxh3_64_hexdigest(self.segment),
            index_checksum=xxh3_64_hexdigest(self.index),
            tags_checksum=xxh3_64_hexdigest(self.tags) if self.tags else None,
            **msgspec.structs.asdict(self.bounds),
        )

    def contents(self, names: tuple[str, str, str]) -> dict[str, bytes]:
        """The files, by these names: the segment, its index, and its tags if it has some."""
        held = zip(names, (self.segment, self.index, self.tags), strict=True)
        return {name: content for name, content in held if content}


class Piece(msgspec.Struct, array_like=True):
    """The rows of one log in one row group."""

    log: int
    first: int
    last: int
    row_group: int
    row_start: int
    rows: int
    record_bytes: int
    last_ts: int


class _Columns:
    """One row group under construction, column by column."""

    def __init__(self, row_group: int) -> None:
        self.row_group = row_group
        self.pieces: list[Piece] = []
        self.names: list[str] = []
        self.seqs = array("q")
        self.stamps = array("q")
        self.nanos: list[int | None] = []
        self.tags: list[str | None] = []
        self.nodes: list[str | None] = []
        self.keys: list[str | None] = []
        self.medias: list[str | None] = []
        self.metas: list[bytes | None] = []
        self.datas: list[pa.Array] = []
        self.size_bytes = 0

    @property
    def rows(self) -> int:
        return len(self.seqs)

    @property
    def full(self) -> bool:
        return self.rows >= ROW_GROUP_ROWS or self.size_bytes >= ROW_GROUP_BYTES

    def add(self, name: str, log: int, block: Block, start: int, stop: int) -> None:
        """Add the records of a block with these indices."""
        count = stop - start
        self._note(name, log, block, start, stop)
        self.datas.append(_payloads(block, start, stop))
        if block.seqs is None:
            self.seqs.extend(range(block.first + start, block.first + stop))
            self.stamps.extend(array("q", [block.ts_ms]) * count)
        else:
            assert block.stamps is not None
            self.seqs.extend(block.seqs[start:stop])
            self.stamps.extend(block.stamps[start:stop])
        if block.nanos is not None or block.ns:
            nanos = block.nanos.tolist() if block.nanos is not None else [block.ns] * block.count
            self._fill(self.nanos, nanos, start, stop)
        if block.media is not None:
            self._fill(self.medias, [block.media] * block.count, start, stop)
        self._fill(self.tags, block.tags, start, stop)
        self._fill(self.nodes, block.nodes, start, stop)
        self._fill(self.keys, block.keys, start, stop)
        self._fill(self.metas, block.metas, start, stop)

    def _fill(self, column: list[T | None], values: Sequence[T | None] | None, *span: int) -> None:
        """Add values to a column that is as short as its last value."""
        if values is not None:
            before = self.rows - (span[1] - span[0])
            column += [None] * (before - len(column))
            column += values[slice(*span)]

    def _note(self, name: str, log: int, block: Block, start: int, stop: int) -> None:
        size = block.measure(start, stop)
        if not self.pieces or self.pieces[-1].log != log:
            first = block.seq_at(start)
            self.pieces.append(Piece(log, first, first, self.row_group, self.rows, 0, 0, 0))
            self.names.append(name)
        piece = self.pieces[-1]
        piece.last = block.seq_at(stop - 1)
        piece.rows += stop - start
        piece.record_bytes += size
        piece.last_ts = block.ts_at(stop - 1)
        self.size_bytes += size

    def table(self) -> pa.Table:
        names: list[str] = []
        ids = array("q")
        for name, piece in zip(self.names, self.pieces, strict=True):
            names += [name] * piece.rows
            ids += array("q", [piece.log]) * piece.rows
        columns = [
            pa.array(names, pa.string()),
            _int64(ids),
            _int64(self.seqs),
            _int64(self.stamps),
            self._sparse(self.nanos, pa.int32()),
            self._sparse(self.tags, pa.string()),
            self._sparse(self.nodes, pa.string()),
            self._sparse(self.keys, pa.string()),
            self._sparse(self.medias, pa.string()),
            pa.concat_arrays(self.datas),
            self._sparse(self.metas, pa.binary()).cast(pa.string()),
        ]
        return pa.Table.from_arrays(columns, schema=SCHEMA)

    def _sparse(self, column: list[T | None], kind: pa.DataType) -> pa.Array:
        if not column:
            return pa.nulls(self.rows, kind)
        return pa.array(column + [None] * (self.rows - len(column)), kind)


def table_of(name: str, log: int, pieces: Iterable[tuple[Block, Sequence[int]]]) -> pa.Table:
    """Records of one log, by their indices in blocks, in the columns of a segment."""
    columns = _Columns(0)
    for block, picks in pieces:
        for start, stop in _runs(picks):
            columns.add(name, log, block, start, stop)
    return columns.table() if columns.rows else SCHEMA.empty_table()


def _runs(picks: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ascending indices as (start, stop) of those that follow each other."""
    if isinstance(picks, range):
        yield picks.start, picks.stop
        return
    start = 0
    for at in range(1, len(picks) + 1):
        if at == len(picks) or picks[at] != picks[at - 1] + 1:
            yield picks[start], picks[at - 1] + 1
            start = at


def _payloads(block: Block, start: int, stop: int) -> pa.Array:
    """Payloads of a block as an Arrow array that shares their bytes."""
    first = block.cuts()[start - 1] if start else block.base
    ends = memoryview(block.ends).cast("B")[start * 4 : stop * 4]
    offsets = b"".join((array("i", [first]).tobytes(), ends))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(block.data)]
    return pa.Array.from_buffers(pa.binary(), stop - start, buffers)


def _int64(values: array[int]) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def build(rows: Iterable[LogRows]) -> Built:
    """Parquet for these logs, which come sorted by name and id, each with ascending blocks."""
    sink = pa.BufferOutputStream()
    pieces: list[Piece] = []
    tagged: list[tuple[int, str, int, int]] = []
    logs = 0
    names: list[str] = []
    """Of the first log and of the last."""
    stamps: list[int] = []
    """Of the first record of each log."""
    with pq.ParquetWriter(sink, SCHEMA, **_WRITE) as writer:
        pending = _Columns(0)
        for log in rows:
            logs += 1
            names[1:] = [log.name]
            blocks = iter(log.blocks)
            ahead = _take(blocks, ROW_GROUP_BYTES - pending.size_bytes)
            size = sum(block.size_bytes for block in ahead)
            stamps += [ahead[0].ts_at(0)] if ahead else []
            if pending.rows and pending.size_bytes + size > ROW_GROUP_BYTES:
                pending = _flush(writer, pending, pieces)
            for block in chain(ahead, blocks):
                tagged.extend(_tagged(log.log, block))
                start = 0
                while start < block.count:
                    stop = _fit(pending, block, start)
                    pending.add(log.name, log.log, block, start, stop)
                    start = stop
                    if pending.full:
                        pending = _flush(writer, pending, pieces)
        _flush(writer, pending, pieces)
    return Built(
        cast(bytes, memoryview(sink.getvalue())),  # as large as a journal file: not copied
        _encode_pieces(pieces),
        _encode_tags(tagged),
        logs,
        sum(piece.rows for piece in pieces),
        sum(piece.record_bytes for piece in pieces),
        _bounds(names, stamps, pieces),
    )


def _bounds(names: list[str], stamps: list[int], pieces: list[Piece]) -> SegmentBounds:
    """Logs come sorted by name, and of each log seqs ascend and times never fall."""
    if not pieces:
        return SegmentBounds()
    return SegmentBounds(
        log_min=names[0],
        log_max=names[-1],
        seq_min=min(piece.first for piece in pieces),
        seq_max=max(piece.last for piece in pieces),
        ts_min=min(stamps),
        ts_max=max(piece.last_ts for piece in pieces),
    )


def _take(blocks: Iterator[Block], size_bytes: int) -> list[Block]:
    """As many blocks as come to more than this size, or all: a log may be larger than memory."""
    taken: list[Block] = []
    held = 0
    while held <= size_bytes and (block := next(blocks, None)) is not None:
        taken.append(block)
        held += block.size_bytes
    return taken


def _fit(pending: _Columns, block: Block, start: int) -> int:
    """How far into the block the row group under construction may go; at least one record."""
    mean = max(1, block.size_bytes // block.count)
    room = (ROW_GROUP_BYTES - pending.size_bytes) // mean
    return min(block.count, start + max(1, min(ROW_GROUP_ROWS - pending.rows, room)))


def _flush(writer: pq.ParquetWriter, pending: _Columns, pieces: list[Piece]) -> _Columns:
    if not pending.rows:
        return pending
    writer.write_table(pending.table(), row_group_size=pending.rows)
    pieces.extend(pending.pieces)
    return _Columns(pending.row_group + 1)


def _tagged(log: int, block: Block) -> Iterator[tuple[int, str, int, int]]:
    if block.tags is None:
        return
    sizes = block.sizes()
    for index, tag in enumerate(block.tags):
        if tag is not None:
            yield log, tag, block.seq_at(index), sizes[index]


class Derived(msgspec.Struct):
    """The companions of a segment, as bytes."""

    index: bytes
    tags: bytes | None


def derive(file: pq.ParquetFile) -> Derived:
    """The companions of a segment that is there, made from its rows as `build` made them."""
    pieces: list[Piece] = []
    tagged: list[tuple[int, str, int, int]] = []
    for row_group in range(file.num_row_groups):
        table = file.read_row_group(row_group, columns=_DERIVED_FROM, use_threads=False)
        logs, seqs, stamps = (table.column(name).to_pylist() for name in ("log_id", "seq", "ts"))
        sizes = _sizes(table)
        start = 0
        for row, log in enumerate(logs):
            if row + 1 == len(logs) or logs[row + 1] != log:
                stop = row + 1
                size = sum(sizes[start:stop])
                pieces.append(
                    Piece(
                        log, seqs[start], seqs[row], row_group, start, stop - start, size,
                        stamps[row],
                    )
                )  # fmt: skip
                start = stop
        tags = table.column("tag").to_pylist()
        tagged += [
            (log, tag, seq, size)
            for log, tag, seq, size in zip(logs, tags, seqs, sizes, strict=True)
            if tag is not None
        ]
    return Derived(_encode_pieces(pieces), _encode_tags(tagged))


_DERIVED_FROM = ["log_id", "seq", "ts", "tag", "data", "meta"]


def _sizes(table: pa.Table) -> list[int]:
    """What each row counts for."""
    data = pc.binary_length(table.column("data"))
    meta = pc.fill_null(pc.binary_length(table.column("meta")), 0)
    sizes: list[int] = pc.add(pc.add(data, meta), RECORD_OVERHEAD_BYTES).to_pylist()
    return sizes


def _encode_pieces(pieces: list[Piece]) -> bytes:
    return encode_table(INDEX_SCHEMA, sorted(msgspec.structs.astuple(piece) for piece in pieces))


def _encode_tags(tagged: list[tuple[int, str, int, int]]) -> bytes | None:
    return encode_table(TAGS_SCHEMA, sorted(tagged)) if tagged else None


def block_of(table: pa.Table, start: int, stop: int) -> Block:
    """Rows [start, stop) of a row group with one chunk a column, as a block on its buffers."""
    count = stop - start
    seqs = _ints(table.column("seq").chunk(0), start, count)
    stamps = _ints(table.column("ts").chunk(0), start, count)
    data = table.column("data").chunk(0)
    _, offsets, values = data.buffers()
    cuts = memoryview(offsets).cast("B").cast("i")[data.offset + start : data.offset + stop + 1]
    return Block(
        seqs[0],
        seqs[-1],
        stamps[0],
        cast(bytes, memoryview(values if values is not None else b"").cast("B")),
        cast(bytes, cuts[1:]),
        _texts(table, "meta", start, count, encode=True),
        _texts(table, "tag", start, count),
        _texts(table, "node", start, count),
        cuts[0],
        seqs,
        stamps,
        _texts(table, "key", start, count),
        nanos=_nanos(table, start, count),
    )


def _ints(column: pa.Array, start: int, count: int) -> memoryview:
    values = memoryview(column.buffers()[1]).cast("B").cast("q")
    return values[column.offset + start : column.offset + start + count]


def _nanos(table: pa.Table, start: int, count: int) -> memoryview | None:
    column = table.column("ns").chunk(0).slice(start, count)
    if column.null_count == count:
        return None
    values = pc.fill_null(column, 0)
    raw = memoryview(values.buffers()[1]).cast("B").cast("i")
    return raw[values.offset : values.offset + count]


def _texts(
    table: pa.Table, name: str, start: int, count: int, *, encode: bool = False
) -> list | None:  # type: ignore[type-arg]
    column = table.column(name).chunk(0).slice(start, count)
    if column.null_count == count:
        return None
    return (column.cast(pa.binary()) if encode else column).to_pylist()  # type: ignore[no-any-return]
