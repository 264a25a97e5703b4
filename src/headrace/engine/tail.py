"""The newest records of a log in memory: blocks in order, and an index of their tags."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from operator import attrgetter

from headrace.core.match import TagEq, TagMatch
from headrace.core.record import Block

BLOCK_OVERHEAD_BYTES = 320
"""What a block costs in memory beside its payload; measured with single-record blocks."""

_first = attrgetter("first")


def _last_ns(block: Block) -> int:
    return block.ns_at(block.count - 1)


def resident_bytes(block: Block) -> int:
    return len(block.data) + len(block.ends) + BLOCK_OVERHEAD_BYTES


class TagIndex:
    """Which seqs carry a tag.

    Distinct tags are kept sorted for prefixes, but sorted only when asked.
    """

    __slots__ = ("_fresh", "_seqs", "_sorted")

    def __init__(self) -> None:
        self._seqs: dict[str, deque[int]] = {}
        self._sorted: list[str] = []
        self._fresh: list[str] = []

    def add(self, block: Block) -> None:
        for index, tag in enumerate(block.tags or ()):
            if tag is None:
                continue
            held = self._seqs.get(tag)
            if held is None:
                held = self._seqs[tag] = deque()
                self._fresh.append(tag)
            held.append(block.seq_at(index))

    def remove(self, block: Block) -> None:
        """Forget a block that leaves memory; the oldest goes first."""
        for tag in block.tags or ():
            if tag is not None and (held := self._seqs.get(tag)):
                held.popleft()

    def find(self, match: TagMatch, before: int) -> list[int]:
        """Ascending seqs below `before` whose tag matches."""
        if isinstance(match, TagEq):
            return [seq for seq in self._seqs.get(match.tag, ()) if seq < before]
        if self._fresh:
            # A tag whose records have all left memory goes here, not where each of them left.
            self._seqs = {tag: seqs for tag, seqs in self._seqs.items() if seqs}
            self._sorted = sorted(self._seqs)
            self._fresh = []
        found: list[int] = []
        for at in range(bisect_left(self._sorted, match.prefix), len(self._sorted)):
            tag = self._sorted[at]
            if not tag.startswith(match.prefix):
                break
            found.extend(seq for seq in self._seqs.get(tag, ()) if seq < before)
        return sorted(found)


class Tail:
    """Every live record from `start` on is in here."""

    __slots__ = ("blocks", "start", "tags")

    def __init__(self, start: int) -> None:
        self.start = start
        self.blocks: list[Block] | tuple[()] = ()
        """No list for none: there may be a million logs that nobody writes to."""
        self.tags: TagIndex | None = None

    def add(self, block: Block) -> int:
        """Take a block in; returns the memory it costs."""
        if self.blocks:
            self.blocks.append(block)
        else:
            self.blocks = [block]
        if block.tags is not None:
            if self.tags is None:
                self.tags = TagIndex()
            self.tags.add(block)
        return resident_bytes(block)

    def since(self, seq: int) -> Iterator[Block]:
        """Blocks that reach `seq`, in order."""
        blocks = self.blocks
        at = max(0, bisect_right(blocks, seq, key=_first) - 1)
        if blocks and blocks[at].last < seq:
            at += 1
        for at in range(at, len(blocks)):  # noqa: B020
            yield blocks[at]

    def seek(self, at_ns: int) -> int | None:
        """The first record here of this time or later; times never fall."""
        at = bisect_left(self.blocks, at_ns, key=_last_ns)
        if at == len(self.blocks):
            return None
        block = self.blocks[at]
        return block.seq_at(bisect_left(range(block.count), at_ns, key=block.ns_at))

    def drop_to(self, last: int) -> int:
        """Let go of blocks that end at or before `last`; returns the memory that frees."""
        freed = count = 0
        for block in self.blocks:
            if block.last > last:
                break
            freed += resident_bytes(block)
            count += 1
            if self.tags is not None:
                self.tags.remove(block)
        if self.blocks and count:
            self.start = self.blocks[count - 1].last + 1
            del self.blocks[:count]
            self.blocks = self.blocks or ()
        return freed

    def tagged(self, match: TagMatch, before: int) -> list[tuple[int, int]]:
        """(seq, size) of records whose tag matches, ascending, below `before`."""
        if self.tags is None:
            return []
        return [(seq, self._size(seq)) for seq in self.tags.find(match, before)]

    def _size(self, seq: int) -> int:
        block = next(self.since(seq))
        at = block.index(seq)
        return block.measure(at, at + 1)

    def measure(self, first: int, last: int) -> int:
        """Bytes of the records in [first, last]."""
        total = 0
        for block in self.since(first):
            if block.first > last:
                break
            total += block.measure(block.index(first), block.stop_index(last))
        return total
