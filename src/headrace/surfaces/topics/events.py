"""What goes out: records as JSON, rendered from the bytes they came as.

Shared by diff, watch and WebSocket.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from headrace.core.entry import Claim
from headrace.core.queue_state import Queue
from headrace.core.read import Gap, Loss, Page, Slice
from headrace.core.record import Block
from headrace.core.selector import Selector
from headrace.delivery.events import CaughtUp, Gone, Held, Lost, Records
from headrace.surfaces.topics.wire import Tombstone

_encode = msgspec.json.encode

TOO_OLD = "from_seq_too_old"
_RETENTION = (Loss.CAP, Loss.TTL, Loss.MIXED)
HELD_RETRY_MS = 1500


def render_records(page: Page, *, tags: bool, meta: bool, data: bool = True) -> bytes:
    """The records of a page as the inside of a JSON array."""
    return b",".join([_render(piece, tags=tags, meta=meta, data=data) for piece in page.slices])


def _render(piece: Slice, *, tags: bool, meta: bool, data: bool) -> bytes:
    block = piece.block
    if (
        data
        and isinstance(piece.picks, range)
        and block.nodes is None
        and block.keys is None
        and (block.tags is None or not tags)
        and (block.metas is None or not meta)
    ):
        return _render_plain(piece, piece.picks)
    return b",".join(
        [_render_one(piece, index, tags=tags, meta=meta, data=data) for index in piece.picks]
    )


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


def _render_one(piece: Slice, index: int, *, tags: bool, meta: bool, data: bool) -> bytes:
    block = piece.block
    line = b'{"$seq":%d,"$ts":%d' % (block.seq_at(index), block.ts_at(index))
    line += _labels(block, index, tags=tags)
    if data:
        line += b',"data":' + block.data_at(index)
    if meta and block.metas is not None and (headers := block.metas[index]) is not None:
        line += b',"meta":' + headers
    return line + b"}"


def render_jobs(claim: Claim, queue: Queue, jobs: list[Slice]) -> list[tuple[int, bytes]]:
    """The jobs of a claim that are still its own: (seq, JSON without its opening brace)."""
    leases, deliveries = queue.leases, queue.deliveries
    start, stop = claim.fence, claim.fence + len(claim.seqs)
    lines = []
    for piece in jobs:
        block = piece.block
        cuts, data = block.cuts(), block.data
        bare = block.nodes is None and block.tags is None and block.keys is None
        for at in piece.picks:
            seq = block.seq_at(at)
            lease = leases.get(seq)
            if lease is None or not start <= lease.fence < stop:
                continue
            line = b'"$seq":%d,"lease_id":"lease_%x","deadline":%d,"$ts":%d%b,"deliveries":%d,' % (
                seq,
                lease.fence,
                lease.deadline_ms,
                block.ts_at(at),
                b"" if bare else _labels(block, at, tags=True),
                deliveries[seq],
            )
            text = data[cuts[at - 1] if at else block.base : cuts[at]]
            meta = block.metas[at] if block.metas is not None else None
            if meta is None:
                lines.append((seq, b'%b"data":%b}' % (line, text)))
            else:
                lines.append((seq, b'%b"data":%b,"meta":%b}' % (line, text, meta)))
    return lines


def _labels(block: Block, at: int, *, tags: bool) -> bytes:
    """What its writer said about a record beside its data and meta."""
    line = b""
    if block.nodes is not None and (node := block.nodes[at]) is not None:
        line += b',"$node":' + _encode(node)
    if tags and block.tags is not None and (tag := block.tags[at]) is not None:
        line += b',"$tag":' + _encode(tag)
    if block.keys is not None and (group := block.keys[at]) is not None:
        line += b',"$group":' + _encode(group)
    return line


def format_tombstone(gap: Gap, earliest: int, head: int) -> Tombstone:
    return Tombstone(
        gap_from=gap.first,
        gap_to=gap.last,
        reason=gap.reason.value,
        missed_estimate=gap.last - gap.first + 1,
        earliest_seq=earliest,
        head_seq=head,
    )


TopicEvent = Records | Lost | CaughtUp | Gone | Held
"""What there is to tell of a topic: it has no end before it is deleted."""


class TopicView(msgspec.Struct, frozen=True, kw_only=True):
    """What a follower wants to see of a topic."""

    selector: Selector
    records_max: int
    bytes_max: int
    strong: bool
    gets_superseded: ClassVar = False
    tags: bool
    meta: bool
    data: bool


def render_event(name: str, event: TopicEvent, view: TopicView) -> bytes:
    """The inside of the JSON object that tells of an event."""
    topic = b'"topic":"%b"' % name.encode()
    match event:
        case Records(after, page):
            records = render_records(page, tags=view.tags, meta=view.meta, data=view.data)
            return b'%b,"records":[%b],"from_seq":%d,"to_seq":%d,"head_seq":%d' % (
                topic, records, after, page.next, page.head,
            )  # fmt: skip
        case Lost():
            tombstone = format_tombstone(event.gap, event.earliest, event.head)
            if event.late and event.gap.reason in _RETENTION:
                tombstone.reason = TOO_OLD
            return topic + b"," + _encode(tombstone)[1:-1]
        case CaughtUp(head):
            return b'%b,"head_seq":%d' % (topic, head)
        case Gone(head):
            return b'%b,"head_seq":%d,"reason":"deleted"' % (topic, head)
        case Held():
            return b'"topics":["%b"],"retry_after_ms":%d' % (name.encode(), HELD_RETRY_MS)
