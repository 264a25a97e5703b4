"""What retention takes: by age, by count, by bytes.

Decided here, written into entries, applied as told. A log with retention keeps a ledger of its
records' ages and sizes, in runs of equal ones. It answers "how far must the floor move" exactly and
without touching a payload, wherever the payload lies.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from headrace.core import ranges
from headrace.core.ranges import Ranges
from headrace.core.record import Block

_COMPACT_AFTER = 4096
_SWEEP_RUNS = 256
"""Runs to look at in one turn for dead ones."""
_SWEEP_AFTER = _SWEEP_RUNS // 2


class Ledger:
    """Ages and sizes of a log's records, oldest first, in runs of consecutive seqs."""

    __slots__ = ("_firsts", "_hand", "_lasts", "_sizes", "_stamps", "_start", "_unswept")

    def __init__(self) -> None:
        self._firsts = array("q")
        self._lasts = array("q")
        self._stamps = array("q")
        self._sizes = array("q")
        self._start = 0
        self._hand = 0
        """Where the next look for dead runs begins."""
        self._unswept = 0
        """Records that died since the last one."""

    def add(self, block: Block) -> None:
        """Note the records of a block; blocks come in ascending order."""
        sizes = block.sizes()
        if block.seqs is None and sizes.count(sizes[0]) == len(sizes):
            self._push(block.first, block.last, block.ts_ms, sizes[0])
            return
        for index, size in enumerate(sizes):
            seq = block.seq_at(index)
            self._push(seq, seq, block.ts_at(index), size)

    def _push(self, first: int, last: int, ts_ms: int, size: int) -> None:
        if (
            len(self._lasts) > self._start
            and self._lasts[-1] == first - 1
            and self._stamps[-1] == ts_ms
            and self._sizes[-1] == size
        ):
            self._lasts[-1] = last
            return
        self._firsts.append(first)
        self._lasts.append(last)
        self._stamps.append(ts_ms)
        self._sizes.append(size)

    def drop_below(self, floor: int) -> None:
        """Forget records below `floor`."""
        start, lasts = self._start, self._lasts
        while start < len(lasts) and lasts[start] < floor:
            start += 1
        if start < len(lasts) and self._firsts[start] < floor:
            self._firsts[start] = floor
        self._start = start
        if start > _COMPACT_AFTER and start * 2 > len(lasts):
            for column in (self._firsts, self._lasts, self._stamps, self._sizes):
                del column[:start]
            self._start = 0

    def sweep(self, gone: Sequence[Ranges], dead: int) -> None:
        """So many more records are gone: forget runs of such, some for each of them.

        A look goes round in turns, twice as fast as records go, so that the ledger is at most about
        twice as long as it must be; whoever asks names what is gone, forgotten or not.
        """
        self._unswept += dead
        looks = min(self._unswept // _SWEEP_AFTER, len(self._lasts) // _SWEEP_RUNS + 1)
        self._unswept %= _SWEEP_AFTER
        for _ in range(looks):
            self._sweep(gone)

    def _sweep(self, gone: Sequence[Ranges]) -> None:
        start = self._hand if self._start <= self._hand < len(self._lasts) else self._start
        stop = min(start + _SWEEP_RUNS, len(self._lasts))
        live = [
            at
            for at in range(start, stop)
            if next(ranges.outside_all(gone, self._firsts[at], self._lasts[at]), None)
        ]
        # What was still alive at the end of a round is looked at in the next one.
        self._hand = start + len(live) if stop < len(self._lasts) else 0
        if len(live) < stop - start:
            for column in (self._firsts, self._lasts, self._stamps, self._sizes):
                column[start:stop] = array("q", [column[at] for at in live])

    def runs(self, gone: Sequence[Ranges], after: int = 0) -> Iterator[tuple[int, int, int, int]]:
        """(first, last, ts_ms, size of each) of what is in none of `gone`, oldest first."""
        start = bisect_left(self._lasts, after + 1, self._start)
        for at in range(start, len(self._firsts)):
            first, last = max(self._firsts[at], after + 1), self._lasts[at]
            ts_ms, size = self._stamps[at], self._sizes[at]
            for low, high in ranges.outside_all(gone, first, last):
                yield low, high, ts_ms, size

    def measure(self, first: int, last: int, gone: Sequence[Ranges]) -> tuple[int, int]:
        """(count, bytes) of the records in [first, last] that are in none of `gone`."""
        count = size_bytes = 0
        for low, high, _, size in self.runs(gone, first - 1):
            if low > last:
                break
            records = min(high, last) - low + 1
            count += records
            size_bytes += records * size
        return count, size_bytes

    def first_since(self, at_ms: int) -> int | None:
        """The first seq that is not older than this; None if all are."""
        at = bisect_left(self._stamps, at_ms, self._start)  # (commit times never fall)
        return self._firsts[at] if at < len(self._firsts) else None

    def dump(self) -> list[bytes]:
        """The runs as four native int64 columns, for the snapshot."""
        columns = (self._firsts, self._lasts, self._stamps, self._sizes)
        return [column[self._start :].tobytes() for column in columns]

    @classmethod
    def load(cls, columns: list[bytes]) -> Ledger:
        ledger = cls()
        held = (ledger._firsts, ledger._lasts, ledger._stamps, ledger._sizes)
        for column, raw in zip(held, columns, strict=True):
            column.frombytes(raw)
        return ledger


def build(blocks: Iterator[Block]) -> Ledger:
    """The ledger of a log that had no retention until now, from its blocks in ascending order."""
    ledger = Ledger()
    for block in blocks:
        ledger.add(block)
    return ledger


def overflow(
    ledger: Ledger, gone: Sequence[Ranges], excess_records: int, excess_bytes: int
) -> tuple[int, int, int]:
    """(floor, count, bytes) of the oldest records that must go to shed at least both excesses.

    The floor is the seq behind the last record that goes; 0 when none must.
    """
    floor = count = size_bytes = 0
    for first, last, _, size in ledger.runs(gone):
        wanted = max(excess_records - count, -(-(excess_bytes - size_bytes) // size))
        if wanted <= 0:
            break
        records = min(wanted, last - first + 1)
        count += records
        size_bytes += records * size
        floor = first + records
    return floor, count, size_bytes


def expired(
    ledger: Ledger, gone: Sequence[Ranges], ttl_ms: int, now_ms: int
) -> tuple[int, int, int]:
    """(floor, count, bytes) of the records older than the time to live; floor 0 when none is."""
    floor = count = size_bytes = 0
    for first, last, ts_ms, size in ledger.runs(gone):
        if now_ms - ts_ms <= ttl_ms:
            break
        count += last - first + 1
        size_bytes += (last - first + 1) * size
        floor = last + 1
    return floor, count, size_bytes
