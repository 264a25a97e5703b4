"""How far one batch of a stream goes: fair to all logs, within what was asked for. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from headrace.formats.log_plan import LogPlan
from headrace.spark.options import Pace

Position = tuple[int, int]
"""(epoch, seq) up to which a log was read"""


class Backlog(msgspec.Struct):
    """What of one log can be read next."""

    plan: LogPlan
    after: int
    head: int

    @property
    def count(self) -> int:
        return self.head - self.after

    @property
    def record_bytes(self) -> float:
        """What one of its records has, on average."""
        return max(1.0, self.plan.bytes / max(1, self.plan.count))

    def stops(self) -> list[int]:
        """Where files end: each segment is one, and so is what is in none yet."""
        spans = self.plan.sealed if isinstance(self.plan.sealed, list) else []
        ends = {last for _, last in spans if self.after < last <= self.head}
        return sorted(ends | {self.head})


def pace_of(backlogs: Sequence[Backlog], pace: Pace) -> dict[str, int]:
    """Log → the seq to read up to."""
    upto = {log.plan.log: log.head for log in backlogs}
    if pace.files is not None:
        _lower(upto, _by_files(backlogs, pace.files))
    for budget, weigh in ((pace.rows, False), (pace.size_bytes, True)):
        if budget is not None:
            _lower(upto, _by_weight(backlogs, budget, weigh=weigh))
    if backlogs and all(upto[log.plan.log] == log.after for log in backlogs):
        first = max(backlogs, key=lambda log: log.count)
        upto[first.plan.log] = min(first.head, first.after + 1)  # a stream must go on
    return upto


def _lower(upto: dict[str, int], other: Mapping[str, int]) -> None:
    for name, seq in other.items():
        upto[name] = min(upto[name], seq)


def _by_weight(backlogs: Sequence[Backlog], budget: float, *, weigh: bool) -> dict[str, int]:
    """The budget, shared: who needs less than its share leaves the rest to the others."""
    found: dict[str, int] = {}
    sizes = {log.plan.log: log.record_bytes if weigh else 1.0 for log in backlogs}
    waiting = sorted(backlogs, key=lambda log: log.count * sizes[log.plan.log])
    for at, log in enumerate(waiting):
        share = budget / (len(waiting) - at)
        size = sizes[log.plan.log]
        count = min(log.count, int(share / size))
        budget -= count * size
        found[log.plan.log] = log.after + count
    return found


def _by_files(backlogs: Sequence[Backlog], files: int) -> dict[str, int]:
    """Files of all logs by turns."""
    found = {log.plan.log: log.after for log in backlogs}
    stops = {log.plan.log: log.stops() for log in backlogs if log.count}
    while files and any(stops.values()):
        for name, left in stops.items():
            if files and left:
                found[name] = left.pop(0)
                files -= 1
    return found
