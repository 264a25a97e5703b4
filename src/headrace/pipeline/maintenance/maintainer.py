"""The maintainer: runs what is due, one job at a time, and notes what became of it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from threading import Event

import msgspec

from headrace.core.errors import Corrupt
from headrace.formats.manifest import Manifest
from headrace.pipeline import crash_points
from headrace.pipeline.errors import CannotRun, JobFailed, NoSpark
from headrace.pipeline.failures import failure
from headrace.pipeline.follow import FollowerStopped, Status, Tell
from headrace.pipeline.limits import POLL_S
from headrace.pipeline.maintenance.alerts import Alerts
from headrace.pipeline.maintenance.history import (
    DONE,
    FAILED,
    RUNNING,
    STOPPED,
    Run,
    RunHistory,
    new_run,
)
from headrace.pipeline.maintenance.indexing import Indexing
from headrace.pipeline.maintenance.jobs import MAINTENANCE_JOBS, JobBudget, RunContext
from headrace.pipeline.maintenance.policy import JobPolicy, Policy
from headrace.pipeline.maintenance.schedule import Standing, due_at_s, standing
from headrace.pipeline.maintenance.spark_on_demand import SparkOnDemand
from headrace.pipeline.maintenance.turns import take_turn
from headrace.pipeline.report import Report
from headrace.pipeline.store_location import StoreLocation
from headrace.printing import count
from headrace.storage import manifests
from headrace.storage.objects import StoreError

LOOK_S = 5.0
"""How often the history is read again: others may run jobs, too."""
AWAY_S = (5.0, 15.0, 60.0)
"""Waits while the store does not answer, ever longer."""
TURN_WAIT_S = (2.0, 10.0)
"""How long to wait, at least and at most, while somebody else has the turn."""


class JobStatus(msgspec.Struct, frozen=True):
    """How a job of upkeep is doing."""

    runs: int
    failures: int
    """In a row."""
    last_seconds: float
    done_at_ms: int
    next_at_ms: int
    problem: str | None = None


class MaintenanceStatus(Status, kw_only=True):
    """How upkeep is doing, and the indexing between its jobs."""

    running: str | None = None
    """The job at work."""
    jobs: dict[str, JobStatus] = msgspec.field(default_factory=dict)


class Maintainer:
    """Keeps a store in order, by its policy."""

    def __init__(
        self,
        place: StoreLocation,
        policy: Policy,
        spark: SparkOnDemand,
        *,
        stopping: Event,
        tell: Tell = lambda status: None,
        api_key: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._place = place
        self._objects = place.open()
        self._policy = policy
        self._spark = spark
        self._stopping = stopping
        self._indexing = Indexing(place, spark, stopping, self._tell_indexing)
        self._tell = tell
        self._known = MaintenanceStatus()
        self._api_key = api_key
        self._clock = clock
        self._history = RunHistory(self._objects, policy.keep_runs)
        self._alerts = Alerts(policy.alerts, str(place))
        self._idle: dict[str, int] = {}
        """Job → the version of the manifest that gave it nothing to do."""
        self._next_look_s = 0.0

    def follow(self) -> None:
        """Run what is due until told to stop."""
        away = 0
        while not self._stopping.is_set():
            try:
                worked = self._policy.index and self._index()
                wait_s, away = self._step(), 0
                if worked:
                    continue
            except FollowerStopped:
                return
            except (StoreError, Corrupt, JobFailed) as error:
                if isinstance(error, NoSpark):
                    raise
                # A store that does not answer may do so later; there is nowhere to note it.
                wait_s = AWAY_S[min(away, len(AWAY_S) - 1)]
                away += 1
                self._alerts.say(f"{error}; next try in {wait_s:.0f} s")
            self._stopping.wait(wait_s)

    def _index(self) -> bool:
        """Index some of what waits; whatever goes wrong, the next try has a session of its own."""
        try:
            return self._indexing.step()
        except (FollowerStopped, NoSpark, StoreError, Corrupt):
            raise
        except Exception as error:
            self._end_spark()
            raise failure(error) from None

    def _end_spark(self) -> None:
        self._indexing.forget()
        self._spark.end()

    def run_once(self, *, everything: bool = False) -> list[Run]:
        """Run what is due now, once each; or every job of the policy. Tells what became of them."""
        done: list[Run] = []
        for name, policy in self._policy.jobs.items():
            if self._stopping.is_set():
                break
            if everything or self._has_work(name, policy):
                with take_turn(self._objects) as turn:
                    if turn is None:
                        raise CannotRun(f"{self._place}: another job is at work here; try later")
                    done.append(self._run(name, policy))
        return done

    def _has_work(self, name: str, policy: JobPolicy) -> bool:
        by_job = self._by_job()
        if self._due_s(name, policy, by_job) > self._clock():
            return False
        return not self._is_idle(name, policy, by_job, manifests.load(self._objects))

    def _step(self) -> float:
        """Run one job that is due; how long to wait before the next look."""
        if self._policy.index and self._clock() < self._next_look_s:
            return POLL_S
        by_job = self._by_job()
        name = self._next_due(by_job)
        self._tell_jobs(by_job, name)
        if name is None:
            self._next_look_s = self._clock() + LOOK_S
            if not self._indexing.is_at_work:
                self._spark.end()  # a gigabyte for nothing, until the next job
            return POLL_S if self._policy.index else LOOK_S
        with take_turn(self._objects) as turn:
            if turn is None:
                return random.uniform(*TURN_WAIT_S)
            # Somebody else may have run it while we waited.
            if self._next_due(self._by_job()) == name:
                self._run(name, self._policy.jobs[name])
        self._tell_jobs(self._by_job(), None)
        return 0.0

    def _next_due(self, by_job: dict[str, list[Run]]) -> str | None:
        """Of the jobs that are due, the one that has been for the longest: one that is due all the
        time keeps nobody waiting. Those that never ran go first, in the order of work.
        """
        since_s: dict[str, float] = {}
        for name, policy in self._policy.jobs.items():
            due_s = self._due_s(name, policy, by_job)
            if due_s <= self._clock():
                since_s[name] = due_s if name in by_job else 0.0
        if not since_s:
            return None
        manifest = manifests.load(self._objects)
        for name in sorted(since_s, key=since_s.__getitem__):
            if not self._is_idle(name, self._policy.jobs[name], by_job, manifest):
                return name
        return None

    def _is_idle(
        self, name: str, policy: JobPolicy, by_job: dict[str, list[Run]], manifest: Manifest
    ) -> bool:
        """Whether nothing can have come to do since the job was done."""
        if self._idle.get(name) == manifest.version:
            return True
        done = standing(by_job.get(name, ())).done
        if not MAINTENANCE_JOBS[name].is_idle(manifest, done, policy):
            return False
        self._idle[name] = manifest.version
        return True

    def _due_s(self, name: str, policy: JobPolicy, by_job: dict[str, list[Run]]) -> float:
        return due_at_s(policy, standing(by_job.get(name, ())), self._clock())

    def _by_job(self) -> dict[str, list[Run]]:
        found: dict[str, list[Run]] = {}
        for run in self._history.runs():
            found.setdefault(run.job, []).append(run)
        return found

    def _run(self, name: str, policy: JobPolicy) -> Run:
        """Run a job; whatever it raises becomes part of the history."""
        manifest = manifests.load(self._objects)
        run = self._history.begin(new_run(name, manifest, self._now_ms()))
        self._tell_jobs(self._by_job(), name)
        crash_points.point("maintaining")
        deadline = time.monotonic() + policy.budget if policy.budget is not None else None
        budget = JobBudget(deadline, time.monotonic)
        context = RunContext(self._place, self._spark, budget, self._api_key)
        try:
            report = MAINTENANCE_JOBS[name].run(context, policy)
        except NoSpark as error:
            self._history.end(run, FAILED, "", str(error), self._now_ms())
            raise
        except JobFailed as error:
            return self._end(run, FAILED, "", str(error))
        except Exception as error:
            self._end_spark()  # whatever it was, the next job begins with another
            return self._end(run, FAILED, "", str(failure(error)))
        except BaseException:
            self._history.end(run, STOPPED, "", None, self._now_ms())
            raise
        outcome, summary, problem = _outcome(report, budget)
        return self._end(run, outcome, summary.removeprefix(f"{self._place}: "), problem)

    def _end(self, run: Run, outcome: str, summary: str, problem: str | None) -> Run:
        ended = self._history.end(run, outcome, summary, problem, self._now_ms())
        failures = standing(self._by_job().get(run.job, ())).failures
        self._alerts.tell(ended, failures)
        return ended

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    def _tell_jobs(self, by_job: dict[str, list[Run]], running: str | None) -> None:
        self._known.running = running
        for name, policy in self._policy.jobs.items():
            runs = by_job.get(name, [])
            due_s = self._due_s(name, policy, by_job)
            self._known.jobs[name] = _job_status(runs, standing(runs), due_s)
        self._tell(self._known)

    def _tell_indexing(self, status: Status) -> None:
        for field in Status.__struct_fields__:
            setattr(self._known, field, getattr(status, field))
        self._tell(self._known)


def _job_status(runs: Sequence[Run], job: Standing, due_s: float) -> JobStatus:
    last = job.last
    return JobStatus(
        runs=len(runs),
        failures=job.failures - (last is not None and last.outcome == RUNNING),
        last_seconds=(last.seconds if last is not None else None) or 0.0,
        done_at_ms=(job.done.ended_at_ms if job.done is not None else None) or 0,
        next_at_ms=int(due_s * 1000),
        problem=last.problem if last is not None else None,
    )


def _outcome(report: Report, budget: JobBudget) -> tuple[str, str, str | None]:
    summary = report.summary
    if budget.left:
        summary += f"; its time is over, {count(budget.left, 'step')} left for the next run"
    if report.problems:
        more = len(report.problems) - 1
        problem = report.problems[0] + (f" (and {more} more)" if more else "")
        return FAILED, summary, problem
    return DONE, summary, None


def require_done(runs: Sequence[Run]) -> list[str]:
    """What went wrong, a line for each run."""
    return [f"{run.job}: {run.problem}" for run in runs if run.outcome != DONE]
