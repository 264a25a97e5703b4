"""`headrace pipeline maintain` and `history`: upkeep as a command."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from threading import Event
from typing import TYPE_CHECKING

import msgspec

from headrace.pipeline.follow import Status, stop_on_signals, stop_with_input, tell_json
from headrace.pipeline.maintenance.history import DONE, RUNNING, Run, RunHistory
from headrace.pipeline.maintenance.maintainer import Maintainer, require_done
from headrace.pipeline.maintenance.policy import Policy
from headrace.pipeline.maintenance.spark_on_demand import SparkOnDemand
from headrace.pipeline.report import Report
from headrace.pipeline.session import session
from headrace.pipeline.settings import SQL, Target
from headrace.pipeline.store_location import StoreLocation
from headrace.printing import count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SUMMARY_MAX = 100


def maintain(place: StoreLocation, options: argparse.Namespace, target: Target) -> Report:
    """Run what is due, once or until told to stop."""
    policy: Policy = options.policy
    stopping = Event()
    if not options.once:
        stop_on_signals(stopping)
    if options.tied:
        stop_with_input(stopping)

    def start(stack: ExitStack) -> SparkSession:
        spark: SparkSession = stack.enter_context(session("maintain", target, SQL))
        if not options.once:
            stop_on_signals(stopping)  # Spark put in something of its own
        return spark

    with SparkOnDemand(start) as spark:
        maintainer = Maintainer(
            place,
            policy,
            spark,
            stopping=stopping,
            tell=tell_json() if options.json else _tell_nobody,
            api_key=options.api_key,
        )
        if options.once:
            done = maintainer.run_once(everything=options.all)
            return _report(place, done, require_done(done))
        maintainer.follow()
    return Report("", [], f"{place}: stopped")


def _tell_nobody(status: Status) -> None:
    pass


def tell_history(place: StoreLocation, *, last: int, job: str | None, as_json: bool) -> Report:
    """The last runs, newest last."""
    runs = [run for run in RunHistory(place.open(), 0).runs() if job in (None, run.job)]
    if as_json:
        for run in runs[-last:]:
            sys.stdout.write(msgspec.json.encode(run).decode() + "\n")
        return Report("", [], f"{place}: {count(len(runs), 'run')}")
    return _report(place, runs[-last:], [], len(runs))


def _report(
    place: StoreLocation, runs: list[Run], problems: list[str], known: int | None = None
) -> Report:
    rows: list[tuple[object, ...]] = [
        (
            _time(run.started_at_ms),
            run.job,
            "-" if run.seconds is None else f"{run.seconds:.1f}",
            run.outcome,
            (run.problem or run.summary or "-")[:_SUMMARY_MAX],
        )
        for run in runs
    ]
    failed = sum(run.outcome not in (DONE, RUNNING) for run in runs)
    if not runs:
        what = "nothing ran" if known is None else "no run is known; `maintain` notes them"
        return Report("", [], f"{place}: {what}", problems)
    what = f"{count(len(runs), 'run')}, {failed} without success"
    if known is not None and known > len(runs):
        what += f"; {known} are known (--last {known} shows all)"
    return Report("started job seconds outcome what", rows, f"{place}: {what}", problems)


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
