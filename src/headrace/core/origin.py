"""Where a log's copies come from: which logs each has been through, and which record it copies.

Kept in runs of neighbours that came the same way; a log that only routers write to has one run.
What is in no run was written to the log itself.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from headrace.core.limits import ORIGINS_KEPT, U64_MAX

Path = tuple[int, ...]
"""The logs a copy has been through before this one, oldest first; empty for an original."""


class Lineage(NamedTuple):
    """What the copies of a run have in common."""

    router: str
    """Which router brought them, if that must be known of each copy; else nothing."""
    path: Path


class Origins:
    """The runs of one log, ascending by seq."""

    __slots__ = ("_firsts", "_lasts", "_lineages", "_sources", "_which")

    def __init__(self) -> None:
        self._firsts = array("q")
        self._lasts = array("q")
        self._sources = array("q")  # the source's seq of the first copy; 0 where nobody asks
        self._which = array("q")  # index into the lineages
        self._lineages: list[Lineage] = []

    def add(self, first: int, last: int, source_first: int, lineage: Lineage) -> None:
        """Note the copies [first, last], which come behind all noted so far."""
        which = self._index(lineage)
        if self._lasts and self._lasts[-1] == first - 1 and self._which[-1] == which:
            expected = self._sources[-1] and self._sources[-1] + first - self._firsts[-1]
            if expected == source_first:
                self._lasts[-1] = last
                return
        self._firsts.append(first)
        self._lasts.append(last)
        self._sources.append(source_first)
        self._which.append(which)

    def _index(self, lineage: Lineage) -> int:
        if lineage in self._lineages:
            return self._lineages.index(lineage)
        self._lineages.append(lineage)
        return len(self._lineages) - 1

    @property
    def paths(self) -> Iterator[Path]:
        """Every way copies came."""
        return (lineage.path for lineage in self._lineages)

    def path_of(self, seq: int) -> tuple[Path, int]:
        """The path of the record with this seq, and the last seq up to which it stays the same."""
        at = bisect_left(self._lasts, seq)
        if at == len(self._lasts):
            return (), U64_MAX
        if self._firsts[at] <= seq:
            return self._lineages[self._which[at]].path, self._lasts[at]
        return (), self._firsts[at] - 1

    def copies(self, router: str, source: int) -> Iterator[tuple[int, int, int]]:
        """(first, last, seq here of the first) of the source's records this router has copied."""
        wanted = {
            at
            for at, lineage in enumerate(self._lineages)
            if lineage.router == router and lineage.path[-1] == source
        }
        if wanted:
            for at, which in enumerate(self._which):
                if which in wanted:
                    first, start = self._sources[at], self._firsts[at]
                    yield first, first + self._lasts[at] - start, start

    def drop_below(self, floor: int) -> None:
        """Forget runs that end below `floor`, but for the newest of those.

        A router that leads on from here may have to tell whether what it missed was for it.
        """
        stop = bisect_left(self._lasts, floor) - ORIGINS_KEPT
        if stop > 0:
            for column in (self._firsts, self._lasts, self._sources, self._which):
                del column[:stop]

    def dump(self) -> tuple[list[bytes], list[Lineage]]:
        """The runs as four native int64 columns, and the lineages, for the snapshot."""
        columns = (self._firsts, self._lasts, self._sources, self._which)
        return [column.tobytes() for column in columns], self._lineages

    @classmethod
    def load(cls, columns: list[bytes], lineages: list[Lineage]) -> Origins:
        origins = cls()
        held = (origins._firsts, origins._lasts, origins._sources, origins._which)
        for column, raw in zip(held, columns, strict=True):
            column.frombytes(raw)
        origins._lineages = lineages
        return origins
