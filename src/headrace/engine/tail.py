"""The newest records of a log in memory: blocks in order, and an index of their tags."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
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
    """Which seqs carry a tag: those of records in memory, and no others.

    Distinct tags are kept sorted for prefixes, but sorted only when asked.
    """

    __slots__ = ("_seqs", "_sorted")

    def __init__(self) -> None:
        self._seqs: dict[str, int | deque[int]] = {}
        """A tag of one record has its seq alone: a queue costs more than most records."""
        self._sorted: list[str] | None = None
        """None since a tag came or went."""

    def __len__(self) -> int:
        return len(self._seqs)

    def add(self, block: Block) -> None:
        known = self._seqs
        for index, tag in enumerate(block.tags or ()):
            if tag is None:
                continue
            held = known.get(tag)
            if held is None:
                known[tag] = block.seq_at(index)
                self._sorted = None
            elif isinstance(held, int):
                known[tag] = deque((held, block.seq_at(index)))
            else:
                held.append(block.seq_at(index))

    def remove(self, block: Block) -> None:
        """Forget a block that leaves memory; the oldest goes first."""
        known = self._seqs
        for tag in block.tags or ():
            if tag is None:
                continue
            held = known[tag]
            if not isinstance(held, int):
                held.popleft()
                if held:
                    continue
            del known[tag]
            self._sorted = None

    def find(self, match: TagMatch, before: int) -> list[int]:
        """Ascending seqs below `before` whose tag matches."""
        if isinstance(match, TagEq):
            return [seq for seq in self._of(match.tag) if seq < before]
        if self._sorted is None:
            self._sorted = sorted(self._seqs)
        found: list[int] = []
        for at in range(bisect_left(self._sorted, match.prefix), len(self._sorted)):
            tag = self._sorted[at]
            if not tag.startswith(match.prefix):
                break
            found.extend(seq for seq in self._of(tag) if seq < before)
        return sorted(found)

    def _of(self, tag: str) -> Iterable[int]:
        held = self._seqs.get(tag, ())
        return (held,) if isinstance(held, int) else held


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

    def drop_to(self, last: int, blocks_max: int | None = None) -> int:
        """Let go of blocks that end at or before `last`, of so many at most, oldest first; returns
        the memory that frees.
        """
        freed = count = 0
        for block in islice(self.blocks, blocks_max):
            if block.last > last:
                break
            freed += resident_bytes(block)
            count += 1
            if self.tags is not None:
                self.tags.remove(block)
        if self.blocks and count:
            self.start = self.blocks[count - 1].last + 1
            del self.blocks[:count]
            if not self.blocks:
                self.blocks, self.tags = (), None
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
