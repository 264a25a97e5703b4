"""Upkeep: policies, schedules, turns, the history, and what the maintainer makes of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats import layout
from headrace.pipeline.errors import CannotRun, JobFailed
from headrace.pipeline.follow import Status, Tell
from headrace.pipeline.maintenance import indexing
from headrace.pipeline.maintenance import maintainer as maintainers
from headrace.pipeline.maintenance.alerts import Alerts
from headrace.pipeline.maintenance.history import (
    DONE,
    FAILED,
    RUNNING,
    Run,
    RunHistory,
    note_export,
)
from headrace.pipeline.maintenance.jobs import (
    MAINTENANCE_JOBS,
    JobBudget,
    MaintenanceJob,
    RunContext,
)
from headrace.pipeline.maintenance.maintainer import Maintainer
from headrace.pipeline.maintenance.policy import (
    DAY_S,
    DEFAULT,
    AlertPolicy,
    Duration,
    ErasePolicy,
    JobPolicy,
    Minute,
    Policy,
    Window,
    parse_policy,
)
from headrace.pipeline.maintenance.run import tell_history
from headrace.pipeline.maintenance.schedule import RETRY_S, due_at_s, standing
from headrace.pipeline.maintenance.spark_on_demand import SparkOnDemand
from headrace.pipeline.maintenance.turns import take_turn
from headrace.pipeline.report import Report
from headrace.pipeline.store_location import StoreLocation
from headrace.storage.leases import hold_lease
from headrace.storage.objects import StoreError
from support.segment_store import SegmentStore, search

POLICY = b"""
index = false
[compact]
every = "90m"
window = "22:00-06:00"
budget = "30m"
[erase]
every = "1d"
at = "03:30"
now = true
logs = ["web*"]
[alerts]
after = 2
command = ["true"]
"""


def test_a_policy_says_what_runs_when() -> None:
    policy = parse_policy(POLICY, "p.toml")
    assert list(policy.jobs) == ["compact", "erase"]
    assert policy.compact is not None
    assert policy.erase is not None
    assert policy.compact.every == Duration(5400)
    window = policy.compact.window
    assert window is not None
    assert (window.start, window.stop) == (22 * 3600, 6 * 3600)
    assert (policy.erase.at, policy.erase.logs) == (Minute(12_600), ("web*",))
    assert not policy.index
    assert policy.alerts == AlertPolicy(after=2, command=("true",))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[compact]\nevrey = '1h'", "evrey"),
        ("[compact]\nevery = '1 hour'", "no length of time"),
        ("[compact]\nevery = 60", "no length of time"),
        ("[erase]\nat = '25:00'", "no time of day"),
        ("[erase]\nwindow = '03:00'", "no part of a day"),
        ("[erase]\nevery = '6h'\nat = '03:00'", "whole days"),
        ("[compact]\nevery = '0s'", "at least 1s"),
        ("[seal]\nevery = '1h'", "url"),
        ("[wipe]\nevery = '1h'", "wipe"),
        ("keep_runs = 0", "keep_runs"),
        ("[alerts]\nafter = 0", "after"),
        ("[compact", "p.toml"),
        ("\xff", "p.toml"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused(text: str, problem: str) -> None:
    with pytest.raises(CannotRun, match=problem):
        parse_policy(text.encode("latin-1"), "p.toml")


# --- schedules ---


def _run(started_s: float, outcome: str = DONE, job: str = "compact") -> Run:
    ended = None if outcome == RUNNING else int(started_s * 1000) + 1500
    return Run(
        job=job, name=f"{started_s}", host="h", pid=1, started_at_ms=int(started_s * 1000),
        ended_at_ms=ended, outcome=outcome, problem="broken" if outcome == FAILED else None,
    )  # fmt: skip


def test_a_job_that_never_ran_is_due() -> None:
    assert due_at_s(JobPolicy(every=Duration(60)), standing([]), 1000.0) == 1000.0


def test_a_job_is_due_so_long_after_its_start() -> None:
    assert due_at_s(JobPolicy(every=Duration(60)), standing([_run(1000)]), 1001.0) == 1060.0


def test_failures_are_tried_again_ever_later_but_no_later_than_otherwise() -> None:
    policy = JobPolicy(every=Duration(5 * RETRY_S))
    waits = []
    for failures in range(1, 6):
        runs = [_run(1), *(_run(1000, FAILED) for _ in range(failures))]
        waits.append(due_at_s(policy, standing(runs), 1000.0) - 1000)
    assert waits == [RETRY_S, 2 * RETRY_S, 4 * RETRY_S, 5 * RETRY_S, 5 * RETRY_S]


def test_a_run_that_was_killed_is_a_failure() -> None:
    assert standing([_run(1), _run(2, RUNNING)]).failures == 1


def test_a_time_of_day_is_kept_however_long_runs_take() -> None:
    policy = JobPolicy(every=Duration(DAY_S), at=Minute(3 * 3600))
    at = due_at_s(policy, standing([]), 10.0)
    assert at == 3 * 3600
    assert due_at_s(policy, standing([_run(at + 700)]), at + 800) == at + DAY_S
    weekly = JobPolicy(every=Duration(7 * DAY_S), at=Minute(3 * 3600))
    assert due_at_s(weekly, standing([_run(at)]), at + 1) == at + 7 * DAY_S


@given(st.integers(0, DAY_S - 1), st.integers(0, DAY_S - 1), st.integers(0, 3 * DAY_S))
def test_a_job_starts_only_in_its_window(start: int, stop: int, now_s: int) -> None:
    window = Window(Minute(start - start % 60), Minute(stop - stop % 60))
    policy = JobPolicy(every=Duration(60), window=window)
    at = due_at_s(policy, standing([]), now_s)
    assert at >= now_s
    if window.start != window.stop:
        assert window.holds(int(at % DAY_S))
        assert at - now_s < DAY_S


def test_a_budget_lets_one_step_begin_and_counts_what_is_left() -> None:
    times = iter([0.0, 5.0, 11.0, 12.0])
    budget = JobBudget(10.0, lambda: next(times))
    assert list(budget.progress([1, 2, 3, 4], "step")) == [1, 2]
    assert budget.left == 2


# --- the history ---


def test_the_history_tells_the_newest_runs_and_forgets_the_oldest(tmp_path: Path) -> None:
    history = RunHistory(StoreLocation(tmp_path).open(), keep=3)
    for at in range(5):
        begun = history.begin(_run(at, RUNNING))
        if at != 4:
            history.end(begun, DONE, f"run {at}", None, at * 1000 + 10)
    runs = history.runs()
    assert [run.started_at_ms for run in runs] == [2000, 3000, 4000]
    assert [run.outcome for run in runs] == [DONE, DONE, RUNNING]
    assert runs[0].seconds == 0.01


def test_what_is_no_run_is_passed_over(tmp_path: Path) -> None:
    objects = StoreLocation(tmp_path).open()
    objects.put(f"{layout.RUNS}/1-x.json", b"{")
    RunHistory(objects, 9).begin(_run(1, RUNNING))
    assert [run.job for run in RunHistory(objects, 9).runs()] == ["compact"]


def test_the_history_is_shown_in_a_table(tmp_path: Path) -> None:
    place = StoreLocation(tmp_path)
    history = RunHistory(place.open(), 9)
    history.end(history.begin(_run(1, RUNNING)), FAILED, "", "the disk is full", 2500)
    report = tell_history(place, last=5, job=None, as_json=False)
    assert report.rows == [("1970-01-01T00:00:01Z", "compact", "1.5", FAILED, "the disk is full")]
    assert tell_history(place, last=5, job="erase", as_json=False).rows == []


# --- turns ---


def test_one_job_at_a_time(tmp_path: Path) -> None:
    objects = StoreLocation(tmp_path).open()
    with take_turn(objects) as first, take_turn(objects) as second:
        assert first is not None
        assert second is None
    with hold_lease(objects, "erase"), take_turn(objects) as turn:
        assert turn is None, "somebody started one by hand"
    with hold_lease(objects, "index"), take_turn(objects) as turn:
        assert turn is not None, "indexing is in nobody's way"


# --- the maintainer ---


def _no_spark(stack: object) -> Any:
    raise AssertionError("no job here needs Spark")


class World:
    """A maintainer of an empty store, whose jobs are functions of the test."""

    def __init__(self, path: Path, policy: Policy, **jobs: Callable[[RunContext], Report]) -> None:
        self.now_s = 1_000_000.0
        self.stopping = Event()
        self.place = StoreLocation(path)
        self.said: list[str] = []
        self.policy = policy
        self.maintainer = self.start(policy)
        self.jobs = {
            name: MaintenanceJob(lambda context, _, job=job: job(context))
            for name, job in jobs.items()
        }

    def start(self, policy: Policy, spark: Callable[[object], Any] = _no_spark) -> Maintainer:
        with mock.patch.object(maintainers, "Alerts", self._alerts):
            return Maintainer(
                self.place,
                policy,
                SparkOnDemand(spark),
                stopping=self.stopping,
                clock=lambda: self.now_s,
            )

    def _alerts(self, policy: AlertPolicy, store: str) -> Alerts:
        return Alerts(policy, "store", self.said.append)

    def follow(self, looks: Sequence[float]) -> None:
        """Let it look, with so much time before each of the next looks."""
        left = list(looks)

        def wait(_: float) -> None:
            if left:
                self.now_s += left.pop(0)
            else:
                self.stopping.set()

        with (
            mock.patch.object(self.stopping, "wait", wait),
            mock.patch.dict(MAINTENANCE_JOBS, self.jobs),
        ):
            self.maintainer.follow()

    def runs(self) -> list[tuple[str, str]]:
        return [(run.job, run.outcome) for run in RunHistory(self.place.open(), 99).runs()]


def _done(context: RunContext) -> Report:
    return Report("", [], "done")


def _failed(context: RunContext) -> Report:
    raise JobFailed("no room")


HOURLY = parse_policy(b"index=false\n[retain]\nevery='1h'\n[janitor]\nevery='2h'", "p")


def test_what_is_due_runs_in_the_order_of_work(tmp_path: Path) -> None:
    world = World(tmp_path, HOURLY, retain=_done, janitor=_done)
    world.follow([1, 1, 3600, 1, 3600, 1])
    done = [job for job, outcome in world.runs() if outcome == DONE]
    assert done == ["retain", "janitor", "retain", "janitor", "retain"]


def test_who_starts_next_goes_on_by_the_history(tmp_path: Path) -> None:
    world = World(tmp_path, HOURLY, retain=_done, janitor=_done)
    world.follow([0, 0])
    world.stopping.clear()
    world.maintainer = world.start(HOURLY)
    world.follow([0, 10])
    assert len(world.runs()) == 2


def test_a_job_that_fails_is_tried_again_and_told_of_once(tmp_path: Path) -> None:
    policy = parse_policy(b"index=false\n[retain]\nevery='1h'\n[alerts]\nafter=2", "p")
    world = World(tmp_path, policy, retain=_failed)
    world.follow([0, RETRY_S, 2 * RETRY_S, 4 * RETRY_S])
    assert world.runs() == [("retain", FAILED)] * 4
    assert [line for line in world.said if line.startswith("alert")] == [
        "alert: retain of store is failing (2 times in a row)"
    ]
    world.jobs["retain"] = MaintenanceJob(lambda context, _: _done(context))
    world.stopping.clear()
    world.follow([3600, 0])
    assert world.said[-1] == "alert: retain of store is recovered"


def test_nothing_runs_while_somebody_else_works(tmp_path: Path) -> None:
    world = World(tmp_path, HOURLY, retain=_done, janitor=_done)
    with hold_lease(world.place.open(), "compact"):
        world.follow([0, 0])
    assert world.runs() == []


def test_once_runs_what_is_due_or_everything(tmp_path: Path) -> None:
    world = World(tmp_path, HOURLY, retain=_done, janitor=_done)
    with mock.patch.dict(MAINTENANCE_JOBS, world.jobs):
        assert [run.job for run in world.maintainer.run_once()] == ["retain", "janitor"]
        assert world.maintainer.run_once() == []
        assert len(world.maintainer.run_once(everything=True)) == 2


def test_problems_of_a_report_are_a_failure(tmp_path: Path) -> None:
    def damaged(context: RunContext) -> Report:
        return Report("", [], "one could not be read", ["segment 7 is damaged", "segment 8, too"])

    world = World(tmp_path, HOURLY, retain=damaged, janitor=_done)
    with mock.patch.dict(MAINTENANCE_JOBS, world.jobs):
        (retain, _) = world.maintainer.run_once()
    assert (retain.outcome, retain.problem) == (FAILED, "segment 7 is damaged (and 1 more)")


def test_an_idle_store_starts_no_spark(tmp_path: Path) -> None:
    """Every job that needs it finds out from the manifest that nothing came since it ran last."""
    world = World(tmp_path, DEFAULT)
    history = RunHistory(world.place.open(), 99)
    for job in ("retain", "compact", "erase"):
        begun = history.begin(_run(1, RUNNING, job))
        history.end(begun, DONE, "", None, 2000)
    world.follow([0, 0])
    assert world.runs()[3:] == [("janitor", DONE)]


def test_a_command_gets_the_alert(tmp_path: Path) -> None:
    out = tmp_path / "alert.json"
    script = f"import sys; open({str(out)!r}, 'w').write(sys.stdin.read())"
    policy = AlertPolicy(after=1, command=(sys.executable, "-c", script))
    said: list[str] = []
    Alerts(policy, "store", said.append).tell(_run(1, FAILED), 1)
    assert json.loads(out.read_text())["job"] == "compact"
    Alerts(AlertPolicy(after=1, command=("/nowhere/x",)), "s", said.append).tell(_run(1, FAILED), 1)
    assert said[-1].startswith("the command of alerts failed")


def test_an_export_is_noted_for_who_erases_later(tmp_path: Path) -> None:
    objects = StoreLocation(tmp_path).open()
    assert note_export(objects, 5, "orders.csv: 2 records") is None
    (run,) = RunHistory(objects, 9).runs()
    assert (run.job, run.outcome, run.summary, run.started_at_ms) == (
        "export", DONE, "orders.csv: 2 records", 5,
    )  # fmt: skip


def test_who_may_only_read_exports_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = StoreLocation(tmp_path).open()

    def refuse(name: str, content: bytes) -> None:
        raise StoreError("read only")

    monkeypatch.setattr(objects, "put", refuse)
    assert "read only" in (note_export(objects, 5, "") or "")


class FakeIndexFollower:
    """Has so much to do; tells of it."""

    def __init__(self, steps: list[object], tell: Tell) -> None:
        self._steps = steps
        self._tell = tell

    def step(self) -> bool:
        step = self._steps.pop(0) if self._steps else False
        self._tell(Status(waiting_segments=len(self._steps)))
        if isinstance(step, Exception):
            raise step
        return bool(step)


def _sessions(world: World, steps: list[object]) -> list[object]:
    """Have the maintainer index with followers that have these steps; the sessions they got."""
    made: list[object] = []

    def make(spark: object, place: object, *, tell: Tell, **_: object) -> FakeIndexFollower:
        made.append(spark)
        return FakeIndexFollower(steps, tell)

    store = SegmentStore(world.place.data_dir)
    store.plan({"web": search("w")})
    store.seal({"web": [b"{}"]})
    sessions = iter(range(1, 9))
    world.maintainer = world.start(world.policy, lambda _: next(sessions))
    with mock.patch.object(indexing, "IndexFollower", make):
        world.follow([0] * 8)
    return made


def test_what_is_published_is_indexed_between_the_jobs(tmp_path: Path) -> None:
    world = World(tmp_path, parse_policy(b"[retain]\nevery='1h'", "p"), retain=_done)
    steps: list[object] = [True, True, True]
    assert _sessions(world, steps) == [1]
    assert (steps, world.runs()) == ([], [("retain", DONE)])


def test_an_index_that_fails_is_tried_again_with_another_session(tmp_path: Path) -> None:
    world = World(tmp_path, parse_policy(b"[retain]\nevery='1h'", "p"), retain=_done)
    assert _sessions(world, [JobFailed("Spark is gone"), True]) == [1, 2]
    assert world.said == ["Spark is gone; next try in 5 s"]
    assert world.runs() == [("retain", DONE)]


def test_nobody_starts_spark_where_no_log_wants_an_index(tmp_path: Path) -> None:
    world = World(tmp_path, parse_policy(b"[janitor]\nevery='1h'", "p"), janitor=_done)
    SegmentStore(tmp_path).seal({"web": [b"{}"]})
    world.follow([0, 0])
    assert world.runs() == [("janitor", DONE)]


def test_erase_is_idle_while_nothing_is_dead(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    store.seal({"web": [b"{}"]})
    erase = MAINTENANCE_JOBS["erase"]
    assert erase.is_idle(store.manifest, None, ErasePolicy())
    store.mark({"web": [1, 1]})
    assert not erase.is_idle(store.manifest, None, ErasePolicy())


def test_a_job_that_is_always_due_keeps_nobody_waiting(tmp_path: Path) -> None:
    world = World(
        tmp_path,
        parse_policy(b"index=false\n[retain]\nevery='1s'\n[janitor]\nevery='60s'", "p"),
        retain=_done,
        janitor=_done,
    )
    world.follow([2, 2, 2])
    assert [job for job, _ in world.runs()][:3] == ["retain", "janitor", "retain"]
