"""The newest records of a log in memory: blocks in order, and an index of their tags."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter

from headrace.core import ranges
from headrace.core.match import TagEq, TagMatch
from headrace.core.ranges import Ranges
from headrace.core.record import Block, cut, join

BLOCK_OVERHEAD_BYTES = 320
"""What a block costs in memory beside its payload; measured with single-record blocks."""

_SWEEP_BLOCKS = 256
"""Blocks to look at in one turn for dead ones."""
_SWEEP_AFTER = _SWEEP_BLOCKS // 2

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
        """Forget a block that leaves memory; nearly always it is the oldest."""
        for index, tag in enumerate(block.tags or ()):
            if tag is not None:
                self.forget(tag, block.seq_at(index))

    def forget(self, tag: str, seq: int) -> None:
        """Forget a record."""
        held = self._seqs[tag]
        if not isinstance(held, int):
            if held[0] == seq:
                held.popleft()
            else:
                held.remove(seq)
            if held:
                return
        del self._seqs[tag]
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

    __slots__ = ("_hand", "_unswept", "blocks", "start", "tags")

    def __init__(self, start: int) -> None:
        self.start = start
        self._hand = 0
        """Where the next look for dead blocks begins."""
        self._unswept = 0
        """Records that died since the last one."""
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

    def sweep(self, missing: Sequence[Ranges], dead: int) -> int:
        """So many more records are dead: let go of dead ones, some for each of them, wherever they
        lie; returns the memory that frees.

        A look goes round in turns, twice as fast as records die: it holds nobody up, and at most
        about half of what is here is dead.
        """
        self._unswept += dead
        looks = min(self._unswept // _SWEEP_AFTER, len(self.blocks) // _SWEEP_BLOCKS + 1)
        self._unswept %= _SWEEP_AFTER
        return sum(self._sweep(missing) for _ in range(looks))

    def _sweep(self, missing: Sequence[Ranges]) -> int:
        if not self.blocks:
            return 0
        start = self._hand if self._hand < len(self.blocks) else 0
        old = self.blocks[start : start + _SWEEP_BLOCKS]
        new = [left for block in old if (left := self._live_of(block, missing)) is not None]
        # What was still alive at the end of a round is looked at in the next one.
        self._hand = start + len(new) if start + len(old) < len(self.blocks) else 0
        self.blocks[start : start + len(old)] = new
        if not self.blocks:
            self.blocks, self.tags = (), None
        return sum(map(resident_bytes, old)) - sum(map(resident_bytes, new))

    def _live_of(self, block: Block, missing: Sequence[Ranges]) -> Block | None:
        """The block, or what is left of it where most of it is dead."""
        picks = [
            at
            for low, high in ranges.outside_all(missing, block.first, block.last)
            for at in range(block.index(low), block.stop_index(high))
        ]
        if len(picks) * 2 > block.count:
            return block
        if self.tags is not None and block.tags is not None:
            live = set(picks)
            for at, tag in enumerate(block.tags):
                if tag is not None and at not in live:
                    self.tags.forget(tag, block.seq_at(at))
        return join([cut(block, at, at + 1) for at in picks]) if picks else None

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
