"""Groups side by side: what befalls one of them is not the others' concern."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.pipeline.errors import Damaged, JobFailed, Overtaken, Unpublished
from headrace.pipeline.groups import count_slots, run_groups
from headrace.pipeline.limits import GROUP_TASKS, GROUPS_MAX
from headrace.pipeline.report import no_progress

WAIT_S = 30.0


def _spark(cores: int) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=cores))


def _run(
    work: Callable[[int], int],
    groups: int,
    slots: int = 1,
    progress: Callable[[Sequence[int], str], Iterable[int]] = no_progress,
) -> tuple[list[int], list[str]]:
    spark = _spark((slots - 1) * GROUP_TASKS)
    return run_groups(spark, work, range(groups), progress, "group")


def test_a_cluster_has_as_many_groups_at_work_as_keep_it_busy() -> None:
    assert [count_slots(_spark(cores)) for cores in (2, 8, 64, 1 << 20)] == [1, 2, 9, GROUPS_MAX]


def test_groups_are_at_work_at_the_same_time() -> None:
    together = Barrier(3)

    def work(group: int) -> int:
        together.wait(WAIT_S)  # broken unless three of them come here
        return group

    assert _run(work, 6, slots=3) == ([0, 1, 2, 3, 4, 5], [])


def test_what_befalls_one_group_does_not_stop_others() -> None:
    raised = {
        1: Overtaken("a segment is gone"),
        2: Damaged(["s1 is damaged", "s2 is missing"]),
        4: Unpublished("removed before it was published"),
    }

    def work(group: int) -> int:
        if group in raised:
            raise raised[group]
        return group

    problems = ["s1 is damaged", "s2 is missing", "removed before it was published"]
    for slots in (1, 3):
        assert _run(work, 6, slots) == ([0, 3, 5], problems)


def test_a_job_of_which_nothing_came_fails() -> None:
    def work(group: int) -> int:
        raise JobFailed(f"no room for {group}")

    with pytest.raises(JobFailed, match="no room for 0"):
        _run(work, 3)


def test_damage_alone_is_told_and_not_raised() -> None:
    def work(group: int) -> int:
        raise Damaged([f"s{group}"])

    assert _run(work, 2) == ([], ["s0", "s1"])


def test_no_group_is_begun_when_there_is_no_time_left() -> None:
    begun: list[int] = []

    def work(group: int) -> int:
        begun.append(group)
        return group

    def until_two_are_done(groups: Sequence[int], unit: str) -> Iterable[int]:
        for group in groups:
            if len(begun) == 2:
                return
            yield group

    assert _run(work, 5, progress=until_two_are_done) == ([0, 1], [])
    assert begun == [0, 1]


def test_nothing_is_begun_after_what_nobody_can_answer() -> None:
    class Killed(BaseException):
        pass

    begun: list[int] = []

    def work(group: int) -> int:
        begun.append(group)
        raise Killed

    with pytest.raises(Killed):
        _run(work, 5)
    assert begun == [0]
