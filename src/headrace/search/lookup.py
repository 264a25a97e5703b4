"""Answers queries from the files of a build: which records of a log match, and how well.

Needs no documents. A query is answered whole or not at all; `NotIndexed` says that the records have
to be looked at.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import eq
from typing import Any as Anything
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from headrace.formats.companion import (
    Descriptor,
    Family,
    File,
    Hashes,
    Part,
    field_key,
    has_hash,
    log_key,
    short,
    sortable_one,
    upper,
    value_key,
)
from headrace.formats.leb128 import Ints
from headrace.formats.postings import VALUE_STRIDE, decode_positions, decode_postings
from headrace.search.config import Search
from headrace.search.docsets import EMPTY, contained, intersect, subtract, unite
from headrace.search.evaluate import COMPARE
from headrace.search.query import All, Any, Compares, Equals, Has, Not, Query, Starts, Words

OpenFile = Callable[[File], pq.ParquetFile]
OpenHashes = Callable[[File], Hashes]
Numbers = NDArray[Anything]
"""Of int64 or float64."""

_POSTINGS = ("k", "n", "first", "last", "post")
_GROUPS_AT_ONCE = 16
"""Row groups of a column that are read together."""
_PREFIX_BYTES_MAX = 900
"""Longer prefixes may reach into what keys of long values leave out."""


class NotIndexed(Exception):
    """The build cannot answer this."""


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
            keys = _Keys(table.column("k").chunk(0))
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
        keys = _Keys(table.column("k").chunk(0))
        at = bisect_left(keys, key)
        return table.slice(at, 1) if at < len(keys) and keys[at] == key else None


class _Keys(Sequence[bytes]):
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
        row = self._row(family, key, _POSTINGS)
        return EMPTY if row is None else _decoded(row)[0]

    def _row(self, family: Family, key: bytes, columns: Sequence[str]) -> pa.Table | None:
        file = self.file(family) if self.may_have(family, key) else None
        return file.find(key, columns) if file is not None else None

    def keys(self, log: int, after: bytes = b"") -> Iterator[Key]:
        """The keys of a log's records above one, ascending; their bytes as `short` makes them."""
        file = self.file(Family.LEX)
        low = log_key(log)
        if file is not None:
            for table in file.rows(low + after, upper(low), _POSTINGS[:-1]):
                for k, *row in zip(*(c.to_pylist() for c in table.columns), strict=True):
                    if k > low + after or not after:
                        yield Key(k[len(low) :], *row)

    def terms(self, low: bytes, high: bytes | None) -> Iterator[Term]:
        """The words in [low, high)."""
        file = self.file(Family.TEXT)
        if file is not None:
            for table in file.rows(low, high, (*_POSTINGS, "pos")):
                yield from _terms(table)

    def term(self, key: bytes) -> Term | None:
        row = self._row(Family.TEXT, key, (*_POSTINGS, "pos"))
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


def _decoded(table: pa.Table) -> list[Ints]:
    columns = [table.column(name).to_pylist() for name in _POSTINGS[1:]]
    return [decode_postings(*row) for row in zip(*columns, strict=True)]


def _terms(table: pa.Table) -> Iterator[Term]:
    keys, positions = table.column("k").to_pylist(), table.column("pos").to_pylist()
    for key, seqs, pos in zip(keys, _decoded(table), positions, strict=True):
        yield Term(key, seqs, pos)


class Lookup:
    """Answers for one log from one build, by the configuration that the build was made by.

    Not to be used by several threads at once, as its companions are not.
    """

    def __init__(self, companions: Companions, log: int, search: Search) -> None:
        part = companions.part(log)
        if part is None:
            raise NotIndexed(f"log {log}")
        self._companions = companions
        self._part = part
        self._search = search

    def find(self, query: Query) -> Ints:
        """The records that match, of those that the build covers; ascending."""
        match query:
            case All(items=items):
                return self._all(items)
            case Any(items=items):
                return unite([self.find(item) for item in items])
            case Not(item=item):
                return subtract(self.everything(), self.find(item))
            case Equals():
                return self._equals(query)
            case Starts():
                return self._starts(query)
            case Compares(field=field):
                return self._scan(field, [query])
            case Has(field=field):
                return self._exact(field_key(self._part.log, field))
            case Words():
                return self._words(query)

    def everything(self) -> Ints:
        """All records that the build covers."""
        return self._exact(log_key(self._part.log))

    def score(self, query: Query, seqs: Ints) -> NDArray[np.float64]:
        """The scores of records that match."""
        scores = np.zeros(len(seqs))
        match query:
            case All(items=items) | Any(items=items):
                for item in items:
                    scores += self.score(item, seqs)
            case Words():
                scores += self._score_words(query, seqs)
        return scores

    def column(self, field: str) -> tuple[Ints, Numbers]:
        """The values of a typed field and whose they are, in the order of records."""
        parts = list(self._typed(field))
        kind: Anything = np.float64 if self._search.fields[field].kind == "float" else np.int64
        if not parts:
            return EMPTY, np.zeros(0, kind)
        seqs, values = zip(*parts, strict=True)
        return np.concatenate(seqs), np.concatenate(values)

    def _exact(self, key: bytes) -> Ints:
        return self._companions.postings(Family.EXACT, key)

    def _all(self, items: tuple[Query, ...]) -> Ints:
        found: Ints | None = None
        for same in self._together(items):
            if found is not None and not len(found):
                return found
            item = same[0]
            if isinstance(item, Not):
                rest = self.find(item.item)
                found = subtract(self.everything() if found is None else found, rest)
                continue
            if isinstance(item, Compares):
                here = self._scan(item.field, same, found)
            else:
                here = self.find(item)
            found = here if found is None else intersect(found, here)
        return EMPTY if found is None else found

    def _together(self, items: tuple[Query, ...]) -> list[list[Anything]]:
        """Cheap items first; comparisons of a field that has no second values in one."""
        groups: list[list[Anything]] = []
        ranges: dict[str, list[Anything]] = {}
        for item in sorted(items, key=_cost):
            if isinstance(item, Compares) and item.field not in self._part.several:
                if item.field in ranges:
                    ranges[item.field].append(item)
                    continue
                ranges[item.field] = [item]
                groups.append(ranges[item.field])
            else:
                groups.append([item])
        return groups

    def _equals(self, query: Equals) -> Ints:
        if query.field in self._part.exact:
            value = query.value
            raw = short(value.encode()) if isinstance(value, str) else sortable_one(value)
            return self._exact(value_key(self._part.log, query.field, raw))
        return self._scan(query.field, [query])

    def _starts(self, query: Starts) -> Ints:
        prefix = query.text.encode()
        if query.field not in self._part.exact or len(prefix) > _PREFIX_BYTES_MAX:
            raise NotIndexed(query.field)
        low = value_key(self._part.log, query.field, prefix)
        file = self._companions.file(Family.EXACT)
        tables = file.rows(low, upper(low), _POSTINGS) if file is not None else ()
        return unite([seqs for table in tables for seqs in _decoded(table)])

    def _scan(
        self, field: str, tests: Sequence[Compares | Equals], among: Ints | None = None
    ) -> Ints:
        """The records, perhaps only of some, that have a value which passes all tests."""
        if not self._search.fields[field].typed:
            raise NotIndexed(field)
        found = []
        for seqs, values in self._typed(field, tests, among):
            good = np.ones(len(seqs), bool)
            for test in tests:
                good &= _compare(test)(values, test.value)
            found.append(seqs[good])
        if not found:
            return EMPTY
        seqs = np.concatenate(found)
        fresh = np.ones(len(seqs), bool)
        fresh[1:] = seqs[1:] != seqs[:-1]
        return seqs[fresh]

    def _typed(
        self, field: str, tests: Sequence[Compares | Equals] = (), among: Ints | None = None
    ) -> Iterator[tuple[Ints, Numbers]]:
        """Values by row groups; without groups that have none that passes, or none of `among`."""
        file = self._companions.file(Family.TYPED)
        if file is None:
            return
        key = field_key(self._part.log, field)
        name = "f64" if self._search.fields[field].kind == "float" else "i64"
        place = 3 if name == "f64" else 2
        whole: list[int] = []
        for group in file.groups(key, key + b"\0"):
            chunk = file.metadata.row_group(group)
            stats = chunk.column(0).statistics
            if stats.min == key == stats.max:
                if _reaches(chunk.column(1).statistics, among) and not any(
                    _hopeless(chunk.column(place).statistics, test) for test in tests
                ):
                    whole.append(group)
                continue
            yield from self._numbers(file, whole, name)
            whole = []
            keys = _Keys(file.read([group], ("k",)).column("k").chunk(0))
            start, stop = bisect_left(keys, key), bisect_right(keys, key)
            table = file.read([group], ("seq", name)).slice(start, stop - start)
            yield table.column("seq").to_numpy(), table.column(name).to_numpy()
        yield from self._numbers(file, whole, name)

    @staticmethod
    def _numbers(file: Sorted, groups: list[int], name: str) -> Iterator[tuple[Ints, Numbers]]:
        for at in range(0, len(groups), _GROUPS_AT_ONCE):
            table = file.read(groups[at : at + _GROUPS_AT_ONCE], ("seq", name))
            yield table.column("seq").to_numpy(), table.column(name).to_numpy()

    def _words(self, query: Words) -> Ints:
        if not query.words:
            return EMPTY
        terms = self._each(query)
        found = unite([term.seqs for term in terms[0]])
        for own in terms[1:]:
            found = intersect(found, unite([term.seqs for term in own]))
        if query.phrase and len(terms) > 1 and len(found):
            docs, _ = self._phrases(terms, found)
            return found[np.unique(docs)]
        return found

    def _each(self, query: Words) -> list[list[Term]]:
        """For each word of the query the terms it stands for."""
        found = []
        for at, word in enumerate(query.words):
            raw = word.encode()
            key = value_key(self._part.log, query.field, short(raw))
            if query.open and at == len(query.words) - 1:
                if len(raw) > _PREFIX_BYTES_MAX:
                    raise NotIndexed(query.field)
                found.append(list(self._companions.terms(key, upper(key))))
            else:
                term = self._companions.term(key)
                found.append([term] if term is not None else [])
            if not found[-1]:
                return [[]]
        return found

    @staticmethod
    def _phrases(terms: list[list[Term]], seqs: Ints) -> tuple[Ints, Ints]:
        """Where phrases start: the index of the record among `seqs`, and the place in it."""
        spots = [_spots(own, seqs) for own in terms]
        width = 1 + max(int(places.max()) if len(places) else 0 for _, places in spots)
        codes: Ints | None = None
        for at, (docs, places) in enumerate(spots):
            here = np.unique((docs * width + places - at)[places >= at])
            codes = here if codes is None else intersect(codes, here)
        assert codes is not None
        return codes // width, codes % width

    def _score_words(self, query: Words, seqs: Ints) -> NDArray[np.float64]:
        """What `evaluate.score` says of these records, for this clause."""
        scores = np.zeros(len(seqs))
        matching = self.find(query)
        chosen = np.flatnonzero(contained(seqs, matching))
        if not len(chosen):
            return scores
        terms = self._each(query)
        different = {term.key: term for own in terms for term in own}
        docs, places = _spots(list(different.values()), seqs[chosen])
        texts, counts = np.unique(_text_codes(docs, places), return_counts=True)
        if query.phrase:
            if len(terms) > 1:
                with_phrase = np.unique(_text_codes(*self._phrases(terms, seqs[chosen])))
                counts = counts[contained(texts, with_phrase)]
                texts = with_phrase
            counts = counts + 2 * len(query.words)
        best = np.zeros(len(chosen))
        np.maximum.at(best, texts >> _TEXT_BITS, counts)
        scores[chosen] = best * query.boost
        return scores


_TEXT_BITS = 24
"""A document has fewer values than this many bits can count."""


def _text_codes(docs: Ints, places: Ints) -> Ints:
    """Numbers for values of documents."""
    return (docs << _TEXT_BITS) + places // VALUE_STRIDE


def _spots(terms: list[Term], seqs: Ints) -> tuple[Ints, Ints]:
    """Where in these records the terms stand: the index of the record, and the place."""
    docs: list[Ints] = []
    places: list[Ints] = []
    for term in terms:
        records, here = decode_positions(term.pos)
        owners = term.seqs[records]
        kept = contained(owners, seqs)
        docs.append(np.searchsorted(seqs, owners[kept]))
        places.append(here[kept])
    if not docs:
        return EMPTY, EMPTY
    return np.concatenate(docs), np.concatenate(places)


def _cost(query: Query) -> int:
    """Cheap and narrow clauses first; what is negated last, because it only takes away."""
    match query:
        case Equals():
            return 0
        case Words():
            return 1
        case Starts():
            return 2
        case Compares() | Has():
            return 3
        case Not():
            return 5
        case _:
            return 4


def _compare(test: Compares | Equals) -> Callable[[Numbers, Anything], NDArray[np.bool_]]:
    return eq if isinstance(test, Equals) else COMPARE[test.operator]


def _reaches(stats: pq.Statistics, among: Ints | None) -> bool:
    """Whether a row group has some of these records, as far as can be told."""
    if among is None or stats is None or not stats.has_min_max:
        return True
    at = int(np.searchsorted(among, stats.min))
    return at < len(among) and bool(among[at] <= stats.max)


def _hopeless(stats: pq.Statistics, test: Compares | Equals) -> bool:
    """Whether no value of a row group passes."""
    if stats is None or not stats.has_min_max:
        return False
    if isinstance(test, Equals):
        return bool(test.value < stats.min or test.value > stats.max)
    extreme = stats.max if test.operator[0] == ">" else stats.min
    return not COMPARE[test.operator](extreme, test.value)
