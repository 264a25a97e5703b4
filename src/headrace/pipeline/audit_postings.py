"""Audit of indexes: do postings, words and typed columns say what the records say?

Values are read from the records again; postings are taken apart; and Spark joins the two. For each
key both sides bring how many elements it has, and the sum of a number that stands for each: its
record, its place there, its value. So one that is missing, or is elsewhere, is found.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.formats.companion import (
    NUL,
    Family,
    field_key,
    log_key,
    short,
    sortable_one,
    value_key,
)
from headrace.formats.leb128 import Ints
from headrace.formats.postings import VALUE_STRIDE, decode_positions, decode_postings
from headrace.pipeline.audit_rows import (
    BUILD,
    AuditView,
    Known,
    Telling,
    batches_of,
    describe,
    documents_of,
    know,
    log_of,
    rows_of,
)
from headrace.pipeline.kernels.build import Documents
from headrace.pipeline.problems import ProblemKind, tally_rows
from headrace.pipeline.store_location import StoreLocation
from headrace.search.config import FieldKind, Search
from headrace.search.extraction import Column, read_columns
from headrace.search.families.keys import lex_key
from headrace.search.values import PathReader, analyze

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SCHEMA = "family string, build int, k binary, n long, s long"
_COLUMNS = {
    Family.LEX: ["k", "n", "first", "last", "post"],
    Family.EXACT: ["k", "n", "first", "last", "post"],
    Family.TEXT: ["k", "n", "first", "last", "post", "pos"],
    Family.TYPED: ["k", "seq", "i64", "f64"],
}


def check_postings(spark: SparkSession, place: StoreLocation, view: AuditView) -> None:
    """Keys, values, fields, words with their places, typed columns: the same as in segments."""
    from pyspark.sql import functions as F  # noqa: N812

    known = know(place, view)
    if not known.builds:
        return
    rows = rows_of(spark, place, view.manifest, known)
    expected, listed = _summed(_expected(rows, known)), _summed(_listed(spark, place, known))
    joined = expected.alias("e").join(listed.alias("l"), ["family", BUILD, "k"], "full_outer")
    same = F.col("e.n").eqNullSafe(F.col("l.n")) & F.col("e.s").eqNullSafe(F.col("l.s"))
    wrong = joined.where(~same).select(
        "family", BUILD, "k", F.col("e.n").alias("records"), F.col("l.n").alias("postings")
    )
    tell = partial(_tell, [build.name for build in known.builds])
    view.tally.join(tally_rows(wrong, tell, view.tally.examples_max))


def _tell(names: Sequence[str], row: dict[str, Any]) -> tuple[ProblemKind, str]:
    what = _difference(row["postings"] or 0, row["records"] or 0)
    return (
        ProblemKind.POSTINGS,
        f"{names[row[BUILD]]}, {row['family']} of {describe(row['k'])}: {what}",
    )


def _difference(postings: int, records: int) -> str:
    if postings == records:
        return f"{postings} postings, but not those of the {records} in records"
    return f"{postings} postings for {records} in records"


def _summed(cells: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    return cells.groupBy("family", BUILD, "k").agg(F.sum("n").alias("n"), F.sum("s").alias("s"))


# --- what stands for an element ---


def _marks(seqs: Ints, places: NDArray[np.generic] | None = None) -> Ints:
    """For each record, and a place or a value in it, a number; sums of them do not overflow."""
    mixed = seqs.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    if places is not None:
        mixed += places.view(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F) + np.uint64(1)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return (mixed >> np.uint64(32)).astype(np.int64)


class _Cells:
    """Elements by family and key."""

    def __init__(self) -> None:
        self._cells: dict[tuple[Family, bytes], list[int]] = {}

    def add(self, family: Family, key: bytes, marks: Ints) -> None:
        cell = self._cells.setdefault((family, key), [0, 0])
        cell[0] += len(marks)
        cell[1] += int(marks.sum())

    def add_each(self, family: Family, keys: Iterable[bytes], marks: Ints) -> None:
        """One element for each key."""
        cells = self._cells
        for key, mark in zip(keys, marks.tolist(), strict=True):
            cell = cells.get((family, key))
            if cell is None:
                cells[family, key] = [1, mark]
            else:
                cell[0] += 1
                cell[1] += mark

    def batch(self, build: int) -> pa.RecordBatch:
        families = pa.array([str(family) for family, _ in self._cells], pa.string())
        keys = pa.array([key for _, key in self._cells], pa.binary())
        numbers = [*zip(*self._cells.values(), strict=True)] or [(), ()]
        return pa.RecordBatch.from_arrays(
            [
                families,
                pa.array(np.full(len(keys), build, np.int32)),
                keys,
                *(pa.array(column, pa.int64()) for column in numbers),
            ],
            ["family", BUILD, "k", "n", "s"],
        )


# --- from records ---


def _expected(rows: DataFrame, known: Known) -> DataFrame:
    keyed = rows.where("key is not null").select(BUILD, "log_id", "seq", "key")
    telling = Telling(known, partial(_of_documents, _exact_fields(known)))
    return keyed.mapInArrow(_of_keys, _SCHEMA).union(
        documents_of(rows, known).mapInArrow(telling, _SCHEMA)
    )


def _of_keys(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        builds = batch.column(BUILD).to_numpy()
        for build in np.unique(builds).tolist():
            chosen = batch.filter(pa.array(builds == build))
            logs, texts = chosen.column("log_id").to_pylist(), chosen.column("key").to_pylist()
            cells = _Cells()
            keys = [lex_key(log, text) for log, text in zip(logs, texts, strict=True)]
            cells.add_each(Family.LEX, keys, _marks(chosen.column("seq").to_numpy()))
            yield cells.batch(build)


def _of_documents(
    exact: dict[tuple[int, int], frozenset[str]],
    build: int,
    log: int,
    search: Search,
    batch: pa.RecordBatch,
    documents: Documents,
) -> Iterator[pa.RecordBatch]:
    seqs = batch.column("seq").to_numpy()
    fields = [search.fields[name] for name in sorted(search.fields)]
    columns, _ = read_columns(fields, PathReader([field.path() for field in fields]), documents)
    cells = _Cells()
    cells.add(Family.EXACT, log_key(log), _marks(seqs))
    for field, column in zip(fields, columns, strict=True):
        if not len(column.rows):
            continue
        own = field_key(log, field.name)
        cells.add(Family.EXACT, own, _marks(seqs[column.documents]))
        if field.name in exact[build, log]:
            _add_values(cells, log, field.name, seqs, column)
        if field.typed:
            values = column.values.to_numpy(zero_copy_only=False)
            cells.add(Family.TYPED, own, _marks(seqs[column.rows], values))
        elif field.kind is FieldKind.TEXT:
            _add_words(cells, log, field.name, seqs, column)
    yield cells.batch(build)


def _add_values(cells: _Cells, log: int, name: str, seqs: Ints, column: Column) -> None:
    """Each value of a record once, however often it has it."""
    pairs = {
        (row, v) for row, v in zip(column.rows.tolist(), column.values.to_pylist(), strict=True)
    }
    rows = np.array([row for row, _ in pairs], np.int64)
    cells.add_each(
        Family.EXACT,
        (value_key(log, name, _coded(value)) for _, value in pairs),
        _marks(seqs[rows]),
    )


def _add_words(cells: _Cells, log: int, name: str, seqs: Ints, column: Column) -> None:
    keys: list[bytes] = []
    rows: list[int] = []
    places: list[int] = []
    before, start = -1, 0
    for row, text in zip(column.rows.tolist(), column.values.to_pylist(), strict=True):
        start = start + VALUE_STRIDE if row == before else 0
        before = row
        words = analyze(text)
        keys += [value_key(log, name, short(word.encode())) for word in words]
        rows += [row] * len(words)
        places += range(start, start + len(words))
    marks = _marks(seqs[np.array(rows, np.int64)], np.array(places, np.int64))
    cells.add_each(Family.TEXT, keys, marks)


def _coded(value: str | int | float) -> bytes:
    return short(value.encode()) if isinstance(value, str) else sortable_one(value)


# --- from companions ---


def _listed(spark: SparkSession, place: StoreLocation, known: Known) -> DataFrame:
    """One task for each file."""
    names = {family: known.names(family) for family in _COLUMNS}
    files = [(f, at) for f, of in names.items() for at, name in enumerate(of) if name is not None]
    planned, exact = frozenset(known.plans), _exact_fields(known)

    def take_apart(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                family, at = files[number]
                for found in batches_of(place, names[family], at, _COLUMNS[family]):
                    cells = _Cells()
                    for key, marks in _elements(family, found):
                        own = at, log_of(key)
                        if family is Family.EXACT and not _is_described(key, exact.get(own, ())):
                            continue
                        if family is Family.LEX or own in planned:
                            cells.add(family, key, marks)
                    yield cells.batch(at)

    numbers = spark.range(0, len(files), 1, max(1, len(files)))
    return numbers.mapInArrow(take_apart, _SCHEMA)


def _exact_fields(known: Known) -> dict[tuple[int, int], frozenset[str]]:
    """(build, log) → the fields whose values are in `exact`."""
    return {key: frozenset(part.exact) for key, part in known.parts.items()}


def _is_described(key: bytes, exact: Container[str]) -> bool:
    """Whether somebody may look up this key.

    Builds of earlier versions hold values of fields that their descriptors do not name: whether
    values repeat was decided chunk by chunk. Nobody reads them, and a merge leaves them out.
    """
    name, valued, _ = key[8:].partition(NUL)
    return not valued or name.decode() in exact


def _elements(family: Family, batch: pa.RecordBatch) -> Iterator[tuple[bytes, Ints]]:
    if family is Family.TYPED:
        yield from _typed(batch)
        return
    for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        key, n, first, last, post, *pos = row
        seqs = decode_postings(n, first, last, post)
        if pos:
            records, places = decode_positions(pos[0])
            yield key, _words(seqs, records, places)
        else:
            yield key, _marks(seqs)


def _words(seqs: Ints, records: Ints, places: Ints) -> Ints:
    """The marks of occurrences; none if they are not those of these records."""
    if not len(records) or records[-1] != len(seqs) - 1:
        return np.zeros(0, np.int64)
    return _marks(seqs[records], places)


def _typed(batch: pa.RecordBatch) -> Iterator[tuple[bytes, Ints]]:
    keys = batch.column("k").dictionary_encode()
    codes = keys.indices.to_numpy(zero_copy_only=False)
    seqs = batch.column("seq").to_numpy()
    for code, key in enumerate(keys.dictionary.to_pylist()):
        rows = np.flatnonzero(codes == code)
        whole, broken = (batch.column(name).take(pa.array(rows)) for name in ("i64", "f64"))
        values: Sequence[pa.Array] = [v for v in (whole, broken) if not v.null_count]
        if len(values) == 1:
            yield key, _marks(seqs[rows], values[0].to_numpy(zero_copy_only=False))
        else:
            yield key, np.zeros(0, np.int64)
