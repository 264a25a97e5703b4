"""Jobs beside each other, with threads that wait for each other in place of Spark."""

from __future__ import annotations

from threading import Barrier, Event, Lock
from typing import Any

import pytest

from headrace.pipeline import parallel_jobs
from headrace.pipeline.parallel_jobs import run_jobs, share


class FakeSession:
    """Remembers tags, and tells whoever waits that it is interrupted."""

    def __init__(self) -> None:
        self.tags: set[str] = set()
        self.interrupted = Event()

    def addTag(self, tag: str) -> None:  # noqa: N802
        self.tags.add(tag)

    def removeTag(self, tag: str) -> None:  # noqa: N802
        pass

    def interruptTag(self, tag: str) -> None:  # noqa: N802
        assert tag in self.tags
        self.interrupted.set()


@pytest.fixture
def session() -> Any:
    return FakeSession()


def test_a_slow_job_does_not_hold_up_the_others(session: Any) -> None:
    others_done = Event()

    def work(item: int) -> int:
        if item == 0:
            assert others_done.wait(60)
        return item

    found = []
    for answer in run_jobs(session, work, range(20), 2):
        found.append(answer)
        if len(found) == 19:
            others_done.set()
    assert found[-1] == 0
    assert sorted(found) == list(range(20))


def test_so_many_run_at_a_time_and_no_more(session: Any) -> None:
    together, running, most, lock = Barrier(3, timeout=60), 0, 0, Lock()

    def work(item: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait()
        with lock:
            running -= 1
        return item

    assert sorted(run_jobs(session, work, range(9), 3)) == list(range(9))
    assert most == 3


def test_items_are_taken_when_there_is_room(session: Any) -> None:
    taken: list[int] = []

    def items() -> Any:
        for item in range(10):
            taken.append(item)
            yield item

    jobs = run_jobs(session, int, items(), 2)
    assert next(jobs) in (0, 1)
    jobs.close()
    assert len(taken) <= 3


@pytest.mark.parametrize("culprit", ["job", "tick", "caller"])
def test_what_one_raises_ends_all(session: Any, culprit: str) -> None:
    begun = Event()

    def work(item: int) -> int:
        if item == 0:
            begun.set()
            assert session.interrupted.wait(60)
            raise InterruptedError
        assert begun.wait(60)
        if culprit == "job":
            raise KeyError(item)
        return item

    def tick() -> None:
        if culprit == "tick" and begun.is_set():
            raise KeyError

    def run() -> None:
        for _ in run_jobs(session, work, range(3), 2, tick):
            if culprit == "caller":
                raise KeyError

    with pytest.raises(KeyError):
        run()
    assert session.interrupted.is_set()


def test_a_job_that_cannot_be_interrupted_is_left_alone(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel_jobs, "INTERRUPT_S", 0)
    done = Event()

    def work(item: int) -> int:
        if item:
            raise KeyError
        assert done.wait(60)
        return item

    with pytest.raises(KeyError):
        list(run_jobs(session, work, [0, 1], 2))
    done.set()


@pytest.mark.parametrize(
    ("parallelism", "shared"), [(1, (2, 8)), (2, (2, 8)), (64, (9, 15)), (1000, (16, 125))]
)
def test_jobs_grow_with_the_cluster(parallelism: int, shared: tuple[int, int]) -> None:
    assert share(parallelism) == shared
    jobs, tasks = shared
    assert jobs * tasks >= 2 * parallelism
