"""What goes out: records as JSON, rendered from the bytes they came as.

Shared by diff and, later, watch.
"""

from __future__ import annotations

import msgspec

from headrace.core.entry import Claim
from headrace.core.jobs import Queue
from headrace.core.read import Gap, Page, Slice
from headrace.surfaces.topics.wire import Tombstone

_encode = msgspec.json.encode


def render_records(page: Page, *, tags: bool, meta: bool) -> bytes:
    """The records of a page as the inside of a JSON array."""
    return b",".join([_render(piece, tags=tags, meta=meta) for piece in page.slices])


def _render(piece: Slice, *, tags: bool, meta: bool) -> bytes:
    block = piece.block
    if (
        isinstance(piece.picks, range)
        and block.nodes is None
        and block.keys is None
        and (block.tags is None or not tags)
        and (block.metas is None or not meta)
    ):
        return _render_plain(piece, piece.picks)
    return b",".join([_render_one(piece, index, tags=tags, meta=meta) for index in piece.picks])


def _render_plain(piece: Slice, picks: range) -> bytes:
    """Records with nothing but data: one join for all of them."""
    block, data = piece.block, piece.block.data
    cuts = block.cuts()
    ends = cuts[picks.start : picks.stop]
    starts = [cuts[picks.start - 1] if picks.start else block.base, *ends[:-1]]
    if block.seqs is None:
        middle = b',"$ts":%d,"data":' % block.ts_ms
        first = block.first
        lines = [
            b"%d%b%b" % (seq, middle, data[start:end])
            for seq, start, end in zip(
                range(first + picks.start, first + picks.stop), starts, ends, strict=True
            )
        ]
    else:
        assert block.stamps is not None
        lines = [
            b'%d,"$ts":%d,"data":%b' % (seq, ts_ms, data[start:end])
            for seq, ts_ms, start, end in zip(
                block.seqs[picks.start : picks.stop],
                block.stamps[picks.start : picks.stop],
                starts,
                ends,
                strict=True,
            )
        ]
    return b'{"$seq":' + b'},{"$seq":'.join(lines) + b"}"


def _render_one(piece: Slice, index: int, *, tags: bool, meta: bool) -> bytes:
    block = piece.block
    line = b'{"$seq":%d,"$ts":%d' % (block.seq_at(index), block.ts_at(index))
    if block.nodes is not None and (node := block.nodes[index]) is not None:
        line += b',"$node":' + _encode(node)
    if tags and block.tags is not None and (tag := block.tags[index]) is not None:
        line += b',"$tag":' + _encode(tag)
    if block.keys is not None and (group := block.keys[index]) is not None:
        line += b',"$group":' + _encode(group)
    line += b',"data":' + block.data_at(index)
    if meta and block.metas is not None and (headers := block.metas[index]) is not None:
        line += b',"meta":' + headers
    return line + b"}"


def render_jobs(claim: Claim, queue: Queue, jobs: list[Slice]) -> list[tuple[int, bytes]]:
    """The jobs of a claim that are still its own: (seq, JSON without its opening brace)."""
    stop = claim.fence + len(claim.seqs)
    lines = []
    for piece in jobs:
        block = piece.block
        for index in piece.picks:
            seq = block.seq_at(index)
            lease = queue.leases.get(seq)
            if lease is None or not claim.fence <= lease.fence < stop:
                continue
            line = b'"$seq":%d,"lease_id":"lease_%x","deadline":%d,"$ts":%d' % (
                seq,
                lease.fence,
                lease.deadline_ms,
                block.ts_at(index),
            )
            if block.nodes is not None and (node := block.nodes[index]) is not None:
                line += b',"$node":' + _encode(node)
            if block.tags is not None and (tag := block.tags[index]) is not None:
                line += b',"$tag":' + _encode(tag)
            if block.keys is not None and (group := block.keys[index]) is not None:
                line += b',"$group":' + _encode(group)
            line += b',"deliveries":%d,"data":%b' % (queue.deliveries[seq], block.data_at(index))
            if block.metas is not None and (headers := block.metas[index]) is not None:
                line += b',"meta":' + headers
            lines.append((seq, line + b"}"))
    return lines


def format_tombstone(gap: Gap, earliest: int, head: int) -> Tombstone:
    return Tombstone(
        gap_from=gap.first,
        gap_to=gap.last,
        reason=gap.reason.value,
        missed_estimate=gap.last - gap.first + 1,
        earliest_seq=earliest,
        head_seq=head,
    )
