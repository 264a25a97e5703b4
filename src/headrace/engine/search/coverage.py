"""What an answer covers: how much was looked at, where, and what was not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headrace.core import ranges
from headrace.core.log import Extent
from headrace.core.ranges import Ranges
from headrace.engine.search.scope import IndexedSpan, ScanBatch, SearchScope
from headrace.formats.companion import Family
from headrace.search.companions import Spent, TimeUp

_USED = {
    Family.LEX: "lex",
    Family.EXACT: "exact",
    Family.TYPED: "col",
    Family.TEXT: "fts",
    Family.ROLL: "agg",
}
"""What answers call the families."""


class _Missing(NamedTuple):
    seqs: Ranges
    events: int
    sealed: int
    segments: int


class Coverage:
    """Counts what was looked at of a scope."""

    def __init__(self, scope: SearchScope) -> None:
        self._scope = scope
        self.head = scope.head
        self._seen: list[int] = []
        self._missing: _Missing | None = None
        self.indexed: set[int] = set()
        """Segments that builds spoke for."""
        self.scanned: set[int] = set()
        """Segments whose records were looked at one by one."""
        self.scanned_tail_docs = 0
        self.families: set[str] = set()
        self.newest_ms: int | None = None
        """The latest primary timestamp of what was looked at."""
        self.oldest_left_ms: int | None = None
        """When the first record was appended that was not looked at."""
        self.indexed_s = self.scanned_s = self.scanned_tail_s = 0.0
        self.text_get_s = self.text_decode_s = self.exact_s = 0.0

    def saw_indexed(self, indexed: IndexedSpan) -> None:
        """A build was asked."""
        self._missing = None
        self.indexed |= indexed.segments
        for low, high in ranges.pairs(indexed.spans):
            ranges.add(self._seen, low, high)

    def saw_scanned(self, batch: ScanBatch) -> None:
        """Records were looked at."""
        self._missing = None
        ranges.add(self._seen, batch.first, batch.last)
        if batch.sealed:
            self.scanned |= self._segments(batch.first, batch.last)
        else:
            self.scanned_tail_docs += batch.count

    def note_newest(self, ms: int | None) -> None:
        """Something of this time was looked at."""
        if ms is not None and (self.newest_ms is None or ms > self.newest_ms):
            self.newest_ms = ms

    def note_families(self, spent: Mapping[Family, Spent]) -> None:
        """A build was asked, and it cost this."""
        self.families.update(_USED[family] for family in spent)
        if (text := spent.get(Family.TEXT)) is not None:
            self.text_get_s += text.read_s
            self.text_decode_s += text.decode_s
        if (exact := spent.get(Family.EXACT)) is not None:
            self.exact_s += exact.read_s + exact.decode_s

    def watch(self, work: Iterator[None]) -> Iterator[None]:
        """Let work look at the scope, as far as it has time."""
        try:
            yield from work
        except TimeUp:
            if not self.complete:
                self.oldest_left_ms = self._scope.appended_ms(self.missing[0])
        else:
            self._missing = _Missing((), 0, 0, 0)  # whatever was not met is not there

    @property
    def missing(self) -> Ranges:
        """The seqs that may hold records and were not looked at."""
        return self._left().seqs

    def _left(self) -> _Missing:
        """There may be as much as a log has holes: ask once in a thread, then it is known."""
        if self._missing is None:
            seqs = [
                seq
                for low, high in self._scope.live_ranges()
                for left in ranges.outside(self._seen, low, high)
                for seq in left
            ]
            extents = list(self._extents())
            sealed = sum(
                high - low + 1
                for _, first, last in extents
                for low, high in ranges.overlap(seqs, first, last)
            )
            segments = {n for n, low, high in extents if ranges.touches(seqs, low, high)}
            self._missing = _Missing(seqs, ranges.count(seqs), sealed, len(segments))
        return self._missing

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
        return self._left().events

    @property
    def missing_sealed(self) -> int:
        """How many of them lie in segments."""
        return self._left().sealed

    @property
    def missing_tail(self) -> int:
        return self.missing_events - self.missing_sealed

    @property
    def missing_segments(self) -> int:
        return self._left().segments

    def _segments(self, first: int, last: int) -> set[int]:
        """The segments that these seqs lie in."""
        return {n for n, low, high in self._extents() if low <= last and first <= high}

    def _extents(self) -> Iterator[Extent]:
        """Where the records lie that can be seen, as far as they are in segments."""
        for span in self._scope.log_spans:
            for number, low, high in span.extents:
                low, high = max(low, span.first), min(high, span.last)
                if low <= high:
                    yield number, low, high
