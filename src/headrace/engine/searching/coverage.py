"""What an answer covers: how much was looked at, where, and what was not."""

from __future__ import annotations

from enum import StrEnum

from headrace.core import ranges
from headrace.core.ranges import Ranges
from headrace.engine.searching.scope import Batch, Cold, Scope


class Used(StrEnum):
    """A family of companions, as answers name it."""

    EXACT = "exact"
    COLUMNS = "col"
    TEXT = "fts"
    ROLLUPS = "agg"
    KEYS = "lex"


class Coverage:
    """Counts what was looked at of a scope."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._seen: list[int] = []
        self.indexed: set[int] = set()
        """Segments that builds spoke for."""
        self.scanned: set[int] = set()
        """Segments whose records were looked at one by one."""
        self.scanned_tail_docs = 0
        self.families: set[str] = set()
        self.newest_ms: int | None = None
        """The latest primary timestamp of what was looked at."""

    def saw_cold(self, cold: Cold) -> None:
        """A build was asked."""
        self.indexed |= cold.segments
        for low, high in ranges.pairs(cold.spans):
            ranges.add(self._seen, low, high)

    def saw_hot(self, batch: Batch) -> None:
        """Records were looked at."""
        ranges.add(self._seen, batch.first, batch.last)
        if batch.sealed:
            self.scanned |= self._segments(batch.first, batch.last)
        else:
            self.scanned_tail_docs += batch.count

    def saw_all(self) -> None:
        """There is nothing else: whatever was not met is not there."""
        if self._scope.head:
            ranges.add(self._seen, 1, self._scope.head)

    @property
    def missing(self) -> Ranges:
        """The seqs that may hold records and were not looked at."""
        return [
            seq
            for low, high in self._scope.live_ranges()
            for left in ranges.outside(self._seen, low, high)
            for seq in left
        ]

    @property
    def complete(self) -> bool:
        return not self.missing

    @property
    def visible_through(self) -> int:
        """Everything up to here was looked at."""
        missing = self.missing
        return missing[0] - 1 if missing else self._scope.head

    @property
    def missing_events(self) -> int:
        return ranges.count(self.missing)

    @property
    def missing_sealed(self) -> int:
        """How many of them lie in segments."""
        sealed = 0
        for reach in self._scope.reaches:
            for low, high in ranges.pairs(self.missing):
                for _, first, last in reach.extents:
                    first, last = max(low, first, reach.first), min(high, last, reach.last)
                    sealed += max(0, last - first + 1)
        return sealed

    @property
    def missing_tail(self) -> int:
        return self.missing_events - self.missing_sealed

    @property
    def missing_segments(self) -> int:
        return len(
            {n for low, high in ranges.pairs(self.missing) for n in self._segments(low, high)}
        )

    def _segments(self, first: int, last: int) -> set[int]:
        """The segments that these seqs lie in."""
        return {
            number
            for reach in self._scope.reaches
            for number, low, high in reach.extents
            if max(low, first, reach.first) <= min(high, last, reach.last)
        }
