"""Audit of builds: do index companions say what the records say?

Values are read from the records and counted by Spark SQL; postings are taken apart; and the two are
joined. Builds with segments that are gone still speak of records that nobody can read, and are only
checked as files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.core.errors import Corrupt
from headrace.formats.companion import (
    HASHED,
    KEY_VALUE_BYTES_MAX,
    Descriptor,
    Family,
    decode_descriptor,
    decode_hashes,
    field_key,
    hash_key,
    log_key,
    short,
    sortable_one,
    value_key,
)
from headrace.formats.manifest import Build, Manifest
from headrace.formats.plans import Plan
from headrace.formats.postings import decode_postings
from headrace.pipeline.index import load_plans
from headrace.pipeline.kernels.build import Documents, promoter_of
from headrace.pipeline.limits import PROBLEMS_MAX
from headrace.pipeline.place import Place, check_object
from headrace.pipeline.rows import NUMBER, read, small_table
from headrace.pipeline.tasks import run_tasks
from headrace.search.config import Summary, parse_search
from headrace.search.extraction import read_columns
from headrace.search.values import Reader
from headrace.storage.segments import UNREADABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_READ_ROWS = 8192
_SUM_SHARE = 1e-6
"""How far sums of the same numbers in another order may be apart."""


def check_build_files(spark: SparkSession, place: Place, manifest: Manifest) -> list[str]:
    """Each segment is in one build; descriptors, files and hashes are what was published."""
    seen: dict[int, str] = {}
    problems: list[str] = []
    for build in manifest.builds:
        for number in build.segments:
            if number in seen:
                problems.append(f"{build.name}: segment {number} is in {seen[number]} as well")
            seen[number] = build.name
    found = run_tasks(spark, partial(_check_build, place), manifest.builds)
    return problems + [problem for part in found for problem in part]


def _check_build(place: Place, build: Build) -> list[str]:
    objects = place.open()
    try:
        check_object(objects, build.name, build.checksum)
        descriptor = decode_descriptor(objects.get(build.name), build.name)
        said = build.level, build.plans, build.rows, build.format
        held = descriptor.level, descriptor.plans, descriptor.rows, descriptor.format
        if said != held or not set(descriptor.segments).issuperset(build.segments):
            return [f"{build.name}: is of {held}; the manifest says {said}"]
        for file in descriptor.files:
            check_object(objects, file.name, file.checksum)
        return list(_wrong_hashes(place, descriptor))
    except Corrupt as damage:
        return [str(damage)]
    except UNREADABLE as error:
        return [f"{build.name}: {error}"]


def _wrong_hashes(place: Place, descriptor: Descriptor) -> Iterator[str]:
    objects = place.open()
    for family in HASHED:
        file, hashes = descriptor.file(family), descriptor.file(f"{family}.hash")
        if file is None or hashes is None:
            continue
        keys = pq.read_table(objects.open(file.name), columns=["k"]).column("k").to_pylist()
        expected = np.sort(np.fromiter(map(hash_key, keys), np.uint64, len(keys)))
        if not np.array_equal(expected, decode_hashes(objects.get(hashes.name))):
            yield f"{hashes.name}: does not hold the hashes of the keys of {file.name}"


# --- postings ---


class _Known(msgspec.Struct, frozen=True):
    """Builds whose segments are all there, and what is still known of how they were made."""

    builds: list[Build]
    descriptors: list[Descriptor]
    plans: dict[tuple[int, int], Plan]
    """(build, log) → the plan it was made by, where it still holds."""
    exact: dict[tuple[int, int], frozenset[str]]
    """(build, log) → the fields whose values are in postings."""

    def files(self, family: Family) -> list[str | None]:
        found = [descriptor.file(family) for descriptor in self.descriptors]
        return [None if file is None else file.name for file in found]


def _know(place: Place, manifest: Manifest) -> _Known:
    objects, there = place.open(), manifest.numbers
    builds = [build for build in manifest.builds if there.issuperset(build.segments)]
    descriptors = [decode_descriptor(objects.get(build.name), build.name) for build in builds]
    plans = {(p.log_id, p.hash): p for p in load_plans(objects, manifest).plans}
    parts = {(at, part.log): part for at, one in enumerate(descriptors) for part in one.parts}
    return _Known(
        builds,
        descriptors,
        {k: plans[k[1], p.hash] for k, p in parts.items() if (k[1], p.hash) in plans},
        {key: frozenset(part.exact) for key, part in parts.items()},
    )


def check_postings(spark: SparkSession, place: Place, manifest: Manifest) -> list[str]:
    """Keys, values and presence of fields: the same records in postings as in segments."""
    known = _know(place, manifest)
    if not known.builds:
        return []
    rows = _rows(spark, place, manifest, known)
    return [
        *_unlike_postings(spark, place, known, Family.LEX, _keys_of(rows)),
        *_unlike_postings(spark, place, known, Family.EXACT, _values_of(rows, known)),
    ]


def _unlike_postings(
    spark: SparkSession, place: Place, known: _Known, family: Family, wanted: DataFrame
) -> Iterator[str]:
    from pyspark.sql import functions as F  # noqa: N812

    expected, listed = _summed(wanted), _postings(spark, place, known, family)
    joined = expected.alias("e").join(listed.alias("l"), ["build", "k"], "full_outer")
    same = F.col("e.n").eqNullSafe(F.col("l.n")) & F.col("e.s").eqNullSafe(F.col("l.s"))
    wrong = joined.where(~same).select(
        "build", "k", F.col("e.n").alias("records"), F.col("l.n").alias("postings")
    )
    for row in wrong.limit(PROBLEMS_MAX).collect():
        yield (
            f"{known.builds[row.build].name}, {family} of {_text(row.k)}: "
            f"{row.postings or 0} postings for {row.records or 0} records"
        )


def _rows(spark: SparkSession, place: Place, manifest: Manifest, known: _Known) -> DataFrame:
    """The rows of all segments that have a build, with its place in the list."""
    from pyspark.sql import functions as F  # noqa: N812

    owners = [(number, at) for at, build in enumerate(known.builds) for number in build.segments]
    builds = small_table(spark, owners, (NUMBER, pa.int64()), ("build", pa.int32()))
    numbers = {number for number, _ in owners}
    segments = [segment for segment in manifest.segments if segment.number in numbers]
    return read(spark, place, segments).join(F.broadcast(builds), NUMBER)


def _keys_of(rows: DataFrame) -> DataFrame:
    """(build, k, seq) of each record with a key that is in postings as it is."""
    from pyspark.sql import functions as F  # noqa: N812

    key = F.col("key").cast("binary")
    log = F.unhex(F.lpad(F.hex("log_id"), 16, "0"))
    return rows.where(F.octet_length(key) <= KEY_VALUE_BYTES_MAX).select(
        "build", F.concat(log, key).alias("k"), "seq"
    )


def _values_of(rows: DataFrame, known: _Known) -> DataFrame:
    """(build, k, seq) of each value, each field and each record of logs with a plan."""
    from pyspark.sql import functions as F  # noqa: N812

    logs = sorted({log for _, log in known.plans})
    chosen = rows.where(F.col("log_id").isin(*logs) if logs else F.lit(False))
    pairs = chosen.select("build", "log_id", "seq", "media", "data")
    values = _Values(known.plans, known.exact)
    return pairs.mapInArrow(values, "build int, k binary, seq long").distinct()


class _Values:
    """The task that reads values from documents, one by one."""

    def __init__(
        self,
        plans: dict[tuple[int, int], Plan],
        exact: dict[tuple[int, int], frozenset[str]],
    ) -> None:
        self._plans = plans
        self._exact = exact

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            builds, logs = batch.column("build").to_numpy(), batch.column("log_id").to_numpy()
            for build, log in sorted(set(zip(builds.tolist(), logs.tolist(), strict=True))):
                if (build, log) in self._plans:
                    rows = np.flatnonzero((builds == build) & (logs == log))
                    yield self._pairs(build, log, batch.take(pa.array(rows)))

    def _pairs(self, build: int, log: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        plan = self._plans[build, log]
        search = parse_search(msgspec.json.decode(plan.search))
        fields = [search.fields[name] for name in sorted(search.fields)]
        seqs = batch.column("seq").to_pylist()
        medias, datas = batch.column("media").to_pylist(), batch.column("data").to_pylist()
        raws: Documents = [
            None if media else data for media, data in zip(medias, datas, strict=True)
        ]
        if (promoter := promoter_of(plan)) is not None:
            raws = promoter.attempt(seqs, raws)
        columns, _ = read_columns(fields, Reader([field.path() for field in fields]), raws)
        keys, places = [log_key(log)] * len(seqs), list(range(len(seqs)))
        for field, column in zip(fields, columns, strict=True):
            rows = column.rows.tolist()
            keys += [field_key(log, field.name)] * len(rows)
            places += rows
            if field.name in self._exact[build, log]:
                keys += [value_key(log, field.name, _coded(v)) for v in column.values.to_pylist()]
                places += rows
        found = [seqs[at] for at in places]
        return _batch(build, keys, pa.array(found, pa.int64()), names=["build", "k", "seq"])


def _batch(build: int, keys: list[bytes], *columns: pa.Array, names: list[str]) -> pa.RecordBatch:
    builds = pa.array(np.full(len(keys), build, np.int32))
    return pa.RecordBatch.from_arrays([builds, pa.array(keys, pa.binary()), *columns], names)


def _coded(value: str | int | float) -> bytes:
    return short(value.encode()) if isinstance(value, str) else sortable_one(value)


def _summed(pairs: DataFrame) -> DataFrame:
    """How many records a key has, and the sum of their seqs."""
    from pyspark.sql import functions as F  # noqa: N812

    return pairs.groupBy("build", "k").agg(
        F.count("*").alias("n"), F.sum(F.col("seq").cast("decimal(38,0)")).alias("s")
    )


def _postings(spark: SparkSession, place: Place, known: _Known, family: Family) -> DataFrame:
    """The same of what is in the files of a family; one task for each build."""
    names = known.files(family)
    logs = {(at, log_key(log)) for at, log in known.plans}

    def take_apart(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for at, batch in _batches(place, names, batches, ["k", "n", "first", "last", "post"]):
            rows = [
                (k, n, str(int(decode_postings(n, first, last, post).sum())))
                for k, n, first, last, post in zip(
                    *(column.to_pylist() for column in batch.columns), strict=True
                )
                if (_is_whole(k) if family is Family.LEX else (at, k[:8]) in logs)
            ]
            counts = pa.array([row[1] for row in rows], pa.int64())
            sums = pa.array([row[2] for row in rows], pa.string())
            yield _batch(at, [row[0] for row in rows], counts, sums, names=["build", "k", "n", "s"])

    numbers = spark.range(0, len(names), 1, len(names))
    found = numbers.mapInArrow(take_apart, "build int, k binary, n long, s string")
    return found.selectExpr("build", "k", "n", "cast(s as decimal(38,0)) as s")


def _batches(
    place: Place,
    names: Sequence[str | None],
    numbers: Iterator[pa.RecordBatch],
    columns: list[str],
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """What is in the files of the builds with these places, if they have one."""
    objects = place.open()
    for batch in numbers:
        for at in batch.column(0).to_pylist():
            name = names[at]
            if name is not None:
                file = pq.ParquetFile(objects.open(name))
                for found in file.iter_batches(_READ_ROWS, columns=columns, use_threads=False):
                    yield at, found


def _is_whole(key: bytes) -> bool:
    """Whether a key of records is in postings as it is."""
    return len(key) - 8 <= KEY_VALUE_BYTES_MAX and b"\xff" not in key[8:]


def _text(key: bytes) -> str:
    return f"log {int.from_bytes(key[:8], 'big')} {key[8:].decode(errors='replace')!r}"


# --- rollups ---

_ROLL = "k binary, count long, sum double, min double, max double"
_TYPED = "k binary, i64 long, f64 double"


class _Windows(msgspec.Struct, frozen=True):
    """A measure of a rollup over all windows of one interval."""

    build: int
    log: int
    rollup: str
    measure: str
    interval_ms: int
    count: int
    sum: float | None
    min: float | None
    max: float | None

    def __str__(self) -> str:
        return f"log {self.log}, rollup {self.rollup}, {self.measure} of {self.interval_ms} ms"


def check_rollups(spark: SparkSession, place: Place, manifest: Manifest) -> list[str]:
    """Windows of every interval sum up to the same, and to no more than the typed columns hold."""
    known = _know(place, manifest)
    if not any(known.files(Family.ROLL)):
        return []
    windows = _windows(_read_files(spark, place, known.files(Family.ROLL), _ROLL))
    columns = _columns(_read_files(spark, place, known.files(Family.TYPED), _TYPED))
    found = [*_unequal_intervals(windows), *_unlike_columns(windows, columns, known)]
    return [f"{known.builds[build].name}, {what}" for build, what in found]


def _read_files(
    spark: SparkSession, place: Place, names: Sequence[str | None], schema: str
) -> DataFrame:
    columns = [part.split()[0] for part in schema.split(", ")]

    def fetch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for at, batch in _batches(place, names, batches, columns):
            builds = pa.array(np.full(len(batch), at, np.int32))
            yield pa.RecordBatch.from_arrays([builds, *batch.columns], ["build", *columns])

    return spark.range(0, len(names), 1, len(names)).mapInArrow(fetch, f"build int, {schema}")


def _windows(rows: DataFrame) -> list[_Windows]:
    from pyspark.sql import functions as F  # noqa: N812

    sums = F.sum("count"), F.sum("sum"), F.min("min"), F.max("max")
    found = []
    for build, k, *numbers in rows.groupBy("build", "k").agg(*sums).collect():
        rollup, _, rest = bytes(k[8:]).partition(b"\0")
        interval_ms, measure = int.from_bytes(rest[:8], "big"), rest[9:]
        log = int.from_bytes(k[:8], "big")
        found.append(_Windows(build, log, rollup.decode(), measure.decode(), interval_ms, *numbers))
    return sorted(found, key=lambda w: (w.build, w.log, w.rollup, w.measure, w.interval_ms))


def _columns(rows: DataFrame) -> dict[tuple[int, bytes], tuple[int, float, float, float]]:
    """(build, field) → count, sum, min, max of its values."""
    from pyspark.sql import functions as F  # noqa: N812

    value = F.coalesce(F.col("f64"), F.col("i64").cast("double"))
    sums = F.count("*"), F.sum(value), F.min(value), F.max(value)
    found = rows.groupBy("build", "k").agg(*sums).collect()
    return {(row[0], bytes(row[1])): (row[2], row[3], row[4], row[5]) for row in found}


def _unequal_intervals(windows: list[_Windows]) -> Iterator[tuple[int, str]]:
    for _, found in groupby(windows, key=lambda w: (w.build, w.log, w.rollup, w.measure)):
        first, *others = found
        for other in others:
            if other.count != first.count:
                what = f"{other}: {other.count} records; {first.count} in those of "
                yield other.build, f"{what}{first.interval_ms} ms"


def _unlike_columns(
    windows: list[_Windows],
    columns: dict[tuple[int, bytes], tuple[int, float, float, float]],
    known: _Known,
) -> Iterator[tuple[int, str]]:
    """Summaries of a field against its column."""
    searches = {
        key: parse_search(msgspec.json.decode(plan.search)) for key, plan in known.plans.items()
    }
    for one in windows:
        search = searches.get((one.build, one.log))
        rollup = search.rollups.get(one.rollup) if search is not None else None
        named = {m.name: m for m in rollup.measures} if rollup is not None else {}
        measure = named.get(one.measure)
        if not isinstance(measure, Summary) or not one.count:
            continue
        assert one.sum is not None
        assert one.min is not None
        assert one.max is not None
        key = one.build, field_key(one.log, measure.field)
        count, total, low, high = columns.get(key, (0, 0.0, 0.0, 0.0))
        if one.count > count or one.min < low or one.max > high:
            what = f"{one.count} values from {one.min} to {one.max}; the column of "
            yield one.build, f"{one}: {what}{measure.field} has {count} from {low} to {high}"
        elif one.count == count and abs(one.sum - total) > _SUM_SHARE * max(1.0, abs(total)):
            yield one.build, f"{one}: the sum is {one.sum}, that of the column {total}"
