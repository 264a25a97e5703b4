"""Reading the files of a build by key.

A lookup reads one row group, or none when the hashes say that the key is not there. What was
decoded is kept as long as there is room for it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

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
)
from headrace.formats.leb128 import Ints
from headrace.search.docsets import EMPTY
from headrace.search.families.postings import POSTINGS, decode_rows

OpenFile = Callable[[File], pq.ParquetFile]
OpenHashes = Callable[[File], Hashes]


class BuildCache(Protocol):
    """Keeps what was decoded of one build, while there is room."""

    def get(self, key: object) -> Any:
        """What was put there; None when it is not there any more."""

    def put(self, key: object, value: Any, size_bytes: int) -> None: ...


class Forgetful:
    """Keeps nothing."""

    def get(self, key: object) -> Any:
        return None

    def put(self, key: object, value: Any, size_bytes: int) -> None:
        pass


class NotIndexed(Exception):
    """The build cannot answer this."""


class TimeUp(Exception):
    """Who asked does not wait any longer."""


def _go_on() -> None:
    """There is nothing to do about it."""


class Spent:
    """What using a family took."""

    __slots__ = ("decode_s", "read_s")

    def __init__(self) -> None:
        self.read_s = self.decode_s = 0.0


class Sorted:
    """A file of a family: rows by key."""

    def __init__(
        self,
        file: pq.ParquetFile,
        spent: Callable[[float], None] = lambda seconds: None,
        clock: Callable[[], float] = lambda: 0.0,
        tick: Callable[[], None] = _go_on,
        note: Callable[[], None] = _go_on,
    ) -> None:
        self._file = file
        self._tick = tick
        self._note = note
        self._spent = spent
        self._clock = clock
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
        self._tick()
        self._note()
        started = self._clock()
        table = self._file.read_row_groups(groups, columns=list(columns)).combine_chunks()
        self._spent(self._clock() - started)
        return table

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
        self.nbytes: int = array.nbytes

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at):  # type: ignore[no-untyped-def]
        return bytes(self._data[self._cuts[at] : self._cuts[at + 1]])


class Companions:
    """The files of a build, opened when they are needed."""

    def __init__(
        self,
        build: Descriptor,
        open_file: OpenFile,
        open_hashes: OpenHashes | None = None,
        cache: BuildCache | None = None,
        clock: Callable[[], float] = lambda: 0.0,
        note: Callable[[], None] = _go_on,
    ) -> None:
        """`note` is told of every read of a file."""
        self.build = build
        self.cache: BuildCache = cache or Forgetful()
        self.spent: dict[Family, Spent] = {}
        """What was used since somebody last looked."""
        self.tick: Callable[[], None] = _go_on
        """Asked again and again during long work; raises `TimeUp` to end it."""
        self._clock = clock
        self._note = note
        self._parts = {part.log: part for part in build.parts}
        self._open_file = open_file
        self._open_hashes = open_hashes
        self._files: dict[Family, Sorted | None] = {}
        self._hashes: dict[Family, Hashes | None] = {}

    def part(self, log: int) -> Part | None:
        """What the build has of a log with a plan."""
        return self._parts.get(log)

    def used(self, family: Family) -> Spent:
        """What this family took so far; from now on it counts as used."""
        return self.spent.setdefault(family, Spent())

    @contextmanager
    def decoding(self, family: Family) -> Iterator[None]:
        """The time until this ends went into decoding what the family has."""
        started = self._clock()
        yield
        self.used(family).decode_s += self._clock() - started

    def file(self, family: Family) -> Sorted | None:
        self.used(family)
        if family not in self._files:
            found = self.build.file(family)
            self._files[family] = self._sorted(family, found) if found else None
        return self._files[family]

    def _sorted(self, family: Family, file: File) -> Sorted:
        def spent(seconds: float) -> None:
            self.used(family).read_s += seconds

        opened = self._open_file(file)
        return Sorted(opened, spent, self._clock, lambda: self.tick(), self._note)

    def may_have(self, family: Family, key: bytes) -> bool:
        """False when the key is certainly in no row, which takes no file to know."""
        self.used(family)
        if family not in self._hashes:
            found = self.build.file(f"{family}.hash")
            opened = self._open_hashes(found) if found and self._open_hashes else None
            self._hashes[family] = opened
        hashes = self._hashes[family]
        return hashes is None or has_hash(hashes, key)

    def postings(self, family: Family, key: bytes) -> Ints:
        """The records of a key."""
        held: Ints | None = self.cache.get((family, key))
        if held is not None:
            self.used(family)
            return held
        row = self.row(family, key, POSTINGS)
        with self.decoding(family):
            found = EMPTY if row is None else decode_rows(row)[0]
        if row is not None:
            self.cache.put((family, key), found, found.nbytes)
        return found

    def row(self, family: Family, key: bytes, columns: Sequence[str]) -> pa.Table | None:
        """The row of a key."""
        file = self.file(family) if self.may_have(family, key) else None
        return file.find(key, columns) if file is not None else None
