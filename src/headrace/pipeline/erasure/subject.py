"""The subject of an erasure: which records are meant, in whatever log they are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from headrace.core.errors import Refused
from headrace.core.limits import QUERY_CHARS_MAX
from headrace.formats.index_plans import IndexPlans
from headrace.formats.manifest import Segment
from headrace.pipeline.errors import CannotRun
from headrace.pipeline.rows import NUMBER, read
from headrace.pipeline.store_location import StoreLocation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY, TAG, QUERY = "key", "tag", "query"
_FORMS = "key=VALUE, tag=VALUE, tag=PREFIX* or query=QUERY"
_STAR = "*"


class Subject(msgspec.Struct, frozen=True):
    """What the records to be erased have in common."""

    kind: str
    value: str

    def digest(self, salt: str) -> str:
        """What a certificate says of it: who knows the subject can check it, nobody else learns
        it.
        """
        return hashlib.sha256(f"{salt}\n{self.kind}={self.value}".encode()).hexdigest()


def parse_subject(text: str) -> Subject:
    """`key=VALUE`, `tag=VALUE`, `tag=PREFIX*` or `query=QUERY`."""
    kind, equals, value = text.partition("=")
    if kind not in (KEY, TAG, QUERY) or not equals or value in ("", _STAR):
        raise CannotRun(f"--subject: {text!r} is none; it is {_FORMS}")
    if len(value) > QUERY_CHARS_MAX:
        raise CannotRun(f"--subject: has more than {QUERY_CHARS_MAX} characters")
    return Subject(kind, value)


def find_records(
    spark: SparkSession,
    place: StoreLocation,
    segments: Sequence[Segment],
    subject: Subject,
    plans: IndexPlans,
) -> DataFrame:
    """(log_id, log, seq) of every record of the subject in these segments, dead or alive."""
    from pyspark.sql import functions as F  # noqa: N812

    if subject.kind == QUERY:
        return _find_by_query(spark, place, segments, subject.value, plans)
    column = F.col(subject.kind)
    if subject.kind == TAG and subject.value.endswith(_STAR):
        wanted = F.startswith(column, F.lit(subject.value.removesuffix(_STAR)))
    else:
        wanted = column == subject.value
    rows = read(spark, place, segments, ("log_id", "log", "seq", subject.kind))
    return rows.where(wanted).select("log_id", "log", "seq")


def _find_by_query(
    spark: SparkSession,
    place: StoreLocation,
    segments: Sequence[Segment],
    query: str,
    plans: IndexPlans,
) -> DataFrame:
    """By what the search configuration of each log makes of the query."""
    from pyspark.sql import functions as F  # noqa: N812

    asked = searchable_logs(query, plans)
    rows = read(spark, place, segments, ("log_id", "log", "seq", "data")).drop(NUMBER)
    there = rows.where(F.col("log_id").isin([plan.log_id for plan in asked.plans]))
    found: DataFrame = there.mapInArrow(_Match(query, asked), "log_id long, log string, seq long")
    return found


def searchable_logs(query: str, plans: IndexPlans) -> IndexPlans:
    """The plans of logs that understand the query; `CannotRun` when none does."""
    from headrace.search.config import parse_search
    from headrace.search.query import parse_query

    asked, problem = [], "no log can be searched"
    for plan in plans.plans:
        try:
            parse_query(query, parse_search(msgspec.json.decode(plan.search)))
        except Refused as refused:
            problem = str(refused)
            continue
        asked.append(plan)
    if not asked:
        raise CannotRun(f"--subject: no log with a search configuration takes this: {problem}")
    return IndexPlans(plans=tuple(asked))


class _Match:
    """The task: which rows the query is true of."""

    def __init__(self, query: str, plans: IndexPlans) -> None:
        self._query = query
        self._plans = plans

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from headrace.pipeline.erasure.query_match import QueryMatch

        match = QueryMatch(self._query, self._plans)
        for batch in batches:
            yield match.take(batch)
