"""Records in columns: a block is what one append brought, or a run of rows read from a segment.

Work is done for each block, not each record: the payloads are one byte string, cut by `ends`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from sys import byteorder
from typing import TypeVar, cast

import msgspec

from headrace.core import ranges
from headrace.core.limits import RECORD_OVERHEAD_BYTES
from headrace.core.ranges import Ranges

Texts = list[str | None]
Blobs = list[bytes | None]
T = TypeVar("T")


class Drafts(msgspec.Struct, gc=False):
    """Records before they have a seq."""

    data: bytes
    ends: bytes
    """Cumulative end of each payload in `data`, as native u32."""
    metas: Blobs | None = None
    tags: Texts | None = None
    nodes: Texts | None = None
    keys: Texts | None = None
    media: str | None = None

    @property
    def count(self) -> int:
        return len(self.ends) // 4

    @property
    def size_bytes(self) -> int:
        size = len(self.data) + RECORD_OVERHEAD_BYTES * self.count
        if self.metas is not None:
            size += sum(len(meta) for meta in self.metas if meta)
        return size


def draft(
    datas: Sequence[bytes],
    metas: Blobs | None = None,
    tags: Texts | None = None,
    nodes: Texts | None = None,
    keys: Texts | None = None,
) -> Drafts:
    """Drafts from one payload each (anything with a buffer and a length will do)."""
    ends = array("I")
    end = 0
    for data in datas:
        end += len(data)
        ends.append(end)
    return Drafts(b"".join(datas), ends.tobytes(), metas, tags, nodes, keys)


def concat(parts: Sequence[Drafts]) -> Drafts:
    """Drafts of one media type one behind the other, as one."""
    ends, start, plain = array("I"), 0, True
    for part in parts:
        if len(part.ends) == 4:
            ends.append(start + len(part.data))
        else:
            ends.extend([start + end for end in memoryview(part.ends).cast("I")])
        start += len(part.data)
        columns = (part.metas, part.tags, part.nodes, part.keys)
        plain = plain and columns == (None, None, None, None)
    joined = Drafts(b"".join([part.data for part in parts]), ends.tobytes(), media=parts[0].media)
    if not plain:
        joined.metas = _concat_column([(part.metas, part.count) for part in parts])
        joined.tags = _concat_column([(part.tags, part.count) for part in parts])
        joined.nodes = _concat_column([(part.nodes, part.count) for part in parts])
        joined.keys = _concat_column([(part.keys, part.count) for part in parts])
    return joined


def _concat_column(parts: Sequence[tuple[list[T | None] | None, int]]) -> list[T | None] | None:
    if all(column is None for column, _ in parts):
        return None
    joined: list[T | None] = []
    for column, count in parts:
        joined += [None] * count if column is None else column
    return joined


def payloads(drafts: Drafts) -> list[bytes]:
    """The payload of each draft."""
    ends = memoryview(drafts.ends).cast("I")
    return [drafts.data[start:end] for start, end in zip((0, *ends[:-1]), ends, strict=True)]


class Block(msgspec.Struct, gc=False, array_like=True):
    """Consecutive records of one log, ascending by seq."""

    first: int
    last: int
    ts_ms: int
    data: bytes
    ends: bytes
    """Cumulative end of each payload in `data`, as native u32.

    Both may be views of a larger buffer.
    """
    metas: Blobs | None = None
    tags: Texts | None = None
    nodes: Texts | None = None
    base: int = 0
    """Where the first payload starts in `data`; ends count from the start of `data`."""
    seqs: memoryview | None = None
    """The seq of each record when they have holes between them (rows of a segment)."""
    stamps: memoryview | None = None
    """The commit time of each record when they differ (rows of a segment)."""
    keys: Texts | None = None
    """What each record belongs to; work on records of one key is handed out in order."""
    ns: int = 0
    """Nanoseconds of the commit time inside its millisecond."""
    nanos: memoryview | None = None
    """The same for each record when they differ (rows of a segment)."""
    media: str | None = None
    """What the payloads are when they are not JSON. Rows of a segment do not bring it back."""

    @property
    def count(self) -> int:
        return self.last - self.first + 1 if self.seqs is None else len(self.seqs)

    def index(self, seq: int) -> int:
        """Index of the first record with a seq at or above `seq`."""
        if self.seqs is None:
            return min(max(0, seq - self.first), self.count)
        return bisect_left(self.seqs, seq)

    def stop_index(self, seq: int) -> int:
        """Index behind the last record with a seq at or below `seq`."""
        if self.seqs is None:
            return min(max(0, seq - self.first + 1), self.count)
        return bisect_right(self.seqs, seq)

    def seq_at(self, index: int) -> int:
        return self.first + index if self.seqs is None else self.seqs[index]

    def ts_at(self, index: int) -> int:
        return self.ts_ms if self.stamps is None else self.stamps[index]

    def ns_at(self, index: int) -> int:
        """The whole commit time in nanoseconds."""
        ns = self.ns if self.nanos is None else self.nanos[index]
        return self.ts_at(index) * 1_000_000 + ns

    def cuts(self) -> Sequence[int]:
        """The cumulative ends as integers."""
        return memoryview(self.ends).cast("B").cast("I")

    def data_at(self, index: int) -> bytes:
        cuts = self.cuts()
        start = cuts[index - 1] if index else self.base
        return bytes(self.data[start : cuts[index]])

    def payloads(self) -> list[bytes]:
        """The payload of each record."""
        data, cuts = self.data, self.cuts()
        starts = [self.base, *cuts[:-1]]
        return [bytes(data[start:end]) for start, end in zip(starts, cuts, strict=True)]

    def sizes(self) -> list[int]:
        """The counted size of each record."""
        cuts = self.cuts()
        starts = [self.base, *cuts[:-1]]
        sizes = [
            end - start + RECORD_OVERHEAD_BYTES for start, end in zip(starts, cuts, strict=True)
        ]
        if self.metas is not None:
            sizes = [size + len(meta or b"") for size, meta in zip(sizes, self.metas, strict=True)]
        return sizes

    def measure(self, start: int, stop: int) -> int:
        """The counted size of the records with these indices."""
        if start >= stop:
            return 0
        cuts = self.cuts()
        size = cuts[stop - 1] - (cuts[start - 1] if start else self.base)
        if self.metas is not None:
            size += sum(len(meta) for meta in self.metas[start:stop] if meta)
        return size + RECORD_OVERHEAD_BYTES * (stop - start)

    @property
    def size_bytes(self) -> int:
        if self.metas is None and type(self.ends) is bytes:  # as one append brought it
            end = int.from_bytes(self.ends[-4:], byteorder)
            return end - self.base + RECORD_OVERHEAD_BYTES * (len(self.ends) // 4)
        return self.measure(0, self.count)


def block(drafts: Drafts, first: int, ts_ms: int, ns: int = 0) -> Block:
    """The drafts with their seqs and their commit time."""
    return Block(
        first,
        first + drafts.count - 1,
        ts_ms,
        drafts.data,
        drafts.ends,
        drafts.metas,
        drafts.tags,
        drafts.nodes,
        keys=drafts.keys,
        ns=ns,
        media=drafts.media,
    )


def cut(whole: Block, start: int, stop: int) -> Block:
    """The records with these indices, as a block that shares the payload bytes."""
    if start == 0 and stop == whole.count:
        return whole
    cuts = whole.cuts()
    return Block(
        whole.seq_at(start),
        whole.seq_at(stop - 1),
        whole.ts_at(start),
        whole.data,
        cast(bytes, memoryview(whole.ends).cast("B")[start * 4 : stop * 4]),
        whole.metas[start:stop] if whole.metas else None,
        whole.tags[start:stop] if whole.tags else None,
        whole.nodes[start:stop] if whole.nodes else None,
        cuts[start - 1] if start else whole.base,
        whole.seqs[start:stop] if whole.seqs is not None else None,
        whole.stamps[start:stop] if whole.stamps is not None else None,
        whole.keys[start:stop] if whole.keys else None,
        whole.ns if whole.nanos is None else whole.nanos[start],
        whole.nanos[start:stop] if whole.nanos is not None else None,
        whole.media,
    )


def join(singles: Sequence[Block]) -> Block:
    """Blocks of one record each, ascending and of one media type, as one block."""
    first, last = singles[0], singles[-1]
    whole = draft(
        [single.data_at(0) for single in singles],
        _joined([single.metas for single in singles]),
        _joined([single.tags for single in singles]),
        _joined([single.nodes for single in singles]),
        _joined([single.keys for single in singles]),
    )
    nanos = array("i", [single.ns for single in singles])
    return Block(
        first.first,
        last.last,
        first.ts_ms,
        whole.data,
        whole.ends,
        whole.metas,
        whole.tags,
        whole.nodes,
        seqs=memoryview(array("q", [single.first for single in singles])),
        stamps=memoryview(array("q", [single.ts_ms for single in singles])),
        keys=whole.keys,
        nanos=memoryview(nanos) if any(nanos) else None,
        media=first.media,
    )


def _joined(columns: list[list[T | None] | None]) -> list[T | None] | None:
    """One column of columns with one value each, or none."""
    if not any(columns):
        return None
    return [column[0] if column else None for column in columns]


def live_parts(whole: Block, gone: Ranges, floor: int) -> Iterator[Block]:
    """What is left of a block without the seqs in `gone` and those below `floor`."""
    for first, last in ranges.outside(gone, max(whole.first, floor), whole.last):
        start, stop = whole.index(first), whole.stop_index(last)
        if start < stop:
            yield cut(whole, start, stop)
