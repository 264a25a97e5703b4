"""Marks in jobs: a copy that stays while the server publishes others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headrace.core.errors import Corrupt
from headrace.formats import layout
from headrace.formats.marks import Marks, encode_marks
from headrace.pipeline import marks
from headrace.pipeline.janitor import clean
from headrace.pipeline.marks import begin_work, decode_deaths
from headrace.pipeline.tasks import describe
from support.segment_store import SegmentStore, payloads


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SegmentStore:
    def run_tasks(_: object, __: object, work: Callable[[Any], Any], items: Sequence[Any]) -> Any:
        return [work(item) for item in items]

    monkeypatch.setattr(marks, "run_tasks", run_tasks)
    shelf = SegmentStore(tmp_path)
    shelf.seal({"a": payloads(9)})
    return shelf


def _dead(work: marks.Work, *seqs: int) -> list[bool]:
    logs = np.ones(len(seqs), np.int64)
    found: list[bool] = work.marks.deaths().dead(logs, np.array(seqs, np.int64)).tolist()
    return found


def test_a_job_keeps_the_marks_it_began_with(shelf: SegmentStore) -> None:
    shelf.mark({"a": [1, 2]})
    with begin_work(None, shelf.place, "erase") as work:  # type: ignore[arg-type]
        shelf.mark({"a": [1, 3]})
        shelf.remove(layout.marks(1))
        clean(shelf.place, grace_s=0)  # a janitor leaves it to the job that is at work
        assert _dead(work, 2, 3) == [True, False]
        with begin_work(None, shelf.place, "erase") as later:  # type: ignore[arg-type]
            assert _dead(later, 3, 4) == [True, False]
        assert _dead(work, 2, 3) == [True, False]
    assert shelf.objects_there() == shelf.named()


def test_marks_that_are_replaced_while_they_are_copied(
    shelf: SegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.mark({"a": [1, 1]})
    copy = marks._copy

    def late(*args: Any) -> bool:
        monkeypatch.setattr(marks, "_copy", copy)
        shelf.mark({"a": [1, 4]})
        shelf.remove(layout.marks(1))
        return copy(*args)

    monkeypatch.setattr(marks, "_copy", late)
    with begin_work(None, shelf.place, "retain") as work:  # type: ignore[arg-type]
        assert _dead(work, 4, 5) == [True, False]


def test_marks_that_are_missing_are_an_error_and_not_none(shelf: SegmentStore) -> None:
    shelf.mark({"a": [1, 1]})
    shelf.remove(layout.marks(1))
    with pytest.raises(FileNotFoundError), begin_work(None, shelf.place, "erase"):  # type: ignore[arg-type]
        pass


def test_nothing_is_dead_where_nothing_is_marked(shelf: SegmentStore) -> None:
    with begin_work(None, shelf.place, "compact") as work:  # type: ignore[arg-type]
        assert _dead(work, 1) == [False]


def test_spark_is_told_which_step_of_which_segments_it_works_on() -> None:
    said: list[str | None] = []
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(setJobDescription=said.append))
    with describe(spark, "compact segments 1–4"), describe(spark, "rewrite"):
        pass
    assert said == [
        "compact segments 1–4", "compact segments 1–4: rewrite", "compact segments 1–4", None
    ]  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        Marks((1, 3, 3, 9)),
        Marks(dead={1: (1, 5, 5, 6)}),
        Marks(dead={1: (4, 3)}),
    ],
)
def test_marks_that_are_out_of_order_are_refused(wrong: Marks) -> None:
    with pytest.raises(Corrupt, match="not in order"):
        decode_deaths(encode_marks(wrong), "marks")
