"""Progress of Spark's stages, for whoever watches a terminal."""

from __future__ import annotations

import sys
from io import StringIO
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.pipeline.report import StageTasks, show_stages

DEADLINE_S = 60.0


def test_tasks_of_stages_that_were_seen() -> None:
    tasks = StageTasks()
    assert tasks.look({}) == (0, 0)
    assert tasks.look({1: (10, 3)}) == (10, 3)
    assert tasks.look({1: (10, 9), 2: (4, 0)}) == (14, 9)
    assert tasks.look({2: (4, 1)}) == (14, 11)
    assert tasks.look({}) == (14, 14)


class Terminal(StringIO):
    def __init__(self, *, watched: bool) -> None:
        super().__init__()
        self._watched = watched

    def isatty(self) -> bool:
        return self._watched


class Tracker:
    """Two stages, one after the other; says when the second was looked at."""

    def __init__(self) -> None:
        self.looked = Event()
        self._active = [[1], [1, 2], [2]]

    def getActiveStageIds(self) -> list[int]:
        if len(self._active) == 1:
            self.looked.set()
            return self._active[0]
        return self._active.pop(0)

    def getStageInfo(self, stage: int) -> Any:
        return SimpleNamespace(numTasks=5 * stage, numCompletedTasks=4)


@pytest.mark.parametrize("watched", [True, False])
def test_a_bar_is_drawn_for_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, *, watched: bool
) -> None:
    tracker, terminal = Tracker(), Terminal(watched=watched)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))
    monkeypatch.setattr(sys, "stderr", terminal)
    with show_stages(spark):
        assert not watched or tracker.looked.wait(DEADLINE_S)
    assert ("9/15" in terminal.getvalue()) == watched
