"""Which rows of segments a query is true of, by the configuration of their logs; knows no Spark."""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa

from headrace.formats.index_plans import IndexPlan, IndexPlans
from headrace.pipeline.kernels.build import promoter_of
from headrace.schemas.promotion import Promoter
from headrace.search.config import parse_search
from headrace.search.evaluate import Matcher
from headrace.search.query import parse_query


class _LogMatch:
    """The query as one log understands it."""

    def __init__(self, query: str, plan: IndexPlan) -> None:
        search = parse_search(msgspec.json.decode(plan.search))
        self._matcher = Matcher(parse_query(query, search), search)
        self._promoter: Promoter | None = promoter_of(plan)

    def match(self, seqs: list[int], documents: list[bytes]) -> list[bool]:
        if self._promoter is None:
            return self._matcher.match(documents)
        return self._matcher.match(self._promoter.attempt(seqs, documents))


class QueryMatch:
    """A query asked of rows of many logs."""

    def __init__(self, query: str, plans: IndexPlans) -> None:
        self._query = query
        self._plans = {plan.log_id: plan for plan in plans.plans}
        self._logs: dict[int, _LogMatch] = {}

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows (log_id, log, seq) that it is true of; rows are log_id, log, seq, data."""
        ids = batch.column("log_id").to_numpy()
        keep = np.zeros(len(ids), bool)
        for log in np.unique(ids).tolist():
            at = np.flatnonzero(ids == log)
            rows = batch.take(pa.array(at))
            seqs, documents = rows.column("seq").to_pylist(), rows.column("data").to_pylist()
            keep[at] = self._of(log).match(seqs, documents)
        return batch.select(["log_id", "log", "seq"]).filter(pa.array(keep))

    def _of(self, log: int) -> _LogMatch:
        if log not in self._logs:
            self._logs[log] = _LogMatch(self._query, self._plans[log])
        return self._logs[log]
