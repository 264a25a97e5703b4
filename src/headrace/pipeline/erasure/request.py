"""A request for erasure, from the first look to the certificate.

What is found of the subject is deleted by the running server, which alone says what is dead; then
segments are rewritten, the journal lets go of it, and everything is read again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.client.http import Failed, Server
from headrace.core.batching import batches
from headrace.core.limits import DELETE_RANGES_MAX
from headrace.core.owners import FLAGS_PREFIX, SUBSCRIPTION_PREFIX, TRACKER_PREFIX
from headrace.pipeline import crash_points
from headrace.pipeline.erase import erase
from headrace.pipeline.erasure.certificate import (
    Certificate,
    CopyElsewhere,
    FoundRecords,
    ReadBack,
)
from headrace.pipeline.erasure.subject import Subject, find_records
from headrace.pipeline.errors import JobFailed
from headrace.pipeline.index_backlog import load_plans
from headrace.pipeline.maintenance.history import EXPORT, RunHistory
from headrace.pipeline.rows import read
from headrace.pipeline.server import ask_to_seal
from headrace.pipeline.store_location import StoreLocation, load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PARTS = (FLAGS_PREFIX, SUBSCRIPTION_PREFIX, TRACKER_PREFIX)
"""Logs whose records are parts of something else: they hold nothing that users sent as records."""
_TRIES = 3
"""Records may come while a request is carried out: it is looked for again so often."""


class ErasureRequest(msgspec.Struct, frozen=True):
    """Who is to be forgotten, and where."""

    subject: Subject
    url: str
    api_key: str | None


def erase_subject(
    spark: SparkSession, place: StoreLocation, request: ErasureRequest
) -> Certificate:
    """Carry out the request; the certificate says whether all of it is gone."""
    requested_at = _now()
    found: dict[int, FoundRecords] = {}
    deleted = rewritten = removed = 0
    for attempt in range(_TRIES):
        ask_to_seal(request.url, request.api_key, retire_journal=False)
        spans = _spans(_found(spark, place, request.subject)).toLocalIterator()
        deleted += _delete(request, spans, found)
        crash_points.point("subject-deleted")
        # From here on only segments hold it: what waited is sealed, and the journal lets go.
        ask_to_seal(request.url, request.api_key, retire_journal=True)
        report = erase(spark, place, now=True)
        if report.problems:
            raise JobFailed(f"the erasure is not complete: {report.problems[0]}")
        rewritten += len(report.rows)
        removed += sum(1 for row in report.rows if row[-1] == "removed")
        crash_points.point("subject-erased")
        back = _read_back(spark, place, request.subject)
        if not back.found or attempt == _TRIES - 1:
            break
    salt = secrets.token_hex(16)
    manifest, _ = load(place.open())
    return Certificate(
        id=secrets.token_hex(12),
        store=manifest.owner.directory if manifest.owner is not None else "",
        subject_kind=request.subject.kind,
        subject_salt=salt,
        subject_sha256=request.subject.digest(salt),
        requested_at=requested_at,
        completed_at=_now(),
        found=tuple(sorted(found.values(), key=lambda one: (one.log, one.epoch))),
        deleted=deleted,
        segments_rewritten=rewritten,
        objects_removed=removed,
        read_back=back,
        complete=not back.found and not report.notes,
        remains=tuple(report.notes),
        elsewhere=tuple(_elsewhere(place)),
    )


def _found(spark: SparkSession, place: StoreLocation, subject: Subject) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    objects = place.open()
    manifest, _ = load(objects)
    rows = find_records(spark, place, manifest.segments, subject, load_plans(objects, manifest))
    for prefix in _PARTS:
        rows = rows.where(~F.startswith(F.col("log"), F.lit(prefix)))
    return rows


def _spans(rows: DataFrame) -> DataFrame:
    """Runs of seqs that follow each other, by log and seq."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    order = Window.partitionBy("log_id").orderBy("seq")
    islands = rows.distinct().withColumn("island", F.col("seq") - F.row_number().over(order))
    return (
        islands.groupBy("log_id", "log", "island")
        .agg(F.min("seq").alias("first"), F.max("seq").alias("last"))
        .orderBy("log_id", "first")
    )


def _delete(request: ErasureRequest, spans: Iterator[Any], found: dict[int, FoundRecords]) -> int:
    """Have the server delete these, and note what was found; how many of them were live."""
    deleted = 0
    with Server(request.url, request.api_key) as server:
        for log, name, ranges in _by_log(spans):
            _note(found, log, name, ranges)
            try:
                deleted += server.delete(name, log, ranges)
            except Failed as failed:
                if failed.status != 404:  # the log is gone, with all its records
                    raise JobFailed(f"{request.url} did not delete of {name}: {failed}") from None
    return deleted


def _by_log(spans: Iterator[Any]) -> Iterator[tuple[int, str, list[tuple[int, int]]]]:
    """Ranges of one log, as many as one request takes."""
    for (log, name), rows in groupby(spans, key=lambda row: (row.log_id, row.log)):
        ranges = ((row.first, row.last) for row in rows)
        for some in batches(ranges, lambda _: 1, DELETE_RANGES_MAX):
            yield log, name, some


def _note(
    found: dict[int, FoundRecords], log: int, name: str, ranges: list[tuple[int, int]]
) -> None:
    records = sum(last - first + 1 for first, last in ranges)
    first, last = ranges[0][0], ranges[-1][1]
    if (held := found.get(log)) is not None:
        records, first = records + held.records, min(first, held.first_seq)
        last = max(last, held.last_seq)
    found[log] = FoundRecords(log=name, epoch=log, records=records, first_seq=first, last_seq=last)


def _read_back(spark: SparkSession, place: StoreLocation, subject: Subject) -> ReadBack:
    """Read every segment again, as anybody would."""
    manifest, _ = load(place.open())
    return ReadBack(
        manifest=manifest.version,
        segments=len(manifest.segments),
        records=read(spark, place, manifest.segments, ("seq",)).count(),
        found=_found(spark, place, subject).count(),
    )


def _elsewhere(place: StoreLocation) -> Iterator[CopyElsewhere]:
    """Copies that are out of reach: what the history knows of, and what nobody here can know."""
    runs = RunHistory(place.open(), 0).runs()
    for run in runs:
        if run.job == EXPORT:
            yield CopyElsewhere(
                where=f"an export of {_time(run.started_at_ms / 1000)}: {run.summary}",
                until="somebody removes it",
            )
    since = f" before {_time(runs[0].started_at_ms / 1000)}" if runs else ""
    yield CopyElsewhere(
        where=f"exports made{since} that are not in the history of this store",
        until="somebody removes them",
    )
    yield CopyElsewhere(where="backups of the data directory", until="they are removed")
    yield CopyElsewhere(
        where="receivers of webhooks, readers and replicas that took the records",
        until="they remove them",
    )
    if place.objects is not None:
        yield CopyElsewhere(
            where=f"older versions of objects, if {place.objects} keeps any",
            until="a lifecycle rule of the bucket ends them",
        )


def _now() -> str:
    return _time(time.time())


def _time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
