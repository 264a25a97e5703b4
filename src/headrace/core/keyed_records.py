"""The live records of a log by their keys: which there are of a key, and which key is the oldest.

Kept for logs with a rule by key, and made of their live records, so no snapshot has to hold it.
Whatever comes or goes costs the logarithm of what there is, and never a walk over all of it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from headrace.core import ranges
from headrace.core.ranges import Ranges
from headrace.core.record import Block

_ROWS_MAX = 512
"""Rows of a chunk: to move so many costs no more than to find one."""
_ROWS_FEW = _ROWS_MAX // 4
"""A chunk with fewer joins its neighbour, so that chunks cost less than what is in them."""
_NOTHING = array("q")


class _Chunk:
    __slots__ = ("keys", "seqs", "sizes")

    def __init__(self, seqs: array[int], keys: list[str], sizes: array[int]) -> None:
        self.seqs = seqs
        self.keys = keys
        self.sizes = sizes

    def cut(self, at: int) -> _Chunk:
        """Part with the rows from there on."""
        rest = _Chunk(self.seqs[at:], self.keys[at:], self.sizes[at:])
        del self.seqs[at:], self.keys[at:], self.sizes[at:]
        return rest


class SeqTable:
    """Rows of a seq, a key and a size, ascending by seq: most come at the end, any may go.

    In chunks, so that the collector has few objects to look at, and no change moves many rows.
    """

    __slots__ = ("_chunks", "_count", "_firsts")

    def __init__(self) -> None:
        self._chunks: list[_Chunk] = []
        self._firsts: list[int] = []
        """The first seq of each chunk; of one that lost it, a lower one."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """(seq, key) of each row, ascending; whoever changes the table meanwhile begins anew."""
        for chunk in self._chunks:
            yield from zip(chunk.seqs, chunk.keys, strict=True)

    def add(self, seq: int, key: str, size: int = 0) -> None:
        """Take in a row whose seq is not there."""
        if self._chunks:
            chunk = self._chunks[-1]
            if chunk.seqs and chunk.seqs[-1] < seq and len(chunk.seqs) < _ROWS_MAX:
                chunk.seqs.append(seq)
                chunk.keys.append(key)
                chunk.sizes.append(size)
                self._count += 1
                return
        else:
            self._chunks.append(_Chunk(array("q"), [], array("q")))
            self._firsts.append(seq)
        at = max(0, bisect_right(self._firsts, seq) - 1)
        chunk = self._chunks[at]
        row = bisect_left(chunk.seqs, seq)
        if len(chunk.seqs) >= _ROWS_MAX:
            at, row = self._split(at, row)
            chunk = self._chunks[at]
        chunk.seqs.insert(row, seq)
        chunk.keys.insert(row, key)
        chunk.sizes.insert(row, size)
        self._firsts[at] = min(seq, self._firsts[at])
        self._count += 1

    def _split(self, at: int, row: int) -> tuple[int, int]:
        """Make room for one more row; returns its chunk and its place there."""
        chunk = self._chunks[at]
        # Rows that come at the end leave full chunks behind.
        middle = row if row == len(chunk.seqs) else len(chunk.seqs) // 2
        rest = chunk.cut(middle)
        self._chunks.insert(at + 1, rest)
        self._firsts.insert(at + 1, rest.seqs[0] if rest.seqs else chunk.seqs[-1] + 1)
        return (at, row) if row < middle else (at + 1, row - middle)

    def _find(self, seq: int) -> tuple[int, int]:
        """(chunk, row) of the first row at or behind `seq` in the chunk that may hold it."""
        at = max(0, bisect_right(self._firsts, seq) - 1)
        return at, bisect_left(self._chunks[at].seqs, seq) if self._chunks else 0

    def get(self, seq: int) -> tuple[str, int]:
        """(key, size) of the row that is there."""
        at, row = self._find(seq)
        chunk = self._chunks[at]
        assert chunk.seqs[row] == seq, seq
        return chunk.keys[row], chunk.sizes[row]

    def pop(self, seq: int) -> str:
        """Take out the row that is there; returns its key."""
        at, row = self._find(seq)
        chunk = self._chunks[at]
        assert chunk.seqs[row] == seq, seq
        key = chunk.keys.pop(row)
        del chunk.seqs[row], chunk.sizes[row]
        self._count -= 1
        if len(chunk.seqs) < _ROWS_FEW:
            self._shrink(at)
        return key

    def _shrink(self, at: int) -> None:
        """Few rows are left in this chunk: let it go, or join it to a neighbour."""
        chunks = self._chunks
        if not chunks[at].seqs:
            del chunks[at], self._firsts[at]
            return
        for before in (at - 1, at):
            if not 0 <= before < len(chunks) - 1:
                continue
            low, high = chunks[before], chunks[before + 1]
            if len(low.seqs) + len(high.seqs) <= _ROWS_MAX // 2:
                low.seqs += high.seqs
                low.keys += high.keys
                low.sizes += high.sizes
                del chunks[before + 1], self._firsts[before + 1]
                return

    def overlap(self, first: int, last: int) -> list[int]:
        """The seqs in [first, last], ascending."""
        found: list[int] = []
        if not self._chunks:
            return found
        at, row = self._find(first)
        while at < len(self._chunks) and self._firsts[at] <= last:
            seqs = self._chunks[at].seqs
            found += seqs[row : bisect_right(seqs, last)]
            at, row = at + 1, 0
        return found


class KeyedRecords:
    """What a log holds of each key."""

    __slots__ = ("_newest", "_records", "_seqs")

    def __init__(self) -> None:
        self._seqs: dict[str, int | array[int]] = {}
        """The seqs of each key, ascending; a key of one record has its seq alone."""
        self._records = SeqTable()
        self._newest = SeqTable()
        """The last seq of each key."""

    @property
    def count(self) -> int:
        """How many keys there are."""
        return len(self._seqs)

    @property
    def records(self) -> int:
        """How many records with a key there are."""
        return len(self._records)

    def __contains__(self, key: str) -> bool:
        return key in self._seqs

    def keys(self) -> list[str]:
        return list(self._seqs)

    def of(self, key: str) -> Sequence[int]:
        """The seqs of a key, ascending."""
        held = self._seqs.get(key, _NOTHING)
        return (held,) if isinstance(held, int) else held

    def size_of(self, seq: int) -> int:
        """The counted size of a record that has a key."""
        return self._records.get(seq)[1]

    def oldest(self) -> Iterator[str]:
        """The keys, that whose newest record is the oldest first."""
        return (key for _, key in self._newest)

    def add(self, block: Block) -> None:
        """New records, which are behind all others."""
        if block.keys is None:
            return
        for at, (key, size) in enumerate(zip(block.keys, block.sizes(), strict=True)):
            if key is not None:
                self._put(block.seq_at(at), key, size)

    def _put(self, seq: int, key: str, size: int) -> None:
        held = self._seqs.get(key)
        if held is None:
            self._seqs[key] = seq
        elif isinstance(held, int):
            self._newest.pop(held)
            self._seqs[key] = array("q", (held, seq))
        else:
            self._newest.pop(held[-1])
            held.append(seq)
        self._records.add(seq, key, size)
        self._newest.add(seq, key)

    def remove(self, gone: Ranges) -> None:
        """These seqs hold no live record any more; some may never have had a key."""
        for first, last in ranges.pairs(gone):
            for seq in self._records.overlap(first, last):
                self._take(seq)

    def drop_below(self, floor: int) -> None:
        """Nothing below the floor is left."""
        for seq in self._records.overlap(0, floor - 1):
            self._take(seq)

    def _take(self, seq: int) -> None:
        key = self._records.pop(seq)
        held = self._seqs[key]
        if isinstance(held, int):
            del self._seqs[key]
            self._newest.pop(seq)
            return
        if held[-1] == seq:
            self._newest.pop(seq)
            self._newest.add(held[-2], key)
        held.pop(bisect_left(held, seq))
        if len(held) == 1:
            self._seqs[key] = held[0]
