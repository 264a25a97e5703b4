"""Making copies: records of one log as records of another. Live writes and replay make the same.

A copy shares the payload bytes with what it is made from wherever they lie in one piece.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from headrace.core.ranges import Ranges
from headrace.core.record import Blobs, Block, cut

T = TypeVar("T")

STAMP = "_topics_router"
"""Where an exactly-once copy says what it is a copy of; the name is part of the contract."""

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.encode


class Copying(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How a copy differs from what it is made from."""

    keep_node: bool
    keep_tag: bool
    source_name: str = ""
    """Named in the stamp; nothing when copies are not stamped."""


class Stamp(msgspec.Struct, frozen=True):
    """What a stamped copy says of the record it is made from."""

    idempotency_key: str
    router: str
    source_topic: str
    source_topic_id: int
    source_epoch: int
    source_seq: int


def parts_of(blocks: Iterable[Block], picks: Ranges) -> list[Block]:
    """The picked records; `blocks` ascend and hold at least these."""
    parts: list[Block] = []
    at = 0
    for block in blocks:
        while at < len(picks) and picks[at] <= block.last:
            start, stop = block.index(picks[at]), block.stop_index(picks[at + 1])
            if start < stop:
                parts.append(cut(block, start, stop))
            if picks[at + 1] > block.last:
                break
            at += 2
        if at == len(picks):
            break
    return parts


def copy(parts: Sequence[Block], copying: Copying, router: str, source: int) -> Block:
    """The records of these parts as one block; its seqs and its time are still to be given."""
    whole = parts[0] if len(parts) == 1 else _join(parts)
    metas = whole.metas
    if copying.source_name:
        seqs = (part.seq_at(at) for part in parts for at in range(part.count))
        metas = list(_stamped(metas, whole.count, router, copying.source_name, source, seqs))
    return Block(
        1,
        whole.count,
        0,
        whole.data,
        whole.ends,
        metas,
        whole.tags if copying.keep_tag else None,
        whole.nodes if copying.keep_node else None,
        base=whole.base,
        keys=whole.keys,
    )


def place(made: Block, first: int, ts_ms: int) -> Block:
    """A copy with its seqs and its time."""
    return Block(
        first,
        first + made.count - 1,
        ts_ms,
        made.data,
        made.ends,
        made.metas,
        made.tags,
        made.nodes,
        made.base,
        keys=made.keys,
    )


def owned(block: Block) -> Block:
    """The block with payload bytes of its own, and no others beside them: to be written down."""
    if type(block.data) is bytes and block.base == 0 and block.cuts()[-1] == len(block.data):
        return block
    joined = _join((block,))
    joined.first, joined.last, joined.ts_ms = block.first, block.last, block.ts_ms
    return joined


def _join(parts: Sequence[Block]) -> Block:
    """Several parts as one, whatever seqs and times they had."""
    ends = array("I")
    datas = []
    size = 0
    for part in parts:
        cuts = part.cuts()
        shift = size - part.base
        ends.extend([end + shift for end in cuts])
        datas.append(part.data[part.base : cuts[-1]])
        size += cuts[-1] - part.base
    return Block(
        1,
        len(ends),
        0,
        b"".join(datas),
        ends.tobytes(),
        _column([part.metas for part in parts], parts),
        _column([part.tags for part in parts], parts),
        _column([part.nodes for part in parts], parts),
        keys=_column([part.keys for part in parts], parts),
    )


def _column(
    columns: Sequence[list[T | None] | None], parts: Sequence[Block]
) -> list[T | None] | None:
    if not any(columns):
        return None
    joined: list[T | None] = []
    for column, part in zip(columns, parts, strict=True):
        joined += column or [None] * part.count
    return joined


def _stamped(
    metas: Blobs | None, count: int, router: str, name: str, source: int, seqs: Iterator[int]
) -> Iterator[bytes]:
    for meta, seq in zip(metas or [None] * count, seqs, strict=True):
        key = f"router:{router}:{source}:{source}:{seq}"
        stamp = _encode(Stamp(key, router, name, source, source, seq))
        yield _with_stamp(meta, stamp)


def _with_stamp(meta: bytes | None, stamp: bytes) -> bytes:
    """The meta with the stamp in it, and otherwise as it was sent."""
    inside = (meta or b"{}").strip()[1:-1].strip()
    if STAMP.encode() in inside or b"\\" in inside:
        members = _members.decode(b"{%b}" % inside)
        if members.pop(STAMP, None) is not None:  # another's, or forged
            inside = b",".join(_encode(key) + b":" + bytes(raw) for key, raw in members.items())
    return b'{%b%b"%b":%b}' % (inside, b"," if inside else b"", STAMP.encode(), stamp)
