"""Reading the files of a build by key.

Only footers stay in memory; a lookup reads one row group, or none when the hashes say that the key
is not there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.formats.companion import (
    Descriptor,
    Family,
    File,
    Hashes,
    Part,
    has_hash,
    log_key,
    upper,
)
from headrace.formats.leb128 import Ints
from headrace.formats.postings import decode_postings
from headrace.search.docsets import EMPTY

OpenFile = Callable[[File], pq.ParquetFile]
OpenHashes = Callable[[File], Hashes]

POSTINGS = ("k", "n", "first", "last", "post")


class Sorted:
    """A file of a family: rows by key."""

    def __init__(self, file: pq.ParquetFile) -> None:
        self._file = file
        metadata = file.metadata
        self._minima: list[bytes] = [
            metadata.row_group(at).column(0).statistics.min for at in range(metadata.num_row_groups)
        ]
        self.metadata = metadata

    def groups(self, low: bytes, high: bytes | None) -> range:
        """The row groups that may have keys in [low, high)."""
        start = max(0, bisect_left(self._minima, low) - 1)
        stop = len(self._minima) if high is None else bisect_left(self._minima, high)
        return range(start, stop)

    def read(self, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        return self._file.read_row_groups(groups, columns=list(columns)).combine_chunks()

    def rows(self, low: bytes, high: bytes | None, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The rows with keys in [low, high), by row group."""
        for group in self.groups(low, high):
            table = self.read([group], columns)
            keys = Keys(table.column("k").chunk(0))
            start = bisect_left(keys, low)
            stop = len(keys) if high is None else bisect_left(keys, high, start)
            if start < stop:
                yield table.slice(start, stop - start)

    def find(self, key: bytes, columns: Sequence[str]) -> pa.Table | None:
        """The row of a key."""
        group = bisect_right(self._minima, key) - 1
        if group < 0:
            return None
        table = self.read([group], columns)
        keys = Keys(table.column("k").chunk(0))
        at = bisect_left(keys, key)
        return table.slice(at, 1) if at < len(keys) and keys[at] == key else None


class Keys(Sequence[bytes]):
    """An array of binary, to be searched without making objects of all of it."""

    def __init__(self, array: pa.Array) -> None:
        offsets, data = array.buffers()[1:]
        self._cuts = np.frombuffer(offsets, np.int32)[array.offset :]
        self._data = memoryview(data if data is not None else b"")
        self._count = len(array)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at):  # type: ignore[no-untyped-def]
        return bytes(self._data[self._cuts[at] : self._cuts[at + 1]])


class Companions:
    """The files of a build, opened when they are needed."""

    def __init__(
        self, build: Descriptor, open_file: OpenFile, open_hashes: OpenHashes | None = None
    ) -> None:
        self.build = build
        self._parts = {part.log: part for part in build.parts}
        self._open_file = open_file
        self._open_hashes = open_hashes
        self._files: dict[Family, Sorted | None] = {}
        self._hashes: dict[Family, Hashes | None] = {}

    def part(self, log: int) -> Part | None:
        """What the build has of a log with a plan."""
        return self._parts.get(log)

    def file(self, family: Family) -> Sorted | None:
        if family not in self._files:
            found = self.build.file(family)
            self._files[family] = Sorted(self._open_file(found)) if found else None
        return self._files[family]

    def may_have(self, family: Family, key: bytes) -> bool:
        """False when the key is certainly in no row, which takes no file to know."""
        if family not in self._hashes:
            found = self.build.file(f"{family}.hash")
            opened = self._open_hashes(found) if found and self._open_hashes else None
            self._hashes[family] = opened
        hashes = self._hashes[family]
        return hashes is None or has_hash(hashes, key)

    def postings(self, family: Family, key: bytes) -> Ints:
        """The records of a key."""
        row = self._row(family, key, POSTINGS)
        return EMPTY if row is None else decode_rows(row)[0]

    def _row(self, family: Family, key: bytes, columns: Sequence[str]) -> pa.Table | None:
        file = self.file(family) if self.may_have(family, key) else None
        return file.find(key, columns) if file is not None else None

    def keys(self, log: int, after: bytes = b"") -> Iterator[Key]:
        """The keys of a log's records above one, ascending; their bytes as `short` makes them."""
        file = self.file(Family.LEX)
        low = log_key(log)
        if file is not None:
            for table in file.rows(low + after, upper(low), POSTINGS[:-1]):
                for k, *row in zip(*(c.to_pylist() for c in table.columns), strict=True):
                    if k > low + after or not after:
                        yield Key(k[len(low) :], *row)

    def terms(self, low: bytes, high: bytes | None) -> Iterator[Term]:
        """The words in [low, high)."""
        file = self.file(Family.TEXT)
        if file is not None:
            for table in file.rows(low, high, (*POSTINGS, "pos")):
                yield from _terms(table)

    def term(self, key: bytes) -> Term | None:
        row = self._row(Family.TEXT, key, (*POSTINGS, "pos"))
        return next(iter(_terms(row))) if row is not None else None


class Key(NamedTuple):
    """A key of records: how many have it, the first and the last of them."""

    key: bytes
    n: int
    first: int
    last: int


class Term(NamedTuple):
    """A word: the records that have it, and where."""

    key: bytes
    seqs: Ints
    pos: bytes


def decode_rows(table: pa.Table) -> list[Ints]:
    columns = [table.column(name).to_pylist() for name in POSTINGS[1:]]
    return [decode_postings(*row) for row in zip(*columns, strict=True)]


def _terms(table: pa.Table) -> Iterator[Term]:
    keys, positions = table.column("k").to_pylist(), table.column("pos").to_pylist()
    for key, seqs, pos in zip(keys, decode_rows(table), positions, strict=True):
        yield Term(key, seqs, pos)
