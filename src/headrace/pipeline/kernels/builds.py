"""Merging the builds of several segments into one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.formats.companion import Descriptor, Family, File, Part, log_key
from headrace.pipeline.kernels.merge import merge_tables
from headrace.pipeline.kernels.output import Write, join_parts, store

RANGE_ROWS = 262_144
"""About so many rows are merged at once."""

_KEY_BYTES_MAX = 4096
"""No key is as long."""
_NOTHING = pa.scalar(b"", pa.binary())

Read = Callable[[File], pa.Buffer]
"""The content of one file of a build."""


def merge_builds(builds: Sequence[Descriptor], read: Read, write: Write) -> Descriptor:
    """One build that holds what these hold, of different segments.

    Where they were made by different plans of a log, the one of the latest generation counts, and
    what was indexed by another is left out.
    """
    newest = max(builds, key=lambda build: build.plans)
    hashes = {part.log: part.hash for build in _by_age(builds) for part in build.parts}
    parts = _parts(builds, hashes)
    exact = {part.log: frozenset(part.exact) for part in parts}
    files: list[File] = []
    for family in Family:
        held = [
            (build, file, _outdated(build, hashes) if family is not Family.LEX else [])
            for build in builds
            if (file := build.file(family)) is not None
        ]
        if len(held) == 1 and family is not Family.EXACT and not held[0][2]:
            files += _copied(held[0][0], family, read, write)
        elif held:
            found = _merged(family, [_Source(read(file), gone) for _, file, gone in held])
            if family is Family.EXACT:
                found = (_described(table, exact) for table in found)
            files += store(family, found, write)
    return Descriptor(
        segments=tuple(sorted(number for build in builds for number in build.segments)),
        level=1 + max(build.level for build in builds),
        plans=newest.plans,
        rows=sum(build.rows for build in builds),
        parts=parts,
        files=tuple(files),
    )


def refresh_build(
    old: Descriptor, fresh: Sequence[Descriptor], read: Read, write: Write
) -> Descriptor:
    """A build, with what others know of some logs of its segments by newer plans in place of what
    it knew of them; the rest is as it was.
    """
    merged = merge_builds([old, *fresh], read, write)
    return msgspec.structs.replace(merged, segments=old.segments, level=old.level, rows=old.rows)


def _copied(build: Descriptor, family: Family, read: Read, write: Write) -> Iterator[File]:
    """The files of a family as they are, under new names."""
    for file in build.files:
        if file.family in (family, f"{family}.hash"):
            yield msgspec.structs.replace(file, name=write(file.family, read(file)))


def _by_age(builds: Sequence[Descriptor]) -> list[Descriptor]:
    return sorted(builds, key=lambda build: build.plans)


def _outdated(build: Descriptor, hashes: dict[int, str]) -> list[int]:
    return [part.log for part in build.parts if hashes[part.log] != part.hash]


def _parts(builds: Sequence[Descriptor], hashes: dict[int, str]) -> tuple[Part, ...]:
    found: dict[int, list[Part]] = {}
    for build in builds:
        for part in build.parts:
            if hashes[part.log] == part.hash:
                found.setdefault(part.log, []).append(part)
    return tuple(join_parts(found[log]) for log in sorted(found))


def _described(table: pa.Table, exact: dict[int, frozenset[str]]) -> pa.Table:
    """The rows without values of fields that are not in `exact` of their log.

    Builds may have decided differently whether the values of a field repeat; and builds of earlier
    versions hold values of which their descriptors say nothing.
    """
    keys = table.column("k").combine_chunks()
    # Without an end to cut to, Arrow miscounts what it needs.
    rests = pc.binary_slice(keys, 8, _KEY_BYTES_MAX)
    valued = pc.greater_equal(pc.find_substring(rests, "\0"), 0)
    names = pc.list_element(pc.split_pattern(rests, "\0", max_splits=1), 0)
    whole = pc.binary_join_element_wise(pc.binary_slice(keys, 0, 8), names, _NOTHING)
    coded = whole.dictionary_encode()
    kept = [
        key[8:].decode() in exact.get(int.from_bytes(key[:8], "big"), ())
        for key in coded.dictionary.to_pylist()
    ]
    return table.filter(pc.or_(pc.invert(valued), pa.array(kept, pa.bool_()).take(coded.indices)))


class _Source:
    """A file that is read range by range."""

    def __init__(self, content: pa.Buffer, outdated: list[int]) -> None:
        self._file = pq.ParquetFile(pa.BufferReader(content))
        self._outdated = pa.array([log_key(log) for log in outdated], pa.binary())
        metadata = self._file.metadata
        groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
        self.sizes = [group.num_rows for group in groups]
        self.minima: list[bytes] = [group.column(0).statistics.min for group in groups]
        self._maxima: list[bytes] = [group.column(0).statistics.max for group in groups]

    def read(self, start: bytes, stop: bytes | None) -> pa.Table | None:
        """The rows with keys in [start, stop)."""
        chosen = [
            at
            for at, low in enumerate(self.minima)
            if self._maxima[at] >= start and (stop is None or low < stop)
        ]
        if not chosen:
            return None
        table = self._file.read_row_groups(chosen).combine_chunks()
        keys = table.column("k")
        kept = pc.greater_equal(keys, start)
        if stop is not None:
            kept = pc.and_(kept, pc.less(keys, stop))
        if len(self._outdated):
            logs = pc.binary_slice(keys, 0, 8)
            kept = pc.and_not(kept, pc.is_in(logs, self._outdated))
        table = table.filter(kept)
        return table if len(table) else None


def _merged(family: Family, sources: Sequence[_Source]) -> Iterator[pa.Table]:
    cuts = _range_cuts(sources)
    for start, stop in zip(cuts, [*cuts[1:], None], strict=True):
        tables = [table for s in sources if (table := s.read(start, stop)) is not None]
        if tables:
            yield merge_tables(family, tables)


def _range_cuts(sources: Sequence[_Source]) -> list[bytes]:
    """Keys that cut the sources into ranges of bearable size."""
    groups = sorted(
        (low, rows) for s in sources for low, rows in zip(s.minima, s.sizes, strict=True)
    )
    cuts = [b""]
    pending = 0
    for low, rows in groups:
        if pending >= RANGE_ROWS and low > cuts[-1]:
            cuts.append(low)
            pending = 0
        pending += rows
    return cuts
