"""Tasks answer exactly once, however much they have to say."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from headrace.formats import layout
from headrace.pipeline import tasks
from headrace.pipeline.errors import JobFailed
from headrace.pipeline.tasks import load_answers, run_tasks
from support.segment_store import SegmentStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_large_answers_go_through_the_store(
    spark: SparkSession, shelf: SegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "ANSWER_BYTES_MAX", 100)
    stored: list[str] = []
    kept = type(shelf.objects).remove

    def watched(self: Any, name: str) -> None:
        stored.append(name)
        kept(self, name)

    monkeypatch.setattr(type(shelf.objects), "remove", watched)
    items = [10, 5000, 0, 101]
    assert run_tasks(spark, shelf.place, bytes, items, "job") == [bytes(size) for size in items]
    assert len(stored) == 2
    assert {layout.job_of(name) for name in stored} == {"job"}
    assert shelf.objects.list(layout.BUILDS) == []
    assert run_tasks(spark, shelf.place, bytes, [5000]) == [bytes(5000)]
    assert len(stored) == 2, "nobody holds a lease for it"
    assert run_tasks(spark, shelf.place, bytes, []) == []


def _row(at: int, **more: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"at": at, "answer": pickle.dumps(at), "stored": None} | more)


def test_lost_answers_are_noticed(shelf: SegmentStore) -> None:
    assert load_answers(shelf.place, [_row(1), _row(0)], 2) == [0, 1]
    for rows in ([], [_row(0)], [_row(1)], [_row(0), _row(0)], [_row(0), _row(1), _row(1)]):
        with pytest.raises(JobFailed, match="of 2 tasks answered"):
            load_answers(shelf.place, rows, 2)
    gone = layout.answer("x")
    with pytest.raises(JobFailed, match=gone):
        load_answers(shelf.place, [_row(0, answer=None, stored=gone)], 1)
