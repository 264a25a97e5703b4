"""Segments: what goes into Parquet comes out again, byte for byte, wherever row groups are cut."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.ranges import Ranges, contains, from_seqs
from headrace.core.record import Block, block, live_parts
from headrace.formats import segment
from headrace.formats.segment import Built, LogRows, Piece, block_of, build

from .log_harness import columns, records_of
from .naive import Record

text = st.text(max_size=6)
json_text = text.map(lambda value: f'"{value}"'.encode())
drafts = st.builds(
    Record,
    seq=st.just(0),
    ts_ms=st.just(0),
    data=json_text | st.just(b"1") | st.just(b"x" * 100),
    meta=st.none() | st.just(b"{}") | text.map(lambda value: f'{{"k":"{value}"}}'.encode()),
    tag=st.none() | text,
    node=st.none() | text,
)


@st.composite
def parts_of(draw: st.DrawFn) -> list[Block]:
    """Blocks of one log with holes where records were deleted, as sealing leaves them."""
    batches = draw(st.lists(st.lists(drafts, min_size=1, max_size=6), min_size=1, max_size=4))
    first = draw(st.integers(1, 2**60))
    gone: Ranges = from_seqs(sorted(draw(st.frozensets(st.integers(first, first + 20)))))
    parts: list[Block] = []
    for batch in batches:
        ns = draw(st.sampled_from([0, 0, 1, 999_999]))
        whole = block(columns(batch), first, draw(st.integers(0, 2**40)), ns)
        parts += live_parts(whole, gone, 1)
        first += len(batch)
    return parts


def read_back(built: Built) -> Iterator[tuple[Piece, list[Record]]]:
    """The pieces the index tells of, with their rows."""
    file = pq.ParquetFile(pa.BufferReader(built.segment))
    for row in pq.read_table(pa.BufferReader(built.index)).to_pylist():
        piece = Piece(*row.values())
        table = file.read_row_group(piece.row_group).combine_chunks()
        found = block_of(table, piece.row_start, piece.row_start + piece.rows)
        assert (found.first, found.last, found.count) == (piece.first, piece.last, piece.rows)
        assert found.size_bytes == sum(found.sizes()) == piece.record_bytes
        assert found.ts_at(found.count - 1) == piece.last_ts
        yield piece, list(records_of(found, range(found.count)))


def records_in(parts: list[Block]) -> list[Record]:
    return [record for part in parts for record in records_of(part, range(part.count))]


@settings(max_examples=60)
@given(
    st.lists(parts_of(), min_size=1, max_size=4),
    st.sampled_from([1, 3, 16_384]),
    st.sampled_from([1, 60, 200, 4 << 20]),
)
def test_what_goes_in_comes_out(logs: list[list[Block]], rows_max: int, bytes_max: int) -> None:
    rows = [LogRows(7 - at, f"log {at}", parts) for at, parts in enumerate(logs) if parts]
    with (
        patch.object(segment, "ROW_GROUP_ROWS", rows_max),
        patch.object(segment, "ROW_GROUP_BYTES", bytes_max),
    ):
        built = build(rows)
    found: dict[int, list[Record]] = {}
    for piece, records in read_back(built):
        found.setdefault(piece.log, []).extend(records)
    wanted = {log.log: records_in(log.blocks) for log in rows}
    assert found == wanted
    everything = [record for records in wanted.values() for record in records]
    assert (built.logs, built.rows) == (len(rows), len(everything))
    assert built.record_bytes == sum(record.size for record in everything)
    tagged = sorted(
        (log, r.tag, r.seq, r.size) for log, rs in wanted.items() for r in rs if r.tag is not None
    )
    if built.tags is None:
        assert not tagged
    else:
        table = pq.read_table(pa.BufferReader(built.tags))
        assert [tuple(row.values()) for row in table.to_pylist()] == tagged


@settings(max_examples=40)
@given(parts_of(), st.data())
def test_a_block_from_a_segment_is_a_block(parts: list[Block], data: st.DataObject) -> None:
    """Finding, cutting and sealing again work on rows as on what was appended."""
    if not parts:
        return
    built = build([LogRows(1, "a", parts)])
    file = pq.ParquetFile(pa.BufferReader(built.segment))
    whole = block_of(file.read_row_group(0).combine_chunks(), 0, built.rows)
    wanted = records_in(parts)
    seqs = [record.seq for record in wanted]
    seq = data.draw(st.integers(seqs[0] - 1, seqs[-1] + 1), label="seq")
    assert whole.index(seq) == sum(held < seq for held in seqs)
    assert whole.stop_index(seq) == sum(held <= seq for held in seqs)
    assert whole.sizes() == [record.size for record in wanted]
    gone = from_seqs(sorted(data.draw(st.frozensets(st.sampled_from(seqs)), label="gone")))
    left = list(live_parts(whole, gone, seq))
    alive = [record for record in wanted if record.seq >= seq and not contains(gone, record.seq)]
    assert records_in(left) == alive
    times = {part.seq_at(at): part.ns_at(at) for part in parts for at in range(part.count)}
    assert all(
        part.ns_at(at) == times[part.seq_at(at)] for part in left for at in range(part.count)
    )
    if left:
        again = build([LogRows(1, "a", left)])
        assert [record for _, records in read_back(again) for record in records] == alive
