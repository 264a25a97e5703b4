"""The policy: which jobs run how often, when, for how long; a TOML file with a table for each."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from headrace.core.limits import POLICY_BYTES_MAX
from headrace.pipeline.errors import CannotRun
from headrace.pipeline.maintenance.history import RUNS_DEFAULT

_DURATION = re.compile(r"(\d{1,6})(s|m|h|d)")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")
DAY_S = 86_400


class Duration(int):
    """Seconds, said as `90s`, `15m`, `6h`, `1d`."""


class Minute(int):
    """A time of day in UTC, said as `03:30`: the second that it begins with."""


class Window:
    """A part of the day in UTC, said as `22:00-06:00`; it may go over midnight."""

    def __init__(self, start: Minute, stop: Minute) -> None:
        self.start = start
        self.stop = stop

    def holds(self, second_of_day: int) -> bool:
        if self.start <= self.stop:
            return self.start <= second_of_day < self.stop
        return second_of_day >= self.start or second_of_day < self.stop


class JobPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a job runs."""

    every: Duration
    """From one start to the next."""
    at: Minute | None = None
    """The time of day at which it starts, where it runs once a day or less often."""
    window: Window | None = None
    """It starts only then."""
    budget: Duration | None = None
    """No new step begins when a run has taken so long; the rest is for the next run."""


class SealPolicy(JobPolicy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A running server seals what waits."""

    url: str
    retire_journal: bool = False


class CompactPolicy(JobPolicy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Small segments become large ones."""

    every: Duration = Duration(3600)
    target_mib: int = 128
    min_run: int = 4


class ErasePolicy(JobPolicy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dead records leave the bytes."""

    every: Duration = Duration(DAY_S)
    now: bool = False
    logs: tuple[str, ...] = ()


class RetainPolicy(JobPolicy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Segments in which nothing is live leave the manifest."""

    every: Duration = Duration(3600)


class MergePolicy(JobPolicy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Builds become fewer and larger."""

    every: Duration = Duration(3600)


class JanitorPolicy(JobPolicy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Objects that nobody needs are removed."""

    every: Duration = Duration(3600)
    grace: Duration = Duration(3600)


class AuditPolicy(JobPolicy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything is read, and held against everything else."""

    every: Duration = Duration(7 * DAY_S)


class AlertPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When somebody is told that a job fails."""

    after: int = 3
    """Failures in a row."""
    command: tuple[str, ...] = ()
    """Run with the alert as JSON on its standard input; a line in the log comes without it."""


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What upkeep does; a job that is not named does not run."""

    seal: SealPolicy | None = None
    retain: RetainPolicy | None = None
    compact: CompactPolicy | None = None
    merge: MergePolicy | None = None
    erase: ErasePolicy | None = None
    audit: AuditPolicy | None = None
    janitor: JanitorPolicy | None = None
    index: bool = True
    """Index what is published, all the time between the others."""
    alerts: AlertPolicy = AlertPolicy()
    keep_runs: int = RUNS_DEFAULT
    """Of how many runs the history tells."""

    @property
    def jobs(self) -> dict[str, JobPolicy]:
        """The jobs that run, by name, in the order in which those that are due at once run."""
        named = {name: getattr(self, name) for name in JOBS}
        return {name: job for name, job in named.items() if job is not None}


JOBS = ("seal", "retain", "compact", "merge", "erase", "audit", "janitor")
"""In the order of work: what leaves the manifest need not be compacted, and the janitor sweeps."""
DEFAULT = Policy(
    retain=RetainPolicy(),
    compact=CompactPolicy(),
    erase=ErasePolicy(),
    janitor=JanitorPolicy(),
)
"""Without a file."""
_RUNS_MAX = 100_000


def load_policy(path: Path | None) -> Policy:
    """The policy of a file; the default one without; `CannotRun` says what is wrong with it."""
    if path is None:
        return DEFAULT
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise CannotRun(f"{path}: {error.strerror or error}") from None
    if len(raw) > POLICY_BYTES_MAX:
        raise CannotRun(f"{path}: has more than {POLICY_BYTES_MAX} bytes")
    return parse_policy(raw, str(path))


def parse_policy(raw: bytes, where: str) -> Policy:
    """The policy that a TOML text says."""
    try:
        tables = tomllib.loads(raw.decode())
        policy = msgspec.convert(tables, Policy, dec_hook=_decode)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValueError) as error:
        raise CannotRun(f"{where}: {error}") from None
    for problem in _problems(policy):
        raise CannotRun(f"{where}: {problem}")
    return policy


def _problems(policy: Policy) -> list[str]:
    found = [
        f"{name}: `every` is at least 1s" for name, job in policy.jobs.items() if job.every < 1
    ]
    found += [
        f"{name}: with `at`, `every` is whole days"
        for name, job in policy.jobs.items()
        if job.at is not None and job.every % DAY_S
    ]
    if not 1 <= policy.keep_runs <= _RUNS_MAX:
        found.append(f"keep_runs: from 1 to {_RUNS_MAX}")
    if policy.alerts.after < 1:
        found.append("alerts: `after` is at least 1")
    return found


def _decode(kind: type, value: Any) -> Any:
    if kind is Duration:
        return parse_duration(value)
    if kind is Minute:
        return _minute(value)
    assert kind is Window
    start, dash, stop = str(value).partition("-")
    if not dash or start == stop:
        raise ValueError(f"{value!r} is no part of a day, as 22:00-06:00")
    return Window(_minute(start), _minute(stop))


def parse_duration(value: Any) -> Duration:
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{value!r} is no length of time, as 90s, 15m, 6h or 1d")
    return Duration(int(found[1]) * _UNITS[found[2]])


def _minute(value: Any) -> Minute:
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{value!r} is no time of day, as 03:30")
    return Minute(int(found[1]) * 3600 + int(found[2]) * 60)
