"""When a job is due: a function of its policy, of its last runs and of the time."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.pipeline.maintenance.history import DONE, Run
from headrace.pipeline.maintenance.policy import DAY_S, JobPolicy

RETRY_S = 60
"""Before a job that failed is tried again; twice as long after each failure in a row."""


class Standing(msgspec.Struct, frozen=True):
    """How a job is doing, by its runs."""

    last: Run | None
    done: Run | None
    """The last run that did what it should."""
    failures: int
    """In a row, since then."""


def standing(runs: Sequence[Run]) -> Standing:
    """What the runs of one job, oldest first, say of it."""
    failures, done = 0, None
    for run in reversed(runs):
        if run.outcome == DONE:
            done = run
            break
        failures += 1
    return Standing(runs[-1] if runs else None, done, failures)


def due_at_s(policy: JobPolicy, job: Standing, now_s: float) -> float:
    """The first moment from which the job may start; one that lies behind `now_s` is now."""
    start = _wanted_at_s(policy, job, now_s)
    return start if policy.window is None else _in_window_s(policy, max(start, now_s))


def _wanted_at_s(policy: JobPolicy, job: Standing, now_s: float) -> float:
    every = policy.every
    if job.failures and job.last is not None:
        return job.last.started_at_ms / 1000 + min(every, RETRY_S << min(job.failures - 1, 20))
    if policy.at is None:
        return job.last.started_at_ms / 1000 + every if job.last is not None else now_s
    if job.last is None:
        return _next_time_s(policy.at, now_s)
    # The time of day that follows the last start is one day of `every`.
    following = _next_time_s(policy.at, job.last.started_at_ms / 1000 + 1)
    return following + every - DAY_S


def _next_time_s(second_of_day: int, from_s: float) -> float:
    midnight = from_s - from_s % DAY_S
    at = midnight + second_of_day
    return at if at >= from_s else at + DAY_S


def _in_window_s(policy: JobPolicy, from_s: float) -> float:
    assert policy.window is not None
    if policy.window.holds(int(from_s % DAY_S)):
        return from_s
    return _next_time_s(policy.window.start, from_s)
