"""Rows of segments and pages as Spark wants them. Runs in tasks; knows no session."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.client.http import Server
from headrace.client.store import Store, unreadable
from headrace.formats.log_plan import LogPlan
from headrace.spark.catalog import Catalog
from headrace.spark.options import TS_MAX, TS_MIN, RecordSelection, Where
from headrace.spark.splits import Part, Rows, SegmentPart, ServerPart, Want, split

_NEEDS = {
    "ts": ("ts", "ns"),
    "data": ("data", "media"),
    "payload": ("data",),
    "epoch": ("log_id",),
}
"""Columns of a segment that a column is made of, where it is not the one of its name."""


class DataLost(Exception):
    """Records that were to be read are gone."""


def read(
    where: Where, wanted: RecordSelection, columns: Sequence[str], parts: Iterable[Part]
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition, over one connection: thousands of small logs may be in it."""
    needed = _needed(wanted, columns)
    with _Sources(where) as sources:
        for part in parts:
            if isinstance(part, ServerPart):
                tables = _read_server(sources, part)
            else:
                tables = _read_segment(sources, part, needed, wanted)
            for table in tables:
                table = _filter(table, wanted)
                if len(table):
                    yield from _convert(table, columns).to_batches()


class _Sources:
    """Where a task reads from, opened when it is needed."""

    def __init__(self, where: Where) -> None:
        self.where = where
        self._server: Server | None = None

    def __enter__(self) -> _Sources:
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()

    @property
    def server(self) -> Server:
        where = self.where
        assert where.url is not None
        self._server = self._server or Server(where.url, where.key, where.timeout_s)
        return self._server

    @cached_property
    def store(self) -> Store:
        assert self.where.path is not None
        return Store(self.where.path)


def _needed(wanted: RecordSelection, columns: Sequence[str]) -> list[str]:
    """The columns of a segment that must be read."""
    names = {"seq"}
    for column in columns:
        names.update(_NEEDS.get(column, (column,)))
    if (wanted.since_us, wanted.until_us) != (TS_MIN, TS_MAX):
        names.update(("ts", "ns"))
    names.update(column for column, _ in wanted.sets)
    names.update(column for column, _ in wanted.starts)
    return sorted(names)


def _read_server(sources: _Sources, part: ServerPart) -> Iterator[pa.Table]:
    after = part.first - 1
    while after < part.last:
        page = sources.server.page(part.log, after, part.last, part.epoch)
        if page.epoch != part.epoch:
            raise DataLost(f'"{part.log}" was deleted and made anew while it was read')
        if page.next <= after:
            return  # everything behind is gone since
        after = page.next
        yield page.table


def _read_segment(
    sources: _Sources, part: SegmentPart, columns: list[str], wanted: RecordSelection
) -> Iterator[pa.Table]:
    try:
        file = sources.store.parquet(part.segment)
    except FileNotFoundError:
        yield from _read_elsewhere(sources, part, columns, wanted)
        return
    except (pa.ArrowException, OSError) as error:
        raise unreadable(part.segment, error) from None
    for group, rows in groupby(part.rows, key=lambda each: each.group):
        if not may_hold(file.metadata.row_group(group), wanted):
            continue
        try:
            table = file.read_row_group(group, columns=columns, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise unreadable(part.segment, error) from None
        yield from _pick(table, [*rows])


def may_hold(group: pq.RowGroupMetaData, wanted: RecordSelection) -> bool:
    """Whether records of a row group may be wanted, as far as its statistics tell."""
    ends = {}
    for at in range(group.num_columns):
        column = group.column(at)
        statistics = column.statistics
        if statistics is not None and statistics.has_min_max:
            ends[column.path_in_schema] = statistics.min, statistics.max
    for name, values in wanted.sets:
        if name in ends and not any(ends[name][0] <= value <= ends[name][1] for value in values):
            return False
    for name, prefix in wanted.starts:
        if name in ends:
            low, high = ends[name]
            if high < prefix or (low > prefix and not low.startswith(prefix)):
                return False
    return True


def _pick(table: pa.Table, rows: list[Rows]) -> Iterator[pa.Table]:
    """The rows that count; neighbours of which all do are taken together."""
    start = stop = 0
    for each in rows:
        if each.whole and each.start == stop:
            stop += each.count
            continue
        if start < stop:
            yield table.slice(start, stop - start)
        start, stop = each.start, each.start + each.count
        if not each.whole:
            piece = table.slice(start, each.count)
            yield piece.filter(_live(piece.column("seq"), each))
            start = stop
    if start < stop:
        yield table.slice(start, stop - start)


def _live(column: pa.ChunkedArray, rows: Rows) -> pa.Array:
    """Which rows have a seq that counts."""
    seqs = column.to_numpy()
    mask = (seqs >= rows.first) & (seqs <= rows.last)
    if rows.gone:
        edges = np.array(rows.gone, dtype=np.int64)
        at = np.searchsorted(edges, seqs)
        inside = (at % 2 == 1) | (
            (at < len(edges)) & (edges[np.minimum(at, len(edges) - 1)] == seqs)
        )
        mask &= ~inside
    return pa.array(mask)


def _read_elsewhere(
    sources: _Sources, part: SegmentPart, columns: list[str], wanted: RecordSelection
) -> Iterator[pa.Table]:
    """The segment was replaced since the plan was made: its live rows lie in others now."""
    where = sources.where
    if where.url is not None:
        for rows in part.rows:
            yield from _read_server(
                sources, ServerPart(rows.log, rows.epoch, rows.first, rows.last)
            )
        return
    wants = [_want_again(rows) for rows in part.rows]
    placed = Catalog(where).placed([want.plan for want in wants])
    for other in split(wants, placed, RecordSelection(), served=False):
        assert isinstance(other, SegmentPart)
        if other.segment == part.segment:
            raise unreadable(part.segment, FileNotFoundError())
        yield from _read_segment(sources, other, columns, wanted)


def _want_again(rows: Rows) -> Want:
    gone = [*zip(rows.gone[::2], rows.gone[1::2], strict=True)]
    plan = LogPlan(
        log=rows.log,
        epoch=rows.epoch,
        owner="",
        media=None,
        head_seq=rows.last,
        earliest_seq=rows.first,
        floor_seq=rows.first,
        count=0,
        bytes=0,
        sealed=[(rows.first, rows.last)],
        deleted=gone,
        lost=[],
    )
    return Want(plan, rows.first, rows.last)


def _filter(table: pa.Table, wanted: RecordSelection) -> pa.Table:
    masks = []
    if (wanted.since_us, wanted.until_us) != (TS_MIN, TS_MAX):
        at_us = _micros(table)
        masks.append(
            pc.and_(pc.greater_equal(at_us, wanted.since_us), pc.less_equal(at_us, wanted.until_us))
        )
    for column, values in wanted.sets:
        masks.append(pc.is_in(table.column(column), pa.array(sorted(values), pa.string())))
    for column, prefix in wanted.starts:
        masks.append(pc.fill_null(pc.starts_with(table.column(column), prefix), False))
    for mask in masks[1:]:
        masks[0] = pc.and_(masks[0], mask)
    return table.filter(masks[0]) if masks else table


def _micros(table: pa.Table) -> pa.ChunkedArray:
    at_us = pc.multiply(table.column("ts"), 1000)
    nanos = table.column("ns")
    if nanos.null_count == len(nanos):
        return at_us
    return pc.add(at_us, pc.divide(pc.fill_null(nanos, 0), 1000))


def _convert(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    made = {column: _column(table, column) for column in columns}
    return pa.table(made)


def _column(table: pa.Table, column: str) -> pa.ChunkedArray:
    match column:
        case "ts":
            return _micros(table).cast(pa.timestamp("us", tz="UTC"))
        case "data":
            return _texts(table.column("data"), table.column("media"))
        case "payload":
            return table.column("data")
        case "epoch":
            return table.column("log_id")
    return table.column(column)


def _texts(data: pa.ChunkedArray, media: pa.ChunkedArray) -> pa.ChunkedArray:
    """JSON as it was sent; what is not JSON in Base64."""
    if media.null_count == len(media):
        return data.cast(pa.string())
    pairs = zip(data.to_pylist(), media.to_pylist(), strict=True)
    texts = [
        raw.decode() if kind is None else base64.b64encode(raw).decode() for raw, kind in pairs
    ]
    return pa.chunked_array([pa.array(texts, pa.string())])
